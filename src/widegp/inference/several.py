"""The MAP loss of several outputs that share the kernel: independent given it, each with noise of its own.

    L(theta) = sum_t -log N(y_t; 0, K + sigma_t2 I) - log p(theta),   sigma_t2 = sigma_eps2 exp(psi_t)

with psi_0 = 0.

It has the shape of `widegp.inference.objective`, so that the same starts, rounds and optimisers serve it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from widegp.approximations.evaluation import Likelihood, Observed
from widegp.inference.objective import Answer, with_values
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.priors import Prior, penalty
from widegp.kernels.base import Kernel

# Of psi: how many times as large the noise of one output may be as that of another, as a logarithm.
FARTHEST = 12.0


@dataclass(frozen=True)
class SeveralProblem:
    """What is estimated from the standardised outputs Y (n, T)."""

    kernel: Kernel
    Y: np.ndarray
    priors: dict[str, Prior]
    weight: None = None
    noise: float = 1.0

    @property
    def psi_bounds(self) -> tuple[tuple[float, float], ...]:
        """Of the logarithms of the noise of all outputs but the first, in units of that of the first."""
        return tuple((-FARTHEST, FARTHEST) for _ in range(self.Y.shape[1] - 1))

    def repetition(self, noise: float) -> tuple[float, float]:
        """Nothing: every row counts once."""
        return 0.0, 0.0

    def on(self, likelihood: Likelihood, space: ParameterSpace) -> SeveralObjective:
        """The loss under a likelihood of the same rows."""
        return SeveralObjective(likelihood, self, space)

    def restricted(self, rows: np.ndarray) -> SeveralProblem:
        """The same problem on a part of the table."""
        return replace(self, Y=self.Y[rows])

    def kernel_at(self, values: Values) -> Kernel:
        """The kernel with the given parameters."""
        return with_values(self.kernel, values)

    def ratios(self, values: Values) -> np.ndarray:
        """sigma_t2 / sigma_eps2, (T,)."""
        return np.asarray(np.exp(np.concatenate([[0.0], values["psi"]])))

    def observed(self, values: Values, output: int = 0) -> Observed:
        """An output with its noise; the first is the one that starts are compared by."""
        noise = float(values["sigma_eps2"]) * float(self.ratios(values)[output])
        return Observed(self.Y[:, output], noise)


@dataclass(frozen=True)
class SeveralObjective:
    """The sum of the losses of the outputs, each one evaluation of the same likelihood."""

    likelihood: Likelihood
    problem: SeveralProblem
    space: ParameterSpace

    @property
    def n_rows(self) -> float:
        """Targets, of all outputs."""
        return float(self.likelihood.n_rows * self.problem.Y.shape[1])

    def __call__(self, z: np.ndarray) -> Answer:
        problem, values = self.problem, self.space.unpack(z)
        kernel, ratios = problem.kernel_at(values), problem.ratios(values)
        value, slopes = penalty(problem.priors, values)
        by_psi, jitter = np.zeros(len(ratios)), 0.0
        for t, ratio in enumerate(ratios):
            out = self.likelihood.evaluate(kernel, problem.observed(values, t))
            if out.problem is not None:
                return Answer(np.inf, np.zeros_like(z), 0.0, out.problem)
            by_noise = out.gradient.pop("sigma_eps2") * ratio
            by_psi[t] = by_noise * values["sigma_eps2"]
            value, jitter = value + out.value, max(jitter, out.jitter)
            own = {**out.gradient, "sigma_eps2": by_noise}
            slopes = {name: slope + own.get(name, 0.0) for name, slope in slopes.items()}
        slopes["psi"] = slopes["psi"] + by_psi[1:]
        return Answer(value, self.space.pull_back(z, slopes), jitter)

    def prior_gradient(self, z: np.ndarray) -> np.ndarray:
        """-d log p(theta) / dz (p,): the share of the gradient that does not grow with the rows."""
        return self.space.pull_back(z, penalty(self.problem.priors, self.space.unpack(z))[1])
