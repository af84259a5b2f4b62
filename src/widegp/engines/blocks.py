"""A table cut into self-contained blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from widegp.compute.backend import Block
from widegp.data.arrays import empty_beside
from widegp.neighbors.blocks import halo_of, localise

NO_ROWS = "There are no rows to sum over; pass a table with at least one row."


class Cut(NamedTuple):
    """Rows (B,) of one block, the halo (H,) they condition on, their neighbours (B, m) within both."""

    rows: np.ndarray
    halo: np.ndarray
    neighbors: np.ndarray


@dataclass(frozen=True)
class BlockedRows:
    """Rows X (n, I), y (n,), dy (n, k), neighbours (n, m), cut into runs of at most ``block_rows``.

    Without neighbours a block is a slice. With them it is a run of rows and the halo of earlier rows that
    they condition on, which stays small where rows near each other are stored near each other. ``pad``
    makes every block the same shape, so that a compiler sees one: ``block_rows``, and a halo of a few sizes.
    """

    X: np.ndarray
    y: np.ndarray
    dy: np.ndarray
    neighbors: np.ndarray
    block_rows: int
    pad: bool = False
    cuts: tuple[Cut, ...] | None = None

    @classmethod
    def cut(
        cls, X: np.ndarray, y: np.ndarray, neighbors: np.ndarray, block_rows: int, pad: bool = False
    ) -> BlockedRows:
        n, m = neighbors.shape
        cuts = None
        if m > 0 and block_rows < n:
            local = empty_beside(neighbors, (n, m), np.int32)
            runs = [np.arange(start, min(start + block_rows, n)) for start in range(0, n, block_rows)]
            cuts = tuple(_cut(neighbors, rows, local) for rows in runs)
        return cls(X, y, np.zeros((n, 0)), neighbors, block_rows, pad, cuts)

    @property
    def n_rows(self) -> int:
        return len(self.X)

    def restricted(self, rows: np.ndarray) -> BlockedRows:
        """Only these rows, and whatever they condition on."""
        size = self.block_rows if self.pad else max(len(rows), 1)
        cuts = []
        for start in range(0, len(rows), size):
            run = rows[start : start + size]
            halo = halo_of(self.neighbors, run)
            cuts.append(Cut(run, halo, localise(self.neighbors, run, halo)))
        return replace(self, cuts=tuple(cuts))

    def with_target(self, y: np.ndarray, dy: np.ndarray | None = None) -> BlockedRows:
        """The same rows with another target."""
        return replace(self, y=y, dy=np.zeros((len(y), 0)) if dy is None else dy)

    def __len__(self) -> int:
        if self.cuts is not None:
            return len(self.cuts)
        return max(1, -(-len(self.X) // self.block_rows))

    def __iter__(self) -> Iterator[Block]:
        return (self.block(k) for k in range(len(self)) if len(self.X))

    def block(self, k: int) -> Block:
        """The k-th block."""
        neighbors = self.neighbors[self._slice(k)] if self.cuts is None else self.cuts[k].neighbors
        n_own, (own, _) = len(neighbors), self._shape
        y, dy = self.target(k)
        if not self.pad:
            return Block(self._gather(k, self.X), y, neighbors, np.ones(n_own), dy)
        padded = np.full((own, neighbors.shape[1]), -1, np.int32)
        padded[:n_own] = np.where(neighbors >= n_own, neighbors + (own - n_own), neighbors)
        return Block(self._gather(k, self.X), y, padded, (np.arange(own) < n_own) * 1.0, dy)

    def target(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """y and dy of the k-th block, which alone change with the target."""
        return self._gather(k, self.y), self._gather(k, self.dy)

    def _slice(self, k: int) -> slice:
        return slice(k * self.block_rows, min((k + 1) * self.block_rows, len(self.X)))

    @cached_property
    def _shape(self) -> tuple[int, int]:
        """Own rows of a padded block, and rows with halo."""
        if self.cuts is None:
            return self.block_rows, self.block_rows
        halo = max(len(cut.halo) for cut in self.cuts)
        # A power of two: parts of a table then share the programs of the whole.
        return self.block_rows, self.block_rows + (1 << (halo - 1).bit_length() if halo else 0)

    def _gather(self, k: int, values: np.ndarray) -> np.ndarray:
        """values (n, ...) of the block's rows, then of its halo; padded, blank rows follow each of them."""
        if self.cuts is None:
            rows, halo = values[self._slice(k)], values[:0]
        elif not self.pad:
            return values[np.concatenate(self.cuts[k][:2])]
        else:
            rows, halo = values[self.cuts[k].rows], values[self.cuts[k].halo]
        own, total = self._shape
        if not self.pad or len(rows) == total:
            return rows
        out = np.zeros((total, *values.shape[1:]), values.dtype)
        out[: len(rows)], out[own : own + len(halo)] = rows, halo
        return out


def _cut(neighbors: np.ndarray, rows: np.ndarray, local: np.ndarray) -> Cut:
    halo = halo_of(neighbors, rows)
    local[rows[0] : rows[-1] + 1] = localise(neighbors, rows, halo)
    return Cut(rows, halo, local[rows[0] : rows[-1] + 1])


def add_trees(left: Any, right: Any) -> Any:
    """Sum of two results of a block function: numbers, arrays, kernels, tuples of them."""
    if isinstance(left, tuple):
        parts = [add_trees(a, b) for a, b in zip(left, right, strict=True)]
        return type(left)(*parts) if hasattr(left, "_fields") else tuple(parts)
    if hasattr(left, "parameters"):
        import jax

        return jax.tree_util.tree_map(lambda a, b: a + b, left, right)
    return left + right
