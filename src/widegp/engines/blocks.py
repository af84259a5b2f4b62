"""A table cut into self-contained blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from widegp.compute.backend import Block
from widegp.neighbors.blocks import localise, locality_blocks


@dataclass(frozen=True)
class BlockedRows:
    """Rows X (n, I), y (n,), dy (n, k), neighbours (n, m), cut into blocks of at most ``block_rows``.

    Without neighbours a block is a slice. With them it is a set of rows close to each other and the
    halo of earlier rows that they condition on. ``pad`` makes every block the same shape, so that a
    compiler sees one.
    """

    X: np.ndarray
    y: np.ndarray
    dy: np.ndarray
    neighbors: np.ndarray
    block_rows: int
    pad: bool = False
    cuts: tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...] | None = None

    @classmethod
    def cut(
        cls, X: np.ndarray, y: np.ndarray, neighbors: np.ndarray, block_rows: int, pad: bool = False
    ) -> BlockedRows:
        n, m = neighbors.shape
        cuts = None
        if m > 0 and block_rows < n:
            cuts = tuple(
                (rows, halo, localise(neighbors, rows, halo))
                for rows, halo in locality_blocks(neighbors, X, block_rows)
            )
        return cls(X, y, np.zeros((n, 0)), neighbors, block_rows, pad, cuts)

    def restricted(self, rows: np.ndarray) -> BlockedRows:
        """One block with only these rows, and whatever they condition on."""
        halo = np.setdiff1d(self.neighbors[rows], np.append(rows, -1))
        return replace(self, cuts=((rows, halo, localise(self.neighbors, rows, halo)),))

    def with_target(self, y: np.ndarray, dy: np.ndarray | None = None) -> BlockedRows:
        """The same rows with another target."""
        return replace(self, y=y, dy=np.zeros((len(y), 0)) if dy is None else dy)

    def __len__(self) -> int:
        if self.cuts is not None:
            return len(self.cuts)
        return max(1, -(-len(self.X) // self.block_rows))

    def __iter__(self) -> Iterator[Block]:
        if self.cuts is None:
            yield from self._slices()
            return
        own = max(len(rows) for rows, _, _ in self.cuts)
        total = own + max(len(halo) for _, halo, _ in self.cuts)
        for rows, halo, local in self.cuts:
            everyone = np.concatenate([rows, halo])
            block = Block(self.X[everyone], self.y[everyone], local, np.ones(len(rows)), self.dy[everyone])
            yield padded(block, own, total) if self.pad else block

    def _slices(self) -> Iterator[Block]:
        for start in range(0, len(self.X), self.block_rows):
            rows = slice(start, start + self.block_rows)
            block = Block(
                self.X[rows], self.y[rows], self.neighbors[rows], np.ones(len(self.X[rows])), self.dy[rows]
            )
            size = min(self.block_rows, len(self.X))
            yield padded(block, size, size) if self.pad else block


def padded(block: Block, own: int, total: int) -> Block:
    """Blank rows between the block's own and its halo, and after: weight 0, no neighbours."""
    n_own, n_halo = block.n_own, len(block.X) - block.n_own
    shift = own - n_own
    local = block.neighbors
    moved = np.where(local >= n_own, local + shift, local)

    def spread(values: np.ndarray) -> np.ndarray:
        out = np.zeros((total, *values.shape[1:]), values.dtype)
        out[:n_own] = values[:n_own]
        out[own : own + n_halo] = values[n_own:]
        return out

    neighbors = np.full((own, local.shape[1]), -1, local.dtype)
    neighbors[:n_own] = moved
    weight = np.zeros(own)
    weight[:n_own] = block.weight
    return Block(spread(block.X), spread(block.y), neighbors, weight, spread(block.dy))


def add_trees(left: Any, right: Any) -> Any:
    """Sum of two results of a block function: numbers, arrays, kernels, tuples of them."""
    if isinstance(left, tuple):
        parts = [add_trees(a, b) for a, b in zip(left, right, strict=True)]
        return type(left)(*parts) if hasattr(left, "_fields") else tuple(parts)
    if hasattr(left, "parameters"):
        import jax

        return jax.tree_util.tree_map(lambda a, b: a + b, left, right)
    return left + right
