"""Closed-form kernels on the CPU in float64: BLAS for the products, Numba for everything between."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from threadpoolctl import ThreadpoolController

from widegp.compute import native_arc, native_blas
from widegp.compute.backend import BLOCK_BYTES, Block, Conditional, Cotangent, RowBars, RowCotangents
from widegp.compute.native_conditional import RowWork
from widegp.compute.panels import LowerPanels
from widegp.compute.parallel import in_parallel, runs
from widegp.compute.pool import Pool

CACHED_BYTES = 2**19  # of inner products, beside as many cotangents, in a core's second-level cache
PARALLEL_FACTOR = 1500
COMPLEX_STEP = 1e-40

Closed = Any  # a ClosedForm: `choose_backend` gives other kernels to XLA


class FixedPoints(NamedTuple):
    """Points Z (p, I) times sigma_u2, and the `native_arc.row_scales` of each (3, p)."""

    scaled: np.ndarray
    scales: np.ndarray


class NativeBackend:
    """See `backend.Backend`. A kernel cotangent is the vector dF/d(k_0..k_4, sigma_a2, sigma_u2)."""

    name = "native"
    xp = np
    pads = False
    keeps_shapes = False
    block_rows = sys.maxsize
    block_bytes = BLOCK_BYTES
    keep_bytes = BLOCK_BYTES

    def __init__(self) -> None:
        self._pool = Pool()

    def __reduce__(self) -> tuple[type[NativeBackend], tuple[()]]:
        return NativeBackend, ()

    def scope(self) -> AbstractContextManager:
        """BLAS on one thread: the loops around it are parallel, and idle BLAS threads spin on the cores."""
        return _blas().limit(limits=1, user_api="blas")

    def compiled(self, fn: Callable[..., Any], *fixed: Any) -> Callable[..., Any]:
        return partial(fn, *fixed)

    def cholesky(self, matrix: np.ndarray) -> np.ndarray:
        with _blas_for(len(matrix)):
            factor, info = scipy.linalg.lapack.dpotrf(matrix, lower=1, clean=1)
        return factor if info == 0 else np.full_like(matrix, np.nan)

    def solve_lower(self, lower: np.ndarray, right: np.ndarray, transposed: bool = False) -> np.ndarray:
        if lower.shape[0] == 0:
            return right
        with _blas_for(len(lower)):
            return scipy.linalg.solve_triangular(
                lower, right, lower=True, trans=1 if transposed else 0, check_finite=False
            )

    def invert_lower(self, lower: np.ndarray) -> np.ndarray:
        if lower.shape[0] == 0:
            return lower
        with _blas_for(len(lower)):
            return scipy.linalg.lapack.dtrtri(lower, lower=1)[0]

    def residual_inverse(
        self, kernel: Closed, X: np.ndarray, features: np.ndarray, noise: np.ndarray
    ) -> np.ndarray:
        # All in the memory of K: to be handed fresh memory takes as long as a factorisation.
        K = self.cross(kernel, X, X)
        rows, rank = features.shape
        sizes = (np.array([size], np.int32) for size in (rows, rank, max(rank, 1)))
        done = native_blas.residual_inverse(
            K, np.ascontiguousarray(features), np.asarray(noise, float), *sizes, np.zeros(1, np.int32)
        )
        return K if done else np.full_like(K, np.nan)

    def packed(self, lower: np.ndarray) -> LowerPanels:
        return LowerPanels(lower)

    def matmul(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        out = self._pool.take(len(left), right.shape[1])
        in_parallel(lambda rows: np.matmul(left[rows], right, out=out[rows]), len(left))
        return out

    def inner(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        same = left is right
        parts = in_parallel(lambda rows: left[rows].T @ (left[rows] if same else right[rows]), len(left))
        return sum(parts[1:], start=parts[0])

    def scale_rows(self, matrix: np.ndarray, scale: np.ndarray) -> np.ndarray:
        if np.all(scale == 1.0):
            return matrix
        return np.multiply(matrix, scale[:, None], out=self._pool.take(*matrix.shape))

    def fixed(self, kernel: Closed, Z: np.ndarray) -> FixedPoints:
        arc = kernel.arc()
        return FixedPoints(Z * arc.sigma_u2, native_arc.scales(arc, Z))

    def cross(self, kernel: Closed, X: np.ndarray, Z: np.ndarray | FixedPoints) -> np.ndarray:
        return self._weighted_cross(kernel, X, Z)

    def features(self, kernel: Closed, X: np.ndarray, Z: np.ndarray, W: np.ndarray) -> np.ndarray:
        """K(X, Z) W, the rows of K overwritten while they are in cache."""
        return self._weighted_cross(kernel, X, Z, W)

    def _weighted_cross(
        self, kernel: Closed, X: np.ndarray, Z: np.ndarray | FixedPoints, W: np.ndarray | None = None
    ) -> np.ndarray:
        """K(X, Z), or K(X, Z) W for a square W."""
        right, scales_Z = Z if isinstance(Z, FixedPoints) else self.fixed(kernel, Z)
        width = len(right)
        if len(X) == 0 or width == 0:
            return np.empty((len(X), width))
        arc = kernel.arc()
        sigma_a2, coefficients = float(arc.sigma_a2), native_arc.coefficients(arc)
        scales = native_arc.scales(arc, X)
        K = self._pool.take(len(X), width)

        def work(rows: slice) -> None:
            scratch, size = np.empty((4, width)), _cached_rows(width)
            made = None if W is None else np.empty((size, width))
            for few in runs(rows, size):
                np.matmul(X[few], right.T, out=K[few])
                native_arc.values(K, few.start, few.stop, sigma_a2, coefficients, scales, scales_Z, scratch)
                if W is not None and made is not None:
                    K[few] = np.matmul(K[few], W, out=made[: few.stop - few.start])

        in_parallel(work, len(X))
        return K

    def cross_pullback(
        self, kernel: Closed, X: np.ndarray, Z: np.ndarray, cotangent: Cotangent
    ) -> np.ndarray:
        arc = kernel.arc()
        right = Z * arc.sigma_u2
        sigma_a2, coefficients = float(arc.sigma_a2), native_arc.coefficients(arc)
        scales, scales_Z = native_arc.scales(arc, X), native_arc.scales(arc, Z)
        by_input = np.ndim(arc.sigma_u2) > 0
        width, size = len(Z), _cached_rows(len(Z))
        column = np.zeros(len(X)) if cotangent.column is None else cotangent.column
        row = np.zeros(width) if cotangent.row is None else cotangent.row

        def work(rows: slice) -> np.ndarray:
            inner, c_bar, K_bar = np.empty((3, size, width))
            scratch, d_left, slopes = np.zeros((8, width)), np.empty(size), np.zeros((3, width))
            sums, inputs = np.zeros(7), np.zeros(X.shape[1])
            for few in runs(rows, size):
                count, points = few.stop - few.start, X[few]
                np.matmul(points, right.T, out=inner[:count])
                if cotangent.right is None:
                    K_bar[:count] = cotangent.left[few]
                else:
                    np.matmul(cotangent.left[few], cotangent.right, out=K_bar[:count])
                native_arc.pullback(
                    K_bar, column, row, few.start, inner, count, sigma_a2, coefficients, scales, scales_Z,
                    scratch, c_bar, d_left, slopes, sums,
                )  # fmt: skip
                if by_input:
                    inputs += np.einsum("ki,ki->i", c_bar[:count] @ Z, points)
                    inputs += d_left[:count] @ points**2
            d_right = native_arc.by_variance(slopes, scales_Z)
            sums[5] += d_right @ (scales_Z[0] ** 2 - sigma_a2)
            sums[6] += d_right.sum()
            by_u = inputs + d_right @ Z**2 if by_input else sums[5:6] / arc.sigma_u2
            return np.concatenate([sums[:5], sums[6:7], by_u])

        parts = in_parallel(work, len(X))
        return sum(parts[1:], start=parts[0])

    def diagonal(self, kernel: Closed, X: np.ndarray) -> np.ndarray:
        arc = kernel.arc()
        d = native_arc.variances(arc, X)
        k0, k1, k2, k3, k4 = native_arc.coefficients(arc)
        # At rho = 1: s = t d / (1 + t d), J = d / 2.
        tanh, sigmoid = (t * d / (1 + t * d) for t in (np.pi / 2, np.pi / 8))
        return k0 + k1 * np.arcsin(tanh) + k2 * np.arcsin(sigmoid) + (k3 + k4 / 2) * d

    def diagonal_pullback(self, kernel: Closed, X: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
        arc = kernel.arc()
        d = native_arc.variances(arc, X)
        _, k1, k2, k3, k4 = native_arc.coefficients(arc)
        by_d = np.full_like(d, k3 + k4 / 2)
        parts = [np.ones_like(d)]
        for k, t in ((k1, np.pi / 2), (k2, np.pi / 8)):
            # d/dd arcsin(td/(1+td)) = t / ((1+td) sqrt(1+2td)).
            by_d += k * t / ((1 + t * d) * np.sqrt(1 + 2 * t * d))
            parts.append(np.arcsin(t * d / (1 + t * d)))
        parts += [d, d / 2]
        weighted = cotangent * by_d
        if np.ndim(arc.sigma_u2):
            by_u = weighted @ X**2
        else:
            by_u = np.array([weighted @ np.einsum("ni,ni->n", X, X)])
        coefficients = np.array([cotangent @ part for part in parts])
        return np.concatenate([coefficients, [weighted.sum()], by_u])

    def condition(self, kernel: Closed, noise: Any, block: Block, features: Any) -> Conditional:
        work = RowWork(kernel, noise, block, features, self._pool)
        out = Conditional(
            self._pool.take(block.n_own, features.shape[1]), np.empty(block.n_own), np.empty(block.n_own), 0
        )
        failed = 0
        for rows in work.chunks():
            made = work.condition(rows)
            out.features[rows], out.y[rows], out.d[rows] = made.features, made.y, made.d
            failed += made.failed
        return out._replace(failed=failed)

    def condition_pullback(
        self, kernel: Closed, noise: Any, block: Block, features: Any, cotangents: RowCotangents,
        by_row: bool,
    ) -> tuple[np.ndarray, float, np.ndarray, RowBars | None]:  # fmt: skip
        work = RowWork(kernel, noise, block, features, self._pool)
        features_bar = self._pool.take(*features.shape)
        features_bar[:] = 0.0
        row_bars = RowBars(np.zeros(len(features)), np.zeros(len(features))) if by_row else None
        sums, inputs = np.zeros(8), np.zeros(block.X.shape[1])
        for rows in work.chunks():
            made = work.condition(rows)
            bars = cotangents.to_rows(made.conditional(), block.weight[rows])
            s = work.pullback(rows, made, bars, features_bar, sums, inputs)
            if row_bars is not None:
                work.add_to(row_bars, rows, made.a, s, bars)
        by_log_u = inputs if work.by_input else sums[5:6]
        kernel_bar = np.concatenate([sums[:5], sums[6:7], by_log_u / np.ravel(work.arc.sigma_u2)])
        return features_bar, float(sums[7]), kernel_bar, row_bars

    def row_pullback(
        self, kernel: Closed, noise: Any, block: Block, features: Any, cotangents: RowCotangents
    ) -> RowBars:
        work = RowWork(kernel, noise, block, features, self._pool)
        row_bars = RowBars(np.zeros(len(features)), np.zeros(len(features)))
        for rows in work.chunks():
            made = work.condition(rows)
            bars = cotangents.to_rows(made.conditional(), block.weight[rows])
            s, _ = work.second_solves(rows, made, bars)
            work.add_to(row_bars, rows, made.a, s, bars)
        return row_bars

    def kernel_gradient(self, kernel: Closed, cotangent: np.ndarray) -> dict[str, np.ndarray]:
        """Chain rule from (k_0..k_4, sigma_a2, sigma_u2) to the kernel's own parameters.

        The coefficients are rational in the parameters, so the complex step differentiates them exactly.
        """
        gradient: dict[str, np.ndarray] = {}
        for name, value in kernel.parameters().items():
            if name == "sigma_a2":
                gradient[name] = np.asarray(cotangent[5])
            elif name == "sigma_u2":
                gradient[name] = np.reshape(cotangent[6:], np.shape(value))
            else:
                gradient[name] = _by_complex_step(kernel, name, value, cotangent[:5])
        return gradient


def _by_complex_step(kernel: Closed, name: str, value: Any, cotangent: np.ndarray) -> np.ndarray:
    flat = np.ravel(np.asarray(value, complex))
    out = np.empty(flat.size)
    for j in range(flat.size):
        moved = flat.copy()
        moved[j] += 1j * COMPLEX_STEP
        changed = moved.reshape(np.shape(value)) if np.ndim(value) else moved[0]
        coefficients = kernel.replace(**{name: changed}).arc().coefficients
        out[j] = cotangent @ np.imag(np.asarray(coefficients, complex)) / COMPLEX_STEP
    return out.reshape(np.shape(value))


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _blas_for(size: int) -> AbstractContextManager:
    """All threads for a large factor: there the work outweighs the spinning that follows it."""
    return _blas().limit(limits=native_arc.threads() if size >= PARALLEL_FACTOR else 1, user_api="blas")


def _cached_rows(width: int) -> int:
    return max(32, CACHED_BYTES // (8 * width))
