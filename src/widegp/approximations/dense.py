"""The exact likelihood, of all rows or of the anchors alone (subset of data)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from widegp.approximations.evaluation import LOG_2PI, Evaluation, failure
from widegp.compute.backend import Backend
from widegp.kernels.base import Kernel


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
        xp, y = self.backend.xp, self._target(y)
        L = self._factor(kernel, noise)
        if L is None:
            return failure("the kernel matrix has no Cholesky factor at these parameters")
        inverse_half = self.backend.solve_lower(L, xp.eye(len(y)))
        alpha = inverse_half.T @ (inverse_half @ y)
        inverse = self.backend.inner(inverse_half, inverse_half)
        value = y @ alpha / 2 + xp.sum(xp.log(xp.diagonal(L))) + len(y) * LOG_2PI / 2
        if not np.isfinite(float(value)):
            return failure("the likelihood is not finite at these parameters")
        K_bar = (inverse - alpha[:, None] * alpha[None, :]) / 2
        gradient = self.backend.kernel_gradient(
            kernel, self.backend.cross_pullback(kernel, self.X, self.X, K_bar)
        )
        gradient["sigma_eps2"] = np.asarray(float(xp.trace(K_bar)))
        gradient["psi"] = np.zeros(0) if dy is None else np.asarray(alpha) @ self._target(dy)
        return Evaluation(float(value), gradient)

    def _factor(self, kernel: Kernel, noise: float) -> np.ndarray | None:
        xp = self.backend.xp
        K = self.backend.cross(kernel, self.X, self.X)
        L = self.backend.cholesky(K + noise * xp.eye(len(self.X)))
        return L if bool(xp.all(xp.isfinite(xp.diagonal(L)))) else None

    def posterior(self, kernel: Kernel, noise: float, y: np.ndarray) -> DensePosterior:
        L = self._factor(kernel, noise)
        if L is None:
            raise ArithmeticError("The kernel matrix has no Cholesky factor; raise the noise's prior.")
        half = self.backend.solve_lower(L, self.backend.xp.asarray(self._target(y)))
        alpha = self.backend.solve_lower(L, half, transposed=True)
        return DensePosterior(kernel, noise, self.X, np.asarray(alpha), np.asarray(L))


@dataclass(frozen=True)
class DensePosterior:
    """Rows X (n, I), alpha = K~^-1 y (n,), L with L L' = K~ (n, n)."""

    kernel: Kernel
    noise: float
    X: np.ndarray
    alpha: np.ndarray
    L: np.ndarray
