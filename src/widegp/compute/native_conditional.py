"""Rows given their neighbours on the CPU: `native_rows` over chunks of a block, shared by the threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from widegp.compute import native_arc, native_rows
from widegp.compute.backend import Block, Conditional, RowBars
from widegp.compute.parallel import in_parallel, runs
from widegp.compute.pool import Pool
from widegp.kernels.arc import ArcForm

# Factors and inner products of a chunk of rows stay within this, about the size of a last-level cache.
CHUNK_BYTES = 24 * 2**20
FEW = 16  # rows, or columns, that are work enough for all threads


class Given(NamedTuple):
    """Rows given their neighbours: the outputs of `native_rows.condition`, and the rows that failed."""

    a: np.ndarray
    d: np.ndarray
    features: np.ndarray
    y: np.ndarray
    factors: np.ndarray
    covariances: np.ndarray
    failed: int

    def conditional(self) -> Conditional:
        return Conditional(self.features, self.y, self.d, self.failed)


class RowWork:
    """The arrays that the row loops share, their chunks, and the threads that share a chunk."""

    def __init__(self, kernel: Any, noise: Any, block: Block, features: Any, pool: Pool) -> None:
        self.arc = kernel.arc()
        self.by_input = np.ndim(self.arc.sigma_u2) > 0
        self.points = _scaled(self.arc, block.X)
        self.scales = np.ascontiguousarray(native_arc.scales(self.arc, block.X).T)
        self.features = np.ascontiguousarray(features)
        self.block, self.noise, self.pool = block, float(noise) * block.spread, pool
        self.coefficients = native_arc.coefficients(self.arc)

    def chunks(self) -> Iterator[slice]:
        size = max(64, CHUNK_BYTES // (16 * (self.block.neighbors.shape[1] + 1) ** 2))
        return runs(slice(0, self.block.n_own), size)

    def scratch(self) -> native_rows.Scratch:
        """What one thread overwrites."""
        return native_rows.Scratch.of(
            self.block.neighbors.shape[1], self.points.shape[1], self.features.shape[1]
        )

    def condition(self, rows: slice) -> Given:
        neighbors = self.block.neighbors[rows]
        n, m = neighbors.shape
        take = self.pool.take
        out = (
            take(n, m), take(n), take(n, self.features.shape[1]), take(n), take(n, m + 1, m + 1),
            take(n, (m + 1) * (m + 2) // 2),
        )  # fmt: skip
        sigma_a2 = float(self.arc.sigma_a2)

        def work(share: slice) -> int:
            return native_rows.condition(
                share.start, share.stop, self.points, self.scales, self.features, self.block.y, self.noise,
                neighbors, rows.start, sigma_a2, self.coefficients, self.scratch(), *out,
            )  # fmt: skip

        return Given(*out, sum(in_parallel(work, n, FEW)))

    def second_solves(
        self, rows: slice, made: Given, bars: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """s (n, m) and v (n, r) of `native_rows.condition_pullback`."""
        neighbors = self.block.neighbors[rows]
        n, m = neighbors.shape
        s, v = self.pool.take(n, m), self.pool.take(n, self.features.shape[1])
        scratch = self.scratch()

        def work(share: slice) -> None:
            native_rows.second_solves(
                share.start, share.stop, self.features, self.block.y, neighbors, made.factors, made.features,
                *bars, scratch.p, scratch.m, s, v,
            )  # fmt: skip

        in_parallel(work, n, FEW)
        return s, v

    def pullback(
        self, rows: slice, made: Given, bars: tuple[np.ndarray, ...], features_bar: np.ndarray,
        sums: np.ndarray, inputs: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """Add dF/dfeatures of all rows to features_bar, dF/dkernel to sums (8,) and inputs (I,); return s."""
        neighbors = self.block.neighbors[rows]
        n, m = neighbors.shape
        s, v = self.second_solves(rows, made, bars)
        by_variance = self.pool.take(n, m + 1)
        sigma_a2 = float(self.arc.sigma_a2)

        def work(share: slice) -> tuple[np.ndarray, np.ndarray]:
            own, by_x, scratch = np.zeros_like(sums), np.zeros_like(inputs), self.scratch()
            native_rows.condition_pullback(
                share.start, share.stop, self.scales, self.noise, neighbors, rows.start, sigma_a2,
                self.coefficients, scratch, made.a, s, bars[2], made.covariances, by_variance, own,
            )  # fmt: skip
            if self.by_input:
                native_rows.inputs_pullback(
                    share.start, share.stop, self.points, neighbors, rows.start, made.covariances,
                    by_variance, scratch, by_x,
                )  # fmt: skip
            return own, by_x

        for own, by_x in in_parallel(work, n, FEW):
            sums += own
            inputs += by_x

        def spread(share: slice) -> None:
            native_rows.scatter(
                share.start, share.stop, neighbors, rows.start, made.a, s, made.features, v, features_bar
            )

        in_parallel(spread, v.shape[1], FEW)
        return s

    def add_to(
        self, total: RowBars, rows: slice, a: np.ndarray, s: np.ndarray, bars: tuple[np.ndarray, ...]
    ) -> None:
        """y_bar_i += by_y_i,  y_bar_N -= a by_y_i;  noise_bar is the diagonal of dF/dR_MM times the noise."""
        (_, by_y, by_d), neighbors = bars, self.block.neighbors[rows]
        total.y[rows] += by_y
        total.spread[rows] += by_d * self.noise[rows]
        present = neighbors >= 0
        near = neighbors[present]
        np.subtract.at(total.y, near, (a * by_y[:, None])[present])
        np.add.at(total.spread, near, (by_d[:, None] * a**2 - s * a)[present] * self.noise[near])


def _scaled(arc: ArcForm, X: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(X * np.sqrt(np.asarray(arc.sigma_u2, float)))
