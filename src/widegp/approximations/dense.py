"""The exact likelihood, of all rows or of the anchors alone (subset of data)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from widegp.approximations.base import Approximation, Expansion, Features, Grown, Shape, Work, dense_work
from widegp.approximations.evaluation import (
    LOG_2PI,
    Evaluation,
    GaussianLikelihood,
    Observed,
    failure,
    refuse_batch,
)
from widegp.compute.backend import Backend, Cotangent, RowBars
from widegp.kernels.base import Kernel
from widegp.registry import saveable

if TYPE_CHECKING:
    from widegp.approximations.build import Builder
    from widegp.approximations.layout import Layout
    from widegp.engines.blocks import BlockedRows

Array = Any

# n x n arrays alive at once in an exact evaluation.
ARRAYS = 6


class DenseApproximation(Approximation):
    """All rows, or those of the anchors, in one matrix."""

    @property
    def exact(self) -> bool:
        return self.anchors == "none"

    def likelihood(self, builder: Builder, layout: Layout) -> Dense:
        kept = layout.anchors.rows
        return Dense(builder.X if kept is None else builder.X[kept], builder.backend, kept)

    def grown(self, posterior: DensePosterior, backend: Backend, new: BlockedRows) -> Grown:
        grown = posterior.grown(backend, new.X, Observed(new.y, posterior.noise, new.spread))
        # A subset predicts from the anchors' rows, whatever other rows there are.
        return grown if self.exact else grown._replace(posterior=posterior)

    def work(self, shape: Shape, keep_bytes: int) -> Work:
        return Work(dense=dense_work(self.rows(shape), shape.i))

    def numbers(self, shape: Shape, block: int, keep_bytes: int) -> float:
        return ARRAYS * self.rows(shape) ** 2

    def rows(self, shape: Shape) -> int:
        return shape.n if self.exact else shape.r


@dataclass
class Dense:
    """-log N(y; 0, K + diag noise_i), eq. (gp_mll), by one n x n factor; ``kept`` picks rows of y."""

    X: np.ndarray
    backend: Backend
    kept: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        return len(self.X)

    def settle(self, jitter: float) -> None:
        """Nothing is ever added to the diagonal."""

    summed = None

    def batch(self, rows: np.ndarray) -> GaussianLikelihood:
        refuse_batch()

    def _own(self, observed: Observed) -> Observed:
        return observed if self.kept is None else observed.of(self.kept)

    def evaluate(
        self, kernel: Kernel, observed: Observed, by_row: bool = False, gradient: bool = True
    ) -> Evaluation:
        """Gradient by eq. (grad_mll_standard): dF/dK = (K~^-1 - alpha alpha')/2, alpha = K~^-1 y."""
        own = self._own(observed)
        variances = own.variances()
        L = self._factor(kernel, variances)
        if L is None:
            return failure("the kernel matrix has no Cholesky factor at these parameters")
        from_factor = self.backend.compiled(_from_factor, self.backend, gradient)
        value, alpha, kernel_bar, by_variance = from_factor(kernel, self.X, L, own.y)
        if not np.isfinite(float(value)):
            return failure("the likelihood is not finite at these parameters")
        by_spread, slopes = np.asarray(by_variance) * variances, {}
        if gradient:
            slopes = self.backend.kernel_gradient(kernel, kernel_bar)
            slopes["sigma_eps2"] = np.asarray(by_spread.sum() / observed.noise)
        bars = self._by_row(np.asarray(alpha), by_spread, len(observed.y)) if by_row else None
        return Evaluation(float(value), slopes, by_row=bars)

    def _by_row(self, alpha: np.ndarray, by_spread: np.ndarray, n_rows: int) -> RowBars:
        if self.kept is None:
            return RowBars(alpha, by_spread)
        bars = RowBars(np.zeros(n_rows), np.zeros(n_rows))
        bars.y[self.kept], bars.spread[self.kept] = alpha, by_spread
        return bars

    def _factor(self, kernel: Kernel, variances: np.ndarray) -> np.ndarray | None:
        L = self.backend.compiled(_factor, self.backend)(kernel, self.X, variances)
        return L if np.isfinite(float(L[-1, -1])) else None

    def posterior(self, kernel: Kernel, observed: Observed) -> DensePosterior:
        own = self._own(observed)
        L = self._factor(kernel, own.variances())
        if L is None:
            raise ArithmeticError("The kernel matrix has no Cholesky factor; raise the noise's prior.")
        half = self.backend.solve_lower(L, self.backend.xp.asarray(own.y))
        alpha = self.backend.solve_lower(L, half, transposed=True)
        return DensePosterior(kernel, own.noise, self.X, np.asarray(alpha), np.asarray(L))


def _factor(backend: Backend, kernel: Kernel, X: Array, variances: Array) -> Array:
    return backend.cholesky(backend.cross(kernel, X, X) + backend.xp.diag(variances))


def _from_factor(
    backend: Backend, gradient: bool, kernel: Kernel, X: Array, L: Array, y: Array
) -> tuple[Array, Array, Any, Array]:
    """F, alpha (n,), dF/dkernel, None without ``gradient``, and dF/dnoise_i (n,)."""
    xp = backend.xp
    inverse_half = backend.invert_lower(L)
    alpha = inverse_half.T @ (inverse_half @ y)
    value = y @ alpha / 2 + xp.sum(xp.log(xp.diagonal(L))) + len(y) * LOG_2PI / 2
    if not gradient:
        return value, alpha, None, (xp.sum(inverse_half**2, axis=0) - alpha**2) / 2
    K_bar = (backend.inner(inverse_half, inverse_half) - alpha[:, None] * alpha[None, :]) / 2
    return value, alpha, backend.cross_pullback(kernel, X, X, Cotangent(K_bar)), xp.diagonal(K_bar)


class Numbers(NamedTuple):
    """kernel, rows X (n, I), alpha (n,) and L (n, n): what the formulas of the posterior need."""

    kernel: Kernel
    X: Array
    alpha: Array
    L: Array


@saveable
@dataclass(frozen=True)
class DensePosterior:
    """Rows X (n, I), alpha = K~^-1 y (n,), L with L L' = K~ (n, n)."""

    kernel: Kernel
    noise: float
    X: np.ndarray
    alpha: np.ndarray
    L: np.ndarray

    def numbers(self) -> Numbers:
        return Numbers(self.kernel, self.X, self.alpha, self.L)

    def expansion(self) -> Expansion:
        return Expansion(self.X, self.alpha)

    def features(self) -> Features:
        """Of all rows: Z = X, W = L^-T, beta = L'alpha."""
        W = solve_triangular(self.L, np.eye(len(self.X)), lower=True).T
        return Features(self.X, W, self.L.T @ self.alpha)

    def bytes_per_row(self, neighbors: int) -> int:
        """Of work for each new row."""
        return 24 * len(self.X)

    @staticmethod
    def moments(backend: Backend, numbers: Numbers, new: Array) -> tuple[Array, Array]:
        """mu = k*'alpha, Var f = k** - |L^-1 k*|^2, eq. (gp_pred_mom_pt), at rows ``new`` (q, I)."""
        K = backend.cross(numbers.kernel, new, numbers.X)
        half = backend.solve_lower(numbers.L, K.T)
        return K @ numbers.alpha, backend.diagonal(numbers.kernel, new) - (half * half).sum(0)

    @staticmethod
    def mean(backend: Backend, numbers: Numbers, new: Array) -> Array:
        """The mean of `moments` alone."""
        return backend.cross(numbers.kernel, new, numbers.X) @ numbers.alpha

    def grown(self, backend: Backend, X: np.ndarray, observed: Observed) -> Grown:
        """L~ = [[L, 0], [H', M]],  H = L^-1 K_*,  M M' = K_** + noise - H'H,  t = M^-1 (y_* - H' L^-1 y),
        alpha~ = L~^-T (L^-1 y, t), for new rows X (q, I), where L^-1 y = L'alpha.
        """
        n, half = len(self.X), self.L.T @ self.alpha
        H = np.asarray(backend.solve_lower(self.L, backend.cross(self.kernel, self.X, X)))
        S = np.asarray(backend.cross(self.kernel, X, X)) - H.T @ H + np.diag(observed.variances())
        M = np.asarray(backend.cholesky(S))
        if not np.all(np.isfinite(M)):
            raise ArithmeticError("The kernel matrix of old and new rows has no Cholesky factor; fit again.")
        t = np.asarray(backend.solve_lower(M, observed.y - H.T @ half))
        L = np.zeros((n + len(X), n + len(X)), order="F")
        L[:n, :n], L[n:, :n], L[n:, n:] = self.L, H.T, M
        alpha = np.asarray(backend.solve_lower(L, np.concatenate([half, t]), transposed=True))
        grown = replace(self, X=np.concatenate([self.X, X]), alpha=alpha, L=L)
        return Grown(grown, t, np.log(np.diagonal(M)))

    def joint(self, backend: Backend, X: np.ndarray, near: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean (q,) and covariance (q, q) of f at new rows X (q, I)."""
        K = backend.cross(self.kernel, X, self.X)
        half = backend.solve_lower(self.L, K.T)
        return np.asarray(K @ self.alpha), np.asarray(backend.cross(self.kernel, X, X) - half.T @ half)
