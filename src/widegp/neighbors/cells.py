"""Cells: parts of a table whose rows lie close together, and the rows of the table around each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from widegp.data.arrays import is_mapped
from widegp.neighbors.blocks import bisect, principal_coordinates
from widegp.neighbors.scan import as_points
from widegp.neighbors.search import NeighborIndex
from widegp.threads import in_threads

# Rows that a cell conditions on, for each of the ``count`` that a row of its own set has, and for each row of
# the cell. Chosen on held-out training rows of four tables: so much larger a set makes up for sharing it.
SHARED = 2
ROWS_PER_MEMBER = 5
# Steps of Lloyd's algorithm from halved rows on, and the rows that one run of it takes.
STEPS = 5
RUN_ROWS = 16_384
# Rows of the cells nearest to a cell, in multiples of those that are kept, among which these are chosen.
CANDIDATES = 4
# Cells with the nearest centres, in which the row nearest to a point is looked for.
PROPOSED = 4
# Bytes of the rows of all cells in single precision, up to which they are kept between searches.
KEPT_BYTES = 32 * 2**20


class CellTable(NamedTuple):
    """Cells as arrays of fixed shapes, relative to m, the middle (E,) of the centres: c - m (C, E), and of
    the rows p of each cell p - m (C, M, E) and |p - m|^2 / 2 (C, M), infinite where a cell has fewer rows.
    """

    middle: np.ndarray
    centres: np.ndarray
    members: np.ndarray
    halves: np.ndarray


@dataclass
class Cells:
    """Centres c_k (C, E) of the cells, their rows members_k, and the ``count`` rows around each of them.

    points : (n, E), the table.    first : the cells before rows came that they were not fitted to, if any.

    A point belongs to the cell of the row nearest to it, whose own neighbours are around that cell; rows are
    looked for in the PROPOSED cells whose centres are nearest. So its cell depends on nothing but the point
    and the table.
    """

    points: np.ndarray
    centres: np.ndarray
    members: list[np.ndarray]
    count: int
    first: Cells | None = field(default=None, repr=False)
    _around: dict[int, np.ndarray] = field(default_factory=dict, repr=False)
    _kept: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, points: np.ndarray, cell_rows: int, count: int, laid: int | None = None) -> Cells:
        """Cells of about ``cell_rows`` of the points (n, E), or of the first ``laid`` of them.

        Rows are halved again and again along the direction in which they vary most, and moved to the nearest
        centre by a few steps of Lloyd's algorithm.
        """
        everything = as_points(points)
        points = everything[:laid]
        # In a file the points would be read once for each halving.
        space = principal_coordinates(points) if is_mapped(points) else points
        centres, members = [], []
        for run in bisect(space, np.arange(len(points)), max(RUN_ROWS, cell_rows)):
            found, owner = _lloyd(points[run], bisect(space[run], np.arange(len(run)), cell_rows))
            centres.append(found)
            members += [run[owner == k] for k in range(len(found))]
        cells = cls(points, np.concatenate(centres), members, count)
        return cells if len(points) == len(everything) else cells.with_later(everything)

    def with_later(self, points: np.ndarray) -> Cells:
        """The same with rows that have come since, the last of ``points`` (n, E), each in the cell that holds
        it. Cells stay where the first rows put them, so that it does not matter in how many steps rows came.
        """
        first = self.first or self
        points, laid = as_points(points), len(first.points)
        owner = first.holding(points[laid:])
        members = [
            np.concatenate([rows, laid + np.flatnonzero(owner == k)]) for k, rows in enumerate(first.members)
        ]
        return Cells(points, first.centres, members, self.count, first)

    @cached_property
    def _sizes(self) -> np.ndarray:
        return np.array([len(rows) for rows in self.members])

    @cached_property
    def _centred(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The middle m of the centres, c - m and |c - m|^2 / 2, in single precision."""
        middle = self.centres.mean(axis=0)
        return middle, *_halved(self.centres - middle)

    def holding(self, points: np.ndarray) -> np.ndarray:
        """The cell of each point: (q, E) -> (q,).

        |x - c|^2 / 2 - |x|^2 / 2 = |c|^2 / 2 - x.c by products of matrices in single precision proposes a few
        cells and the nearest row of each, and of these rows the distances themselves choose.
        """
        middle, apart, squares = self._centred
        moved = (points - middle).astype(np.float32)
        count = min(PROPOSED, len(self.centres))
        cells = _smallest(squares - moved @ apart.T, count)
        nearest = np.empty(cells.shape, np.int64)
        # Small integers are put in order by their digits, in a fifth of the time.
        order = np.argsort(
            cells.astype(np.uint16 if len(self.centres) <= 2**16 else np.int64), None, "stable"
        )
        used, starts = np.unique(cells.ravel()[order], return_index=True)
        for cell, places in zip(used, np.split(order, starts)[1:], strict=True):
            members, halves = self._members_of(int(cell))
            scores = halves - moved[places // count] @ members.T
            nearest.ravel()[places] = self.members[cell][scores.argmin(axis=1)]
        exact = np.empty(cells.shape)
        for own, rows in zip(exact.T, nearest.T, strict=True):
            apart = points - self.points[rows]
            own[:] = np.einsum("qe,qe->q", apart, apart)
        return np.where(exact == exact.min(axis=1, keepdims=True), cells, len(self.centres)).min(axis=1)

    def _members_of(self, cell: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows p of a cell as p - m (M, E) and |p - m|^2 / 2 (M,), in single precision."""
        found = self._kept.get(cell)
        if found is None:
            found = _halved(self.points[self.members[cell]] - self._centred[0])
            if 4 * self.points.size <= KEPT_BYTES:
                self._kept[cell] = found
        return found

    @property
    def table_bytes(self) -> int:
        """Of `table`, which one cell with many rows makes large."""
        return 8 * len(self.centres) * (int(self._sizes.max()) + 1) * (self.points.shape[1] + 1)

    def table(self) -> CellTable:
        """For those who compute in fixed shapes: to find what `holding` finds."""
        middle = self._centred[0].astype(np.float64)
        members = np.zeros((len(self.centres), int(self._sizes.max()), len(middle)))
        halves = np.full(members.shape[:2], np.inf)
        for k, rows in enumerate(self.members):
            members[k, : len(rows)] = self.points[rows] - middle
            halves[k, : len(rows)] = np.square(members[k, : len(rows)]).sum(1) / 2
        return CellTable(middle, self.centres - middle, members, halves)

    def around(self, cells: np.ndarray) -> list[np.ndarray]:
        """Of each of these cells the ``count`` rows with the smallest min_i rank_i(j) over its members i.

        rank_i(j) is the place of row j when rows are put in order by their distance from row i. So every
        member has its own nearest rows in the set, also where the table is thin and they are far; by distance
        alone the members in dense parts would take it all. New rows of a cell lie near its members.
        """
        new = [int(k) for k in cells if k not in self._around]
        self._around |= dict(zip(new, in_threads(self._set_of, new), strict=True))
        return [self._around[int(k)] for k in cells]

    def _set_of(self, cell: int) -> np.ndarray:
        near = self._beside(cell)
        if len(near) <= self.count:
            return near
        centre = self.points[self.members[cell][0]]
        # Relative to one of them, squares do not lose their digits against each other.
        X, Y = (np.asarray(self.points[rows] - centre, np.float64) for rows in (self.members[cell], near))
        squares = -2 * X @ Y.T
        squares += (X * X).sum(1)[:, None]
        squares += (Y * Y).sum(1)
        return near[_first_by_rank(np.maximum(squares, 0.0, out=squares), self.count)]

    def _beside(self, cell: int) -> np.ndarray:
        """The rows of the cells nearest to this one, itself first, as many cells as hold the candidates."""
        apart = np.square(self.centres - self.centres[cell], dtype=np.float64).sum(1)
        order = np.argsort(apart, kind="stable")
        enough = int(np.searchsorted(np.cumsum(self._sizes[order]), CANDIDATES * self.count)) + 1
        return np.concatenate([self.members[k] for k in order[:enough]])


def _smallest(values: np.ndarray, count: int) -> np.ndarray:
    """The columns of the ``count`` smallest values of each row, smallest first: (q, c) -> (q, count).

    For few columns, one after the other takes a fifth of the time of a partition. ``values`` is lost.
    """
    out, rows = np.empty((len(values), count), np.int64), np.arange(len(values))
    for k in range(count):
        out[:, k] = values.argmin(axis=1)
        values[rows, out[:, k]] = np.inf
    return out


def _halved(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points p (k, E) and |p|^2 / 2 (k,), in single precision."""
    single = points.astype(np.float32)
    return single, (single * single).sum(1) / 2


def _first_by_rank(squares: np.ndarray, count: int) -> np.ndarray:
    """The ``count`` columns of ``squares`` (b, c) that rank first in one or another row, ties by row.

    Floats that are not negative are in the order of their bits, whose last ones make way for the index: so
    keys differ, and a plain sort, which takes a fifth of the time of a stable one with indices, has one
    answer. Few ranks are deep enough, for rows differ in their nearest columns. ``squares`` is lost.
    """
    width = squares.shape[1]
    mask = (1 << width.bit_length()) - 1
    keys = squares.view(np.int64)
    keys &= ~mask
    keys |= np.arange(width)
    depth = max(1, count // 16)
    while True:
        depth = min(2 * depth, count)
        keys.partition(depth - 1, axis=1)
        nearest = np.sort(keys[:, :depth], axis=1) & mask
        # By rank and, within a rank, by row; the first place of a column is written last.
        columns = nearest.T.ravel()
        first = np.full(width, len(columns))
        first[columns[::-1]] = np.arange(len(columns))[::-1]
        if depth == count or np.count_nonzero(first < len(columns)) >= count:
            return np.argsort(first, kind="stable")[:count]


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
    sums = np.add.reduceat(points[order], starts, axis=0, dtype=np.float64)
    counts = np.diff(starts, append=len(points))
    return (sums / counts[:, None]).astype(points.dtype)
