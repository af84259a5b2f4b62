"""The exact likelihood, of all rows or of the anchors alone (subset of data)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from widegp.approximations.evaluation import LOG_2PI, Evaluation, failure
from widegp.compute.backend import Backend, Cotangent
from widegp.kernels.base import Kernel

Array = Any


@dataclass
class Dense:
    """-log N(y; 0, K + noise I), eq. (gp_mll), by one n x n factor; ``kept`` picks rows of the target."""

    X: np.ndarray
    backend: Backend
    kept: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        return len(self.X)

    def _target(self, y: np.ndarray) -> np.ndarray:
        return y if self.kept is None else y[self.kept]

    def evaluate(
        self, kernel: Kernel, noise: float, y: np.ndarray, dy: np.ndarray | None = None
    ) -> Evaluation:
        """Gradient by eq. (grad_mll_standard): dF/dK = (K~^-1 - alpha alpha')/2, alpha = K~^-1 y."""
        y = self._target(y)
        L = self._factor(kernel, noise)
        if L is None:
            return failure("the kernel matrix has no Cholesky factor at these parameters")
        from_factor = self.backend.compiled(_from_factor, self.backend)
        value, alpha, kernel_bar, noise_bar = from_factor(kernel, self.X, L, y)
        if not np.isfinite(float(value)):
            return failure("the likelihood is not finite at these parameters")
        gradient = self.backend.kernel_gradient(kernel, kernel_bar)
        gradient["sigma_eps2"] = np.asarray(float(noise_bar))
        gradient["psi"] = np.zeros(0) if dy is None else np.asarray(alpha) @ self._target(dy)
        return Evaluation(float(value), gradient)

    def _factor(self, kernel: Kernel, noise: float) -> np.ndarray | None:
        L = self.backend.compiled(_factor, self.backend)(kernel, self.X, noise)
        return L if np.isfinite(float(L[-1, -1])) else None

    def posterior(self, kernel: Kernel, noise: float, y: np.ndarray) -> DensePosterior:
        L = self._factor(kernel, noise)
        if L is None:
            raise ArithmeticError("The kernel matrix has no Cholesky factor; raise the noise's prior.")
        half = self.backend.solve_lower(L, self.backend.xp.asarray(self._target(y)))
        alpha = self.backend.solve_lower(L, half, transposed=True)
        return DensePosterior(kernel, noise, self.X, np.asarray(alpha), np.asarray(L))


def _factor(backend: Backend, kernel: Kernel, X: Array, noise: Array) -> Array:
    return backend.cholesky(backend.cross(kernel, X, X) + noise * backend.xp.eye(len(X)))


def _from_factor(
    backend: Backend, kernel: Kernel, X: Array, L: Array, y: Array
) -> tuple[Array, Array, Any, Array]:
    """F, alpha (n,), dF/dkernel, dF/dnoise."""
    xp = backend.xp
    inverse_half = backend.invert_lower(L)
    alpha = inverse_half.T @ (inverse_half @ y)
    value = y @ alpha / 2 + xp.sum(xp.log(xp.diagonal(L))) + len(y) * LOG_2PI / 2
    K_bar = (backend.inner(inverse_half, inverse_half) - alpha[:, None] * alpha[None, :]) / 2
    return value, alpha, backend.cross_pullback(kernel, X, X, Cotangent(K_bar)), xp.trace(K_bar)


@dataclass(frozen=True)
class DensePosterior:
    """Rows X (n, I), alpha = K~^-1 y (n,), L with L L' = K~ (n, n)."""

    kernel: Kernel
    noise: float
    X: np.ndarray
    alpha: np.ndarray
    L: np.ndarray
