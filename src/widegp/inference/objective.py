"""The MAP loss of eq. (map_loss_body) as a function of one unconstrained vector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from widegp.approximations.evaluation import Approximation
from widegp.inference.journal import Journal
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.priors import Prior, penalty
from widegp.kernels.base import Kernel
from widegp.warps import Warp, standardised


@dataclass
class MapObjective:
    """L(theta) = -log p(y | X, theta) - log p(theta), theta = (kernel, sigma_eps2, psi).

    y (n,) is the standardised target in the approximation's own order of rows. With a warp the
    likelihood is that of z = g(y; psi) times the Jacobian dz/dy, so warps can be compared.
    """

    approximation: Approximation
    kernel: Kernel
    y: np.ndarray
    warp: Warp
    priors: dict[str, Prior]
    space: ParameterSpace
    jitter: float = 0.0
    journal: Journal | None = None

    def __call__(self, z: np.ndarray) -> tuple[float, np.ndarray, str | None]:
        """L, dL/dz (p,) and what went wrong, if anything did."""
        journal = self.journal
        answer = self._evaluate(z) if journal is None else journal.answer(z, self._evaluate)
        value, gradient, jitter, problem = answer
        self.jitter = max(self.jitter, jitter)
        likelihood: Any = self.approximation
        if problem is None and hasattr(likelihood, "settle"):
            # An answer from the journal must leave the likelihood as the evaluation left it.
            likelihood.settle(jitter)
        return value, gradient, problem

    def _evaluate(self, z: np.ndarray) -> tuple[float, np.ndarray, float, str | None]:
        values = self.space.unpack(z)
        target, dy, log_jacobian, d_log_jacobian = self.target(values)
        out = self.approximation.evaluate(self.at(values), float(values["sigma_eps2"]), target, dy)
        if out.problem is not None:
            return np.inf, np.zeros_like(z), 0.0, out.problem
        prior, prior_slopes = penalty(self.priors, values)
        gradient = {name: out.gradient[name] + prior_slopes[name] for name in values}
        if "psi" in gradient:
            gradient["psi"] = gradient["psi"] - d_log_jacobian
        return out.value - log_jacobian + prior, self.space.pull_back(z, gradient), out.jitter, None

    def prior_gradient(self, z: np.ndarray) -> np.ndarray:
        """-d log p(theta) / dz (p,): the share of the gradient that does not grow with the rows."""
        return self.space.pull_back(z, penalty(self.priors, self.space.unpack(z))[1])

    def at(self, values: Values) -> Kernel:
        """The kernel with the given parameters."""
        return with_values(self.kernel, values)

    def target(self, values: Values) -> tuple[np.ndarray, np.ndarray | None, float, np.ndarray]:
        """Warped target (n,), its derivatives by psi (n, k), sum log dz/dy and its derivatives (k,)."""
        psi = values.get("psi", np.zeros(0))
        terms, _, _ = standardised(self.warp, self.y, psi)
        dy = terms.d_value if psi.size else None
        return terms.value, dy, float(terms.log_jacobian.sum()), terms.d_log_jacobian.sum(0)


@dataclass(frozen=True)
class Problem:
    """What is estimated from which targets y (n,): all of the MAP loss but the likelihood of the rows."""

    kernel: Kernel
    y: np.ndarray
    warp: Warp
    priors: dict[str, Prior]
    journal: Journal | None = None

    def on(self, approximation: Approximation, rows: np.ndarray, space: ParameterSpace) -> MapObjective:
        """The loss of the targets of these rows, in the order in which the approximation holds them."""
        return MapObjective(
            approximation, self.kernel, self.y[rows], self.warp, self.priors, space, journal=self.journal
        )

    def restricted(self, rows: np.ndarray) -> Problem:
        """The same problem on a part of the table."""
        return replace(self, y=self.y[rows])

    def kernel_at(self, values: Values) -> Kernel:
        """The kernel with the given parameters."""
        return with_values(self.kernel, values)


def with_values(kernel: Kernel, values: Values) -> Kernel:
    moved = {name: values[name] for name in kernel.parameters() if name in values}
    return kernel.replace(**{k: float(v) if np.ndim(v) == 0 else v for k, v in moved.items()})


def start_values(kernel: Kernel, noise: float, psi: np.ndarray, ard_inputs: int | None) -> Values:
    """Where a fit begins, in the order sigma_*, alpha, w, sigma_eps2, psi."""
    values = {name: np.asarray(value, float) for name, value in kernel.parameters().items()}
    if ard_inputs is not None and values["sigma_u2"].ndim == 0:
        values["sigma_u2"] = np.full(ard_inputs, float(values["sigma_u2"]))
    values["sigma_eps2"] = np.asarray(noise, float)
    return values | ({"psi": psi} if psi.size else {})
