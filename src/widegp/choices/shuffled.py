"""Rows in random order, parts of which are fitted, compared and held out.

Under a likelihood that is not Gaussian, equal rows, target included, are one row of weight w. It comes
as about w rows, at most MOST_COPIES: new rows may repeat known ones, and with all copies in one part no
held-out row would be like a fitted one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

# A row comes as so many, at most, of equal weight.
MOST_COPIES = 10
# Rows of the order, at most, that a regression of them sees where some were seen more than once.
MOST_ROWS = 20_000


class Part(NamedTuple):
    """Some ``rows`` (k,) of a table, in random order, and how often each was seen there, ``weight`` (k,)."""

    rows: np.ndarray
    weight: np.ndarray

    def mean(self, values: np.ndarray) -> float:
        """Of ``values`` (k,), one for each row."""
        return float(np.average(values, weights=self.weight))


@dataclass(frozen=True, eq=False)
class ShuffledRows:
    """The rows of a table in random order, each as often as it was seen; ``weight`` (n,)."""

    weight: np.ndarray
    seed: int

    @cached_property
    def copies(self) -> np.ndarray:
        """As how many rows each row comes, (n,)."""
        return np.clip(np.ceil(self.weight), 1, MOST_COPIES).astype(int)

    @cached_property
    def order(self) -> np.ndarray:
        """The rows in random order, (N,)."""
        order = np.random.default_rng(self.seed).permutation(int(self.copies.sum()))
        return np.searchsorted(np.cumsum(self.copies), order, side="right")

    def __len__(self) -> int:
        return len(self.order)

    def part(self, which: slice) -> Part:
        """Those at these places of the order, each once."""
        rows, first, copies = np.unique(self.order[which], return_index=True, return_counts=True)
        kept = np.argsort(first)
        weight = copies * self.weight[rows] / self.copies[rows]
        return Part(rows[kept], weight[kept])

    @property
    def whole(self) -> Part:
        return Part(np.arange(len(self.weight)), self.weight)

    @property
    def written_out(self) -> np.ndarray:
        """All rows in their own order; where some were seen more than once, that often, but not too many."""
        if len(self.order) == len(self.weight):
            return np.arange(len(self.weight))
        return np.sort(self.order[:MOST_ROWS])
