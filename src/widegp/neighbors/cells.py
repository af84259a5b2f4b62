"""Cells: parts of a table whose rows lie close together, and the rows of the table around each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from widegp.data.arrays import is_mapped
from widegp.neighbors.blocks import bisect, principal_coordinates
from widegp.neighbors.search import NeighborIndex

# Steps of Lloyd's algorithm from halved rows on, and the rows that one run of it takes.
STEPS = 5
RUN_ROWS = 16_384
# Rows near the centre of a cell, in multiples of those that are kept, among which the kept ones are chosen.
CANDIDATES = 4


@dataclass
class Cells:
    """Centres c_k (C, E) of the cells, their rows members_k, and the ``count`` rows around each of them.

    A point belongs to the cell with the smallest (|x - c_k|, k): its cell depends on nothing but the point
    and the table. Above a thousand centres they are searched through an index, which may miss the nearest.
    """

    index: NeighborIndex
    centres: np.ndarray
    members: list[np.ndarray]
    count: int
    _around: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, index: NeighborIndex, cell_rows: int, count: int) -> Cells:
        """Cells of about ``cell_rows`` rows of the index's table.

        Rows are halved again and again along the direction in which they vary most, and moved to the nearest
        centre by a few steps of Lloyd's algorithm.
        """
        points = index.reference[: index.laid]
        # In a file the points would be read once for each halving.
        space = principal_coordinates(points) if is_mapped(points) else points
        centres, members = [], []
        for run in bisect(space, np.arange(len(points)), max(RUN_ROWS, cell_rows)):
            found, owner = _lloyd(points[run], bisect(space[run], np.arange(len(run)), cell_rows))
            centres.append(found)
            members += [run[owner == k] for k in range(len(found))]
        return cls(index, np.concatenate(centres), members, count)

    @cached_property
    def _search(self) -> NeighborIndex:
        return NeighborIndex(self.centres, method="approximate")

    def holding(self, points: np.ndarray) -> np.ndarray:
        """The cell of each point: (q, E) -> (q,)."""
        return self._search.query(points, 1)[:, 0]

    def around(self, cells: np.ndarray) -> list[np.ndarray]:
        """Of each of these cells the ``count`` rows with the smallest min_i |x_j - x_i| over its members i.

        New rows of a cell lie near its members, so these rows are near to one or another of them. They are
        chosen among the rows nearest to the centre.
        """
        new = np.array([k for k in cells if k not in self._around], int)
        if len(new):
            count = min(CANDIDATES * self.count, len(self.index.reference))
            for k, near in zip(new, self.index.query(self.centres[new], count), strict=True):
                self._around[int(k)] = self._closest(near, self.members[k])
        return [self._around[int(k)] for k in cells]

    def _closest(self, near: np.ndarray, members: np.ndarray) -> np.ndarray:
        if len(near) <= self.count:
            return near
        points = self.index.reference
        centre = points[members[0]]
        # Relative to one of them, squares do not lose their digits against each other.
        X, Y = (np.asarray(points[rows] - centre, np.float64) for rows in (near, members))
        squares = (X * X).sum(1)[:, None] - 2 * X @ Y.T + (Y * Y).sum(1)
        return near[np.argsort(squares.min(axis=1), kind="stable")[: self.count]]


def _lloyd(points: np.ndarray, pieces: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Centres (C, E) from the means of the pieces on, and the nearest centre of each point; none is empty."""
    owner = np.empty(len(points), np.int64)
    for k, rows in enumerate(pieces):
        owner[rows] = k
    for _ in range(STEPS):
        centres = _means(points, owner)
        owner = NeighborIndex(centres, method="exact").query(points, 1)[:, 0]
    return _means(points, owner), np.unique(owner, return_inverse=True)[1]


def _means(points: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """The mean of the points of each owner, in order, without those that own none."""
    order = np.argsort(owner, kind="stable")
    starts = np.flatnonzero(np.diff(owner[order], prepend=-1))
    sums = np.add.reduceat(points[order].astype(np.float64), starts, axis=0)
    counts = np.diff(starts, append=len(points))
    return (sums / counts[:, None]).astype(points.dtype)
