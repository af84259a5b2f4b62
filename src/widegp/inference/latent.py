"""The MAP loss under a likelihood that is not Gaussian, with f integrated out by Laplace's approximation.

It has the shape of `widegp.inference.objective`, so that the same starts, rounds and optimisers serve it.
"psi" holds the coordinates z of the likelihood's parameters, `Likelihood.z`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from widegp.approximations.evaluation import GaussianLikelihood, Observed
from widegp.inference.objective import Answer, with_values
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.priors import Prior, penalty
from widegp.kernels.base import Kernel
from widegp.laplace import Evidence, Mode, Pseudo, Response, Solved, evidence, find_mode

# Tolerance of the mode: the evidence of n rows is then right to better than 1e-8 n nats.
TOLERANCE = 1e-4
# Tolerance above FEW_ROWS rows: it saves a Newton step, and the evidence is right to better than 1e-6 n nats.
FEW_ROWS, COARSE = 1000, 1e-3


@dataclass
class KnownMode:
    """The mode f (n,) found last at the rows of a problem, or None: Newton's method begins there."""

    f: np.ndarray | None = None


@dataclass(frozen=True)
class LatentProblem:
    """What is estimated from which responses: all of the MAP loss but the likelihood of the rows.

    It offers what `widegp.inference.objective.Problem` does. The noise of its pseudo-targets is known.
    """

    kernel: Kernel
    response: Response
    priors: dict[str, Prior]
    noise: float = 1.0
    known: KnownMode = field(default_factory=KnownMode, compare=False)

    @property
    def weight(self) -> np.ndarray:
        """How often each row was seen, (n,)."""
        return np.broadcast_to(np.asarray(self.response.weight, float), self.response.y.shape)

    def repetition(self, noise: float) -> tuple[float, float]:
        """Nothing: the weights are in the terms of the response."""
        return 0.0, 0.0

    @property
    def psi_bounds(self) -> tuple[tuple[float, float], ...]:
        """Of the coordinates of the likelihood's parameters."""
        return self.response.likelihood.z_bounds

    def on(self, likelihood: GaussianLikelihood, space: ParameterSpace) -> LaplaceObjective:
        """The loss under a Gaussian likelihood of the same rows."""
        return LaplaceObjective(likelihood, self, space)

    def restricted(self, rows: np.ndarray, weight: np.ndarray | None = None) -> LatentProblem:
        """The same problem on a part of the table; ``weight`` : how often each row was seen there."""
        known = KnownMode() if self.known.f is None else KnownMode(self.known.f[rows])
        response = self.response.of(rows)
        if weight is not None:
            response = replace(response, weight=weight)
        return replace(self, response=response, known=known)

    def kernel_at(self, values: Values) -> Kernel:
        """The kernel with the given parameters."""
        return with_values(self.kernel, values)

    def response_at(self, values: Values) -> Response:
        """The responses under the likelihood with the given parameters."""
        return self.response.with_z(values["psi"]) if "psi" in values else self.response

    @property
    def functions(self) -> int:
        """Latent functions that a row has."""
        return 1

    def log_score(self, values: Values, rows: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        """log p of the responses at ``rows`` (h,) where f ~ N(mean, var), both (h, functions): (h,)."""
        response = self.response_at(values).of(rows)
        predictive = response.likelihood.predictive(mean[:, 0] + response.offset, var[:, 0])
        return predictive.log_density(response.y)

    def observed(self, values: Values, function: int = 0) -> Observed:
        """The Gaussian that stands for the likelihood at the mode found last: what predictions condition on.

        Before one is found, that with which Newton's method begins, to compare starts by.
        """
        response, f = self.response_at(values), self.known.f
        terms = response.terms(response.start() if f is None else f)
        pseudo = Pseudo.at(terms, response.start(), terms.step) if f is None else Pseudo.at(terms, f, terms.W)
        return Observed(pseudo.z, 1.0, pseudo.noise)


@dataclass(frozen=True)
class RowNoise:
    """A `widegp.laplace.GaussianProblem`: a likelihood of rows with noise variances of their own."""

    likelihood: GaussianLikelihood
    kernel: Kernel

    def __call__(self, z: np.ndarray, noise: np.ndarray, gradient: bool = False) -> Solved:
        # Far from the mode of a hopeless start numbers may overflow: what is not finite is a named failure.
        with np.errstate(over="ignore", invalid="ignore"):
            out = self.likelihood.evaluate(self.kernel, Observed(z, 1.0, noise), True, gradient)
        if out.problem is not None or out.by_row is None:
            return Solved(np.inf, z, noise, None, out.problem)
        by_kernel = {name: slope for name, slope in out.gradient.items() if name != "sigma_eps2"}
        return Solved(out.value, out.by_row.y, out.by_row.spread / noise, by_kernel)


@dataclass
class LaplaceObjective:
    """L(theta, psi) = -log q(y | X, theta, psi) - log p(theta).

    Newton's method begins at the mode of the last evaluation of these rows, whatever the likelihood was.
    ``last`` is the last evaluation: a point that ends one stage and begins the next is evaluated once.
    """

    likelihood: GaussianLikelihood
    problem: LatentProblem
    space: ParameterSpace
    last: tuple[np.ndarray, Answer] | None = field(default=None, init=False)

    @property
    def n_rows(self) -> float:
        """Rows of the likelihood, each as often as it was seen."""
        return self.likelihood.n_rows * float(self.problem.weight.mean())

    def __call__(self, z: np.ndarray) -> Answer:
        if self.last is None or not np.array_equal(self.last[0], z):
            self.last = z.copy(), self._evaluated(z)
        return self.last[1]

    def _evaluated(self, z: np.ndarray) -> Answer:
        values, known = self.space.unpack(z), self.problem.known
        solve = RowNoise(self.likelihood, self.problem.kernel_at(values))
        response = self.problem.response_at(values)
        tolerance = TOLERANCE if len(response.y) <= FEW_ROWS else COARSE
        out = self._evidence(solve, response, tolerance)
        if out.problem is not None or out.mode is None:
            return Answer(np.inf, np.zeros_like(z), 0.0, out.problem)
        known.f = out.mode.f
        prior, slopes = penalty(self.problem.priors, values)
        by_psi = out.by_psi * response.likelihood.psi_by_z
        gradient = {name: out.gradient.get(name, by_psi) + slopes[name] for name in values}
        return Answer(out.value + prior, self.space.pull_back(z, gradient))

    def mode(self, values: Values, tolerance: float = TOLERANCE) -> Mode:
        """The mode of f at the given parameters, whose pseudo-targets predictions condition on."""
        solve, known = RowNoise(self.likelihood, self.problem.kernel_at(values)), self.problem.known
        mode = self._mode(solve, self.problem.response_at(values), tolerance)
        known.f = mode.f if mode.problem is None else known.f
        return mode

    def _evidence(self, solve: RowNoise, response: Response, tolerance: float) -> Evidence:
        return evidence(solve, response, self.problem.known.f, tolerance)

    def _mode(self, solve: RowNoise, response: Response, tolerance: float) -> Mode:
        return find_mode(solve, response, self.problem.known.f, tolerance)

    def prior_gradient(self, z: np.ndarray) -> np.ndarray:
        """-d log p(theta) / dz (p,): the share of the gradient that does not grow with the rows."""
        return self.space.pull_back(z, penalty(self.problem.priors, self.space.unpack(z))[1])
