"""A table cut into self-contained blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from widegp.compute.backend import Block
from widegp.data.arrays import empty_beside
from widegp.neighbors.blocks import halo_of, localise

NO_ROWS = "There are no rows to sum over; pass a table with at least one row."
# A block is not halved for the sake of its halo below so many rows: few rows condition on as many.
LEAST_RUN = 1024


class Cut(NamedTuple):
    """Rows (B,) of one block, the halo (H,) they condition on, their neighbours (B, m) within both."""

    rows: np.ndarray
    halo: np.ndarray
    neighbors: np.ndarray


@dataclass(frozen=True)
class BlockedRows:
    """Rows X (n, I), y (n,), spread (n,) or None for 1, neighbours (n, m), in runs of at most ``block_rows``.

    Without neighbours a block is a slice. With them it is a run of rows and the halo of earlier rows that
    they condition on, which stays small where rows near each other are stored near each other. ``pad``
    makes every block the same shape, so that a compiler sees one: ``block_rows``, and a halo of a few sizes.
    Without it a block is halved until it has at most ``most`` rows, its halo included.
    """

    X: np.ndarray
    y: np.ndarray
    spread: np.ndarray | None
    neighbors: np.ndarray
    block_rows: int
    pad: bool = False
    cuts: tuple[Cut, ...] | None = None
    most: int | None = None

    @classmethod
    def cut(
        cls, X: np.ndarray, y: np.ndarray, neighbors: np.ndarray, block_rows: int, pad: bool = False,
        most: int | None = None,
    ) -> BlockedRows:  # fmt: skip
        n, m = neighbors.shape
        uncut = cls(X, y, None, neighbors, block_rows, pad, most=most)
        if m == 0 or block_rows >= n:
            return uncut
        local = empty_beside(neighbors, (n, m), np.int32)
        cuts = []
        for rows, halo in uncut.runs(np.arange(n), block_rows):
            place = slice(rows[0], rows[-1] + 1)
            local[place] = localise(neighbors, rows, halo)
            cuts.append(Cut(rows, halo, local[place]))
        return replace(uncut, cuts=tuple(cuts))

    @property
    def n_rows(self) -> int:
        return len(self.X)

    def restricted(self, rows: np.ndarray, block_rows: int | None = None) -> BlockedRows:
        """Only these rows, and whatever they condition on; one block unless padded, or of ``block_rows``."""
        size = block_rows or (self.block_rows if self.pad else max(len(rows), 1))
        parts = self.runs(rows, size)
        return replace(self, cuts=tuple(Cut(*part, localise(self.neighbors, *part)) for part in parts))

    def runs(self, rows: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """``rows`` in runs of ``size``, each halved until it has at most ``most`` rows with its halo: these
        rows and the halo.
        """
        for start in range(0, len(rows), size):
            run = rows[start : start + size]
            halo = halo_of(self.neighbors, run)
            if self.most is None or len(run) + len(halo) <= self.most or len(run) <= LEAST_RUN:
                yield run, halo
            else:
                yield from self.runs(run, -(-len(run) // 2))

    def with_target(self, y: np.ndarray, spread: np.ndarray | None = None) -> BlockedRows:
        """The same rows with another target; its noise is in these proportions, equal by default."""
        return replace(self, y=y, spread=spread)

    def same_target(self, other: BlockedRows) -> bool:
        """Whether y and spread are equal, so that they need not be sent again."""
        if self.spread is None or other.spread is None:
            return self.spread is other.spread and np.array_equal(self.y, other.y)
        return np.array_equal(self.y, other.y) and np.array_equal(self.spread, other.spread)

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
        y, spread = self.target(k)
        if not self.pad:
            return Block(self._gather(k, self.X), y, spread, neighbors, np.ones(n_own))
        padded = np.full((own, neighbors.shape[1]), -1, np.int32)
        padded[:n_own] = np.where(neighbors >= n_own, neighbors + (own - n_own), neighbors)
        return Block(self._gather(k, self.X), y, spread, padded, (np.arange(own) < n_own) * 1.0)

    def target(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """y and spread of the k-th block, which alone change with the target."""
        y = self._gather(k, self.y)
        return y, np.ones(len(y)) if self.spread is None else self._gather(k, self.spread, blank=1.0)

    def added(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Numbers per row of each block, halo included (`Block`), added up by row of the table: (n,)."""
        total = np.zeros(len(self.X))
        for k, part in enumerate(parts):
            own, halo = (self._slice(k), ()) if self.cuts is None else self.cuts[k][:2]
            n_own = own.stop - own.start if isinstance(own, slice) else len(own)
            total[own] += np.asarray(part)[:n_own]
            if len(halo):
                first = self._shape[0] if self.pad else n_own
                np.add.at(total, halo, np.asarray(part)[first : first + len(halo)])
        return total

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

    def _gather(self, k: int, values: np.ndarray, blank: float = 0.0) -> np.ndarray:
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
        out = np.full((total, *values.shape[1:]), blank, values.dtype)
        out[: len(rows)], out[own : own + len(halo)] = rows, halo
        return out


def add_trees(left: Any, right: Any) -> Any:
    """Sum of two results of a block function: numbers, arrays, kernels, tuples of them."""
    if isinstance(left, tuple):
        parts = [add_trees(a, b) for a, b in zip(left, right, strict=True)]
        return type(left)(*parts) if hasattr(left, "_fields") else tuple(parts)
    if hasattr(left, "parameters"):
        import jax

        return jax.tree_util.tree_map(lambda a, b: a + b, left, right)
    return left + right
