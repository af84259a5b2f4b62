"""The MAP loss of eq. (map_loss_body) as a function of one unconstrained vector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from widegp.approximations.evaluation import Likelihood, Observed
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.priors import Prior, penalty
from widegp.kernels.base import Kernel
from widegp.warps import Terms, Warp, standardised


class Answer(NamedTuple):
    """L, dL/dz (p,), the jitter that was added, and what went wrong, if anything did."""

    value: float
    gradient: np.ndarray
    jitter: float = 0.0
    problem: str | None = None


@dataclass(frozen=True)
class Problem:
    """What is estimated from which targets: all of the MAP loss but the likelihood of the rows.

    y (n,) is the standardised target. spread (n,) are the noise variances of the rows in units of sigma_eps2,
    or None where all are alike.
    """

    kernel: Kernel
    y: np.ndarray
    warp: Warp
    priors: dict[str, Prior]
    spread: np.ndarray | None = None

    @property
    def psi_bounds(self) -> tuple[tuple[float, float], ...]:
        """Of the warp's parameters."""
        return tuple(self.warp.bounds)

    def on(self, likelihood: Likelihood, space: ParameterSpace) -> MapObjective:
        """The loss under a likelihood of the same rows."""
        return MapObjective(likelihood, self, space)

    def restricted(self, rows: np.ndarray) -> Problem:
        """The same problem on a part of the table."""
        return replace(self, y=self.y[rows], spread=None if self.spread is None else self.spread[rows])

    def kernel_at(self, values: Values) -> Kernel:
        """The kernel with the given parameters."""
        return with_values(self.kernel, values)

    def warped(self, values: Values) -> Terms:
        """z = g(y; psi) (n,), its derivatives by psi (n, k), and log dz/dy."""
        return standardised(self.warp, self.y, values.get("psi", np.zeros(0)))[0]

    def observed(self, values: Values, warped: Terms | None = None) -> Observed:
        """The warped target with its noise, sigma_eps2 or, where the noise is known, 1 times the spread."""
        terms = self.warped(values) if warped is None else warped
        return Observed(terms.value, float(values.get("sigma_eps2", 1.0)), self.spread)


@dataclass(frozen=True)
class MapObjective:
    """L(theta) = -log p(y | X, theta) - log p(theta), theta = (kernel, sigma_eps2, psi).

    With a warp the likelihood is that of z = g(y; psi) times the Jacobian dz/dy, so warps can be compared.
    """

    likelihood: Likelihood
    problem: Problem
    space: ParameterSpace

    @property
    def n_rows(self) -> int:
        return self.likelihood.n_rows

    def __call__(self, z: np.ndarray) -> Answer:
        problem, values = self.problem, self.space.unpack(z)
        terms, warps = problem.warped(values), "psi" in values
        observed = problem.observed(values, terms)
        out = self.likelihood.evaluate(problem.kernel_at(values), observed, by_row=warps)
        if out.problem is not None:
            return Answer(np.inf, np.zeros_like(z), 0.0, out.problem)
        prior, slopes = penalty(problem.priors, values)
        if warps:
            assert out.by_row is not None
            slopes["psi"] = slopes["psi"] + out.by_row.y @ terms.d_value - terms.d_log_jacobian.sum(0)
        gradient = {name: out.gradient.get(name, 0.0) + slopes[name] for name in values}
        value = out.value - float(terms.log_jacobian.sum()) + prior
        return Answer(value, self.space.pull_back(z, gradient), out.jitter)

    def prior_gradient(self, z: np.ndarray) -> np.ndarray:
        """-d log p(theta) / dz (p,): the share of the gradient that does not grow with the rows."""
        return self.space.pull_back(z, penalty(self.problem.priors, self.space.unpack(z))[1])


def with_values(kernel: Kernel, values: Values) -> Kernel:
    moved = {name: values[name] for name in kernel.parameters() if name in values}
    return kernel.replace(**{k: float(v) if np.ndim(v) == 0 else v for k, v in moved.items()})


def start_values(kernel: Kernel, noise: float, psi: np.ndarray, ard_inputs: int | None) -> Values:
    """Where a fit begins: the kernel's parameters in their own order, sigma_eps2, psi."""
    values = {name: np.asarray(value, float) for name, value in kernel.parameters().items()}
    for name in kernel.per_input:
        if ard_inputs is not None and values[name].ndim == 0:
            values[name] = np.full(ard_inputs, float(values[name]))
    values["sigma_eps2"] = np.asarray(noise, float)
    return values | ({"psi": psi} if psi.size else {})
