"""What a fit costs before it starts: counts of work times measured rates, and the arrays alive at its peak.

Each approximation counts its own work and arrays (`widegp.approximations.base.Approximation`), and
`widegp.inference.plan` the evaluations of a fit. `Calibration` holds the seconds of a unit of each on one
machine, which `inference.choose.calibrate` measures.
Nothing here looks at a clock or at data: the same arguments give the same prediction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from widegp.approximations.base import ENTRY, PAIR_ENTRY, Approximation, Shape, Work
from widegp.approximations.dense import ARRAYS
from widegp.approximations.layout import Dials
from widegp.approximations.registry import approximation
from widegp.compute.backend import BLOCK_BYTES
from widegp.neighbors.cells import CANDIDATES, PROPOSED, ROWS_PER_MEMBER, SHARED
from widegp.neighbors.search import EXACT_ROWS

# Rows of the exact likelihood that chooses among the starts, the smallest part of a table that is worth a fit
# of its own before the whole, and the rows that curvature looks at where there are many.
START_ROWS, COARSE_ROWS, CURVATURE_ROWS = 500, 1000, 10_000
# Evaluations that an iteration of an optimiser takes.
EVALUATIONS_PER_ITERATION = 1.17
# Predictions are right to within this factor: how many evaluations a table takes is what is least known.
WITHIN = 2.0

# Multiply-adds in a cell: RANKED to rank a candidate, CUBES m^3 to factorise and invert its m rows (m^3 / 6
# each, at a third of the speed of products). So cells of 800 rows at rank 200 take 27 ms of two cores.
RANKED, CUBES = 150, 1.0

# Libraries and compiled code that a first fit loads, and the tables of distances, factors and covariances of
# the rows that are searched or conditioned at a time.
LOADED_BYTES, ROW_BYTES = 200 * 2**20, 120 * 2**20


@dataclass(frozen=True)
class Calibration:
    """Seconds per unit of work; the defaults are about right for two cores of 2020 or later.

    fixed : an evaluation, whatever its size.
    anchors, neighbors : six multiply-adds, so that anchors take about n r^2 units.
    dense : 5/3 multiply-adds, so that an exact evaluation takes about n^3 units.
    search : a pair of rows compared.
    """

    fixed: float = 4e-3
    anchors: float = 1.8e-10
    neighbors: float = 1.8e-10
    dense: float = 5e-11
    search: float = 2e-9


@dataclass(frozen=True)
class Size:
    """What is fitted: an approximation by name, n rows, I inputs, and the dials as asked for."""

    name: str
    n_rows: int
    n_inputs: int
    rank: int
    neighbors: int
    ard: bool = False

    @classmethod
    def of(cls, dials: Dials, shape: tuple[int, ...], ard: bool = False) -> Self:
        """The fit of a table of ``shape`` (n, I) with the ``dials`` of a model."""
        n_rows, n_inputs = shape
        return cls(dials.name, n_rows, n_inputs, dials.rank, dials.neighbors, ard)

    @property
    def approximation(self) -> Approximation:
        return approximation(self.name)

    @property
    def shape(self) -> Shape:
        """The sizes as the approximation has them."""
        return self.approximation.shape(self.n_rows, self.n_inputs, self.rank, self.neighbors)

    @property
    def work(self) -> Work:
        """Of one objective with its gradient on the CPU."""
        return self.approximation.work(self.shape, BLOCK_BYTES)


@dataclass(frozen=True)
class Stage:
    """A stage of a fit: ``before`` seconds of preparation, then ``evaluations`` of ``each`` seconds."""

    name: str
    rows: int
    before: float
    each: float
    evaluations: float

    @property
    def seconds(self) -> float:
        return self.before + self.each * self.evaluations


def evaluation_seconds(size: Size, rates: Calibration) -> float:
    """Seconds of one objective with its gradient."""
    work = size.work
    return rates.fixed + sum(
        rate * units for rate, units in zip((rates.anchors, rates.neighbors, rates.dense), work, strict=True)
    )


def search_seconds(size: Size, rates: Calibration) -> float:
    """Seconds to find the nearest earlier rows of all rows; an index saves large tables most pairs."""
    return rates.search * size.n_rows * min(size.n_rows, EXACT_ROWS)


def fit_seconds(plan: tuple[Stage, ...]) -> float:
    """Seconds of all stages together."""
    return sum(stage.seconds for stage in plan)


def prediction_seconds(
    size: Size, predict_neighbors: int, rates: Calibration, together: int | None = None
) -> float:
    """Seconds to predict one row, mean and variance, among many.

    With neighbours: a search, the features of all q neighbours, and one factor of (q + 1)^2, unless rows are
    predicted ``together``, so many of them: then cells share these.
    """
    n, i, r, m = size.shape
    if not size.approximation.coarse:
        rows = r or n
        return rates.dense * rows * (rows / 2 + i + ENTRY) * 3 / 5
    features = r * (r + i + ENTRY)
    if not size.approximation.neighbors:
        return rates.anchors * (features + r * r) / 6
    if together is not None:
        return rates.neighbors * _work_in_cells(size.shape, predict_neighbors, together) / 6
    q = min(max(predict_neighbors, m), n)
    conditional = (q + 1) ** 2 * (r + i + (q + 1) / 6 + 0.5 * PAIR_ENTRY)
    search = 2 * rates.search * min(n, EXACT_ROWS)
    return search + rates.anchors * (q * features + r * r) / 6 + rates.neighbors * conditional / 6


def _work_in_cells(shape: Shape, predict_neighbors: int, together: int) -> float:
    """Multiply-adds for one of ``together`` new rows: its share of the cells that these fall into, each of
    which ranks its candidates and is factorised and inverted once, and products of its own.
    """
    n, i, r, _ = shape
    m = min(n, SHARED * predict_neighbors)
    members = max(1, m // ROWS_PER_MEMBER)
    cells = n / members
    used = -cells * math.expm1(-together / cells)
    ranked = CANDIDATES * m * members * (i + RANKED)
    cell = ranked + m * m * (i + ENTRY + 1.5 * r) + CUBES * m**3
    own = m * (i + ENTRY + m / 2 + 2 * r) + r * (i + ENTRY + 1.5 * r) + PROPOSED * members * i
    return cell * used / together + own


def peak_bytes(size: Size, block_rows: int) -> float:
    """Bytes that a fit holds at most, above the table that it is given and the bare interpreter.

    Code and libraries, copies of the table (scaled; with neighbours also embedded, in storage order, and kept
    for predictions), indices of neighbours, arrays of a block with its halo by rank, some r x r matrices; for
    exact fits six n x n matrices. How large a halo is hangs on the data: block and halo are here at most
    B + n / 2 and M B rows, with the B = ``block_rows`` of the block. Of 100,000 normal rows with 20 inputs
    blocks of 10,000 to 50,000 rows had halos of 40,000 to 51,000. Some 500 rows are fitted exactly anyway.
    """
    n, i, _, m = size.shape
    block = min(n, (m + 1) * block_rows, block_rows + n // 2)
    tables = (4 if m else 2) * n * (i + 1) + 2 * n * m if size.approximation.coarse else 2 * n * i
    work = tables + size.approximation.numbers(size.shape, block, BLOCK_BYTES)
    start = 2 * n * i + ARRAYS * min(n, START_ROWS) ** 2
    return LOADED_BYTES + (ROW_BYTES if m else 0) + 8 * max(work, start)
