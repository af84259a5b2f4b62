"""The MAP loss of eq. (map_loss_body) as a function of one unconstrained vector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from widegp.approximations.evaluation import GaussianLikelihood, Observed
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
    or None where all are alike; noise is sigma_eps2 where it is known and not estimated. weight (n,), or None
    for 1, says how often each row was seen: w rows with one target are one row of noise sigma_eps2 / w times
    a factor (2 pi sigma_eps2)^-(w-1)/2 w^-1/2.
    """

    kernel: Kernel
    y: np.ndarray
    warp: Warp
    priors: dict[str, Prior]
    spread: np.ndarray | None = None
    weight: np.ndarray | None = None
    noise: float = 1.0

    @property
    def count(self) -> float:
        """Rows, each as often as it was seen."""
        return float(len(self.y) if self.weight is None else self.weight.sum())

    @property
    def psi_bounds(self) -> tuple[tuple[float, float], ...]:
        """Of the warp's parameters."""
        return tuple(self.warp.bounds)

    def on(self, likelihood: GaussianLikelihood, space: ParameterSpace) -> MapObjective:
        """The loss under a likelihood of the same rows."""
        return MapObjective(likelihood, self, space)

    def restricted(self, rows: np.ndarray) -> Problem:
        """The same problem on a part of the table."""
        spread, weight = (None if part is None else part[rows] for part in (self.spread, self.weight))
        return replace(self, y=self.y[rows], spread=spread, weight=weight)

    def kernel_at(self, values: Values) -> Kernel:
        """The kernel with the given parameters."""
        return with_values(self.kernel, values)

    def warped(self, values: Values) -> Terms:
        """z = g(y; psi) (n,), its derivatives by psi (n, k), and log dz/dy."""
        return standardised(self.warp, self.y, values.get("psi", np.zeros(0)))[0]

    def observed(self, values: Values, warped: Terms | None = None) -> Observed:
        """The warped target with its noise."""
        terms = self.warped(values) if warped is None else warped
        spread = self.spread
        if self.weight is not None:
            spread = (1.0 if spread is None else spread) / self.weight
        return Observed(terms.value, float(values.get("sigma_eps2", self.noise)), spread)

    def log_jacobian(self, terms: Terms) -> float:
        """sum_i w_i log dz_i/dy_i, of the warp's ``terms``."""
        return float(_times(self.weight, terms.log_jacobian).sum())

    def repetition(self, noise: float) -> tuple[float, float]:
        """sum_i [(w_i - 1) log(2 pi noise_i) + log w_i] / 2, what repeated rows add to F; by sigma_eps2."""
        if self.weight is None:
            return 0.0, 0.0
        more = self.weight - 1
        variances = noise * (1.0 if self.spread is None else self.spread)
        value = float(np.sum(more * np.log(2 * np.pi * variances) + np.log(self.weight))) / 2
        return value, float(more.sum()) / (2 * noise)


@dataclass(frozen=True)
class MapObjective:
    """L(theta) = -log p(y | X, theta) - log p(theta), theta = (kernel, sigma_eps2, psi).

    With a warp the likelihood is that of z = g(y; psi) times the Jacobian dz/dy, so warps can be compared.
    """

    likelihood: GaussianLikelihood
    problem: Problem
    space: ParameterSpace

    @property
    def n_rows(self) -> float:
        """Rows of the likelihood, each as often as it was seen."""
        return self.likelihood.n_rows * self.problem.count / len(self.problem.y)

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
            by_jacobian = _times(problem.weight, terms.d_log_jacobian).sum(0)
            slopes["psi"] = slopes["psi"] + out.by_row.y @ terms.d_value - by_jacobian
        repeated, by_noise = problem.repetition(observed.noise)
        gradient = {name: out.gradient.get(name, 0.0) + slopes[name] for name in values}
        if "sigma_eps2" in gradient:
            gradient["sigma_eps2"] = gradient["sigma_eps2"] + by_noise
        value = out.value + repeated - problem.log_jacobian(terms) + prior
        return Answer(value, self.space.pull_back(z, gradient), out.jitter)

    def value(self, z: np.ndarray) -> float:
        """L(z) alone, which takes a third of the time; inf where it cannot be evaluated."""
        problem, values = self.problem, self.space.unpack(z)
        terms = problem.warped(values)
        observed = problem.observed(values, terms)
        out = self.likelihood.evaluate(problem.kernel_at(values), observed, gradient=False)
        if out.problem is not None:
            return np.inf
        apart = problem.repetition(observed.noise)[0] - problem.log_jacobian(terms)
        return out.value + apart + penalty(problem.priors, values)[0]

    def prior_gradient(self, z: np.ndarray) -> np.ndarray:
        """-d log p(theta) / dz (p,): the share of the gradient that does not grow with the rows."""
        return self.space.pull_back(z, penalty(self.problem.priors, self.space.unpack(z))[1])


def _times(weight: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """Rows (n, ...), each times its weight."""
    return rows if weight is None else rows * weight.reshape(-1, *[1] * (rows.ndim - 1))


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
