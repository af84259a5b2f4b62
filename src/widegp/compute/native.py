"""Closed-form kernels on the CPU in float64: BLAS for the products, Numba for everything between."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.linalg
from threadpoolctl import ThreadpoolController

from widegp.compute import native_arc, native_rows
from widegp.compute.backend import BLOCK_BYTES, Block, Conditional, RowCotangents
from widegp.kernels.arc import ArcForm

# Factors and inner products of a chunk of rows stay within this, about the size of a last-level cache.
CHUNK_BYTES = 24 * 2**20
PARALLEL_ROWS = 256
FEW_ROWS = 512
PARALLEL_FACTOR = 1500
COMPLEX_STEP = 1e-40

Closed = Any  # a ClosedForm: `choose_backend` gives other kernels to XLA


class NativeBackend:
    """See `backend.Backend`. A kernel cotangent is the vector dF/d(k_0..k_4, sigma_a2, sigma_u2)."""

    name = "native"
    xp = np
    pads = False
    keeps_shapes = False
    block_rows = sys.maxsize
    block_bytes = BLOCK_BYTES

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

    def matmul(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        out = np.empty((len(left), right.shape[1]))
        _in_parallel(lambda rows: np.matmul(left[rows], right, out=out[rows]), len(left))
        return out

    def matmul_plus(
        self, left: np.ndarray, right: np.ndarray, column: np.ndarray, row: np.ndarray
    ) -> np.ndarray:
        out = np.empty((len(left), right.shape[1]))

        def work(rows: slice) -> None:
            # A few rows at a time: what the product wrote is still in cache when the rest is added.
            for start in range(rows.start, rows.stop, FEW_ROWS):
                few = slice(start, min(start + FEW_ROWS, rows.stop))
                np.matmul(left[few], right, out=out[few])
                out[few] += column[few, None] * row

        _in_parallel(work, len(left))
        return out

    def inner(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        same = left is right
        parts = _in_parallel(lambda rows: left[rows].T @ (left[rows] if same else right[rows]), len(left))
        return sum(parts[1:], start=parts[0])

    def cross(self, kernel: Closed, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        arc = kernel.arc()
        left, right = _scaled(arc, X), _scaled(arc, Z)
        if len(left) == 0 or len(right) == 0:
            return np.empty((len(left), len(right)))
        return native_arc.values(
            left, right, float(arc.sigma_a2), _coefficients(arc), _scales(arc, left), _scales(arc, right),
            native_arc.threads(),
        )  # fmt: skip

    def cross_pullback(
        self, kernel: Closed, X: np.ndarray, Z: np.ndarray, cotangent: np.ndarray
    ) -> np.ndarray:
        arc = kernel.arc()
        left, right = _scaled(arc, X), _scaled(arc, Z)
        by_input = np.ndim(arc.sigma_u2) > 0
        sums, inputs = native_arc.pullback(
            cotangent, left, right, float(arc.sigma_a2), _coefficients(arc), _scales(arc, left),
            _scales(arc, right), by_input, native_arc.threads(),
        )  # fmt: skip
        total = sums.sum(0)
        by_log_u = inputs.sum(0) if by_input else total[5:6]
        return np.concatenate([total[:5], total[6:7], by_log_u / np.ravel(arc.sigma_u2)])

    def diagonal(self, kernel: Closed, X: np.ndarray) -> np.ndarray:
        arc = kernel.arc()
        d = float(arc.sigma_a2) + (_scaled(arc, X) ** 2).sum(1)
        k0, k1, k2, k3, k4 = _coefficients(arc)
        # At rho = 1: s = t d / (1 + t d), J = d / 2.
        tanh, sigmoid = (t * d / (1 + t * d) for t in (np.pi / 2, np.pi / 8))
        return k0 + k1 * np.arcsin(tanh) + k2 * np.arcsin(sigmoid) + (k3 + k4 / 2) * d

    def diagonal_pullback(self, kernel: Closed, X: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
        arc = kernel.arc()
        squares = _scaled(arc, X) ** 2
        d = float(arc.sigma_a2) + squares.sum(1)
        _, k1, k2, k3, k4 = _coefficients(arc)
        by_d = np.full_like(d, k3 + k4 / 2)
        parts = [np.ones_like(d)]
        for k, t in ((k1, np.pi / 2), (k2, np.pi / 8)):
            # d/dd arcsin(td/(1+td)) = t / ((1+td) sqrt(1+2td)).
            by_d += k * t / ((1 + t * d) * np.sqrt(1 + 2 * t * d))
            parts.append(np.arcsin(t * d / (1 + t * d)))
        parts += [d, d / 2]
        weighted = cotangent * by_d
        by_log_u = weighted @ squares if np.ndim(arc.sigma_u2) else np.array([weighted @ squares.sum(1)])
        coefficients = np.array([cotangent @ part for part in parts])
        return np.concatenate([coefficients, [weighted.sum()], by_log_u / np.ravel(arc.sigma_u2)])

    def condition(self, kernel: Closed, noise: Any, block: Block, features: Any) -> Conditional:
        prepared = _RowWork(kernel, noise, block, features)
        out = Conditional(
            np.empty((block.n_own, features.shape[1])), np.empty(block.n_own), np.empty(block.n_own), 0
        )
        failed = 0
        for rows in prepared.chunks():
            _, d, phi, y, _, _, failures = prepared.condition(rows)
            out.features[rows], out.y[rows], out.d[rows] = phi, y, d
            failed += failures
        return out._replace(failed=failed)

    def condition_pullback(
        self, kernel: Closed, noise: Any, block: Block, features: Any, cotangents: RowCotangents
    ) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        work = _RowWork(kernel, noise, block, features)
        features_bar, y_bar = np.zeros_like(features), np.zeros(len(features))
        sums, inputs = np.zeros(8), np.zeros(block.X.shape[1])
        for rows in work.chunks():
            a, d, phi, y, factors, covariances, failed = work.condition(rows)
            by_phi, by_y, by_d = cotangents.to_rows(Conditional(phi, y, d, failed), block.weight[rows])
            s, v, chunk_sums, chunk_inputs = work.pullback(
                rows, a, factors, covariances, phi, by_phi, by_y, by_d
            )
            native_rows.scatter(block.neighbors[rows], rows.start, a, s, phi, v, features_bar, work.threads)
            _scatter_y(block.neighbors[rows], rows, a, by_y, y_bar)
            sums += chunk_sums.sum(0)
            inputs += chunk_inputs.sum(0)
        by_log_u = inputs if work.by_input else sums[5:6]
        kernel_bar = np.concatenate([sums[:5], sums[6:7], by_log_u / np.ravel(work.arc.sigma_u2)])
        return features_bar, y_bar, float(sums[7]), kernel_bar

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


class _RowWork:
    """The arrays that the row loops share, and their chunks."""

    def __init__(self, kernel: Closed, noise: Any, block: Block, features: Any) -> None:
        self.arc = kernel.arc()
        self.by_input = np.ndim(self.arc.sigma_u2) > 0
        self.points = _scaled(self.arc, block.X)
        self.scales = np.ascontiguousarray(_scales(self.arc, self.points).T)
        self.features = np.ascontiguousarray(features)
        self.block, self.noise = block, float(noise)
        self.coefficients = _coefficients(self.arc)
        self.threads = native_arc.threads()

    def chunks(self) -> Iterator[slice]:
        size = max(64, CHUNK_BYTES // (16 * (self.block.neighbors.shape[1] + 1) ** 2))
        for start in range(0, self.block.n_own, size):
            yield slice(start, min(start + size, self.block.n_own))

    def condition(self, rows: slice) -> tuple[Any, ...]:
        return native_rows.condition(
            self.points, self.scales, self.features, self.block.y, self.block.neighbors[rows], rows.start,
            self.noise, float(self.arc.sigma_a2), self.coefficients, self.threads,
        )  # fmt: skip

    def pullback(self, rows: slice, *saved: np.ndarray) -> tuple[np.ndarray, ...]:
        return native_rows.condition_pullback(
            self.points, self.scales, self.features, self.block.y, self.block.neighbors[rows], rows.start,
            float(self.arc.sigma_a2), self.coefficients, *saved, self.by_input, self.threads,
        )  # fmt: skip


def _scatter_y(
    neighbors: np.ndarray, rows: slice, a: np.ndarray, by_y: np.ndarray, y_bar: np.ndarray
) -> None:
    """y_bar_i += by_y_i,  y_bar_N -= a by_y_i."""
    y_bar[rows] += by_y
    present = neighbors >= 0
    np.subtract.at(y_bar, neighbors[present], (a * by_y[:, None])[present])


def _scaled(arc: ArcForm, X: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(X * np.sqrt(np.asarray(arc.sigma_u2, float)))


def _scales(arc: ArcForm, scaled: np.ndarray) -> np.ndarray:
    return native_arc.row_scales(float(arc.sigma_a2) + (scaled * scaled).sum(1))


def _coefficients(arc: ArcForm) -> tuple[float, ...]:
    return tuple(float(k) for k in arc.coefficients)


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


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(native_arc.threads(), thread_name_prefix="widegp")


def _in_parallel(work: Callable[[slice], Any], n_rows: int) -> list[Any]:
    """work over contiguous shares of the rows, one per thread; NumPy's products release the GIL."""
    count = native_arc.threads() if n_rows >= PARALLEL_ROWS else 1
    shares = [slice(n_rows * t // count, n_rows * (t + 1) // count) for t in range(count)]
    if count == 1:
        return [work(shares[0])]
    return list(_workers().map(work, shares))
