"""What a fit costs before it starts: counts of work times measured rates, and the arrays alive at its peak.

Each approximation counts its own work and arrays (`widegp.approximations.base.Approximation`). `Calibration`
holds the seconds of a unit of each on one machine, which `inference.choose.calibrate` measures.
Nothing here looks at a clock or at data: the same arguments give the same prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from widegp.approximations.base import ENTRY, PAIR_ENTRY, Approximation, Shape, Work
from widegp.approximations.dense import ARRAYS
from widegp.approximations.registry import approximation
from widegp.compute.backend import BLOCK_BYTES

# Rows of the exact likelihood that chooses among the starts, and its evaluations.
START_ROWS = 500
START_EVALUATIONS = 90
# Smallest subset of the rows worth a fit of its own before the whole table.
COARSE_ROWS = 1000
# Evaluations until a stage has converged: one that knows nothing of the curvature, one that knows it from the
# stage before, and one with a variance per input. Four tables took 32 to 83, 4 to 37 and 79 to 122.
EVALUATIONS_FIRST, EVALUATIONS_NEXT, EVALUATIONS_ARD = 60, 10, 110
EVALUATIONS_PER_ITERATION = 1.17
# Searches for neighbours per stage, with one variance for all inputs and with one for each.
SEARCHES, SEARCHES_ARD = 1.2, 2.5
# Directions along which the curvature is measured, each by one gradient, and the rows it looks at in many.
CURVATURE_DIRECTIONS = 7
CURVATURE_ROWS = 50_000
# Predictions are right to within this factor: how many evaluations a table takes is what is least known.
WITHIN = 2.0

# Up to this many rows a search compares all pairs; beyond, an index saves it from more.
SCANNED_ROWS = 50_000
# Libraries and compiled code that a first fit loads, and the tables of distances, factors and covariances of
# the rows that are searched or conditioned at a time.
LOADED_BYTES, ROW_BYTES = 200 * 2**20, 100 * 2**20


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
    """Seconds to find the nearest earlier rows of all rows."""
    return rates.search * size.n_rows * min(size.n_rows, SCANNED_ROWS)


def coarse_sizes(n_rows: int) -> list[int]:
    """n / 4^k, the smallest of at least COARSE_ROWS first, up to n / 4."""
    return [n_rows // 4**k for k in range(19, 0, -1) if n_rows // 4**k >= COARSE_ROWS]


def fit_plan(
    size: Size, rates: Calibration, explores: bool = True, max_iter: int = 100, to_the_end: bool = False
) -> tuple[Stage, ...]:
    """The stages of a fit in their order: start, coarse ones, whole, posterior, curvature.

    explores : whether the fit finds its start itself, as it does unless it is given one.
    max_iter : of the optimiser, which stops before unless ``to_the_end``.
    """
    stages = []
    if explores:
        few = Size("exact", min(size.n_rows, START_ROWS), size.n_inputs, 0, 0)
        stages.append(Stage("start", few.n_rows, 0.0, evaluation_seconds(few, rates), START_EVALUATIONS))
    descents = [("whole", size)]
    if explores and size.approximation.coarse:
        # One variance serves all inputs there.
        parts = [replace(size, n_rows=rows, ard=False) for rows in coarse_sizes(size.n_rows)]
        descents = [("coarse", part) for part in parts] + descents
    evaluations = EVALUATIONS_FIRST
    for name, part in descents:
        expected = EVALUATIONS_ARD if part.ard else evaluations
        most = max_iter if to_the_end else min(expected, EVALUATIONS_PER_ITERATION * max_iter)
        stages.append(_descent(name, part, rates, most))
        evaluations = EVALUATIONS_NEXT
    return (*stages, *_afterwards(size, rates))


def _descent(name: str, size: Size, rates: Calibration, evaluations: float) -> Stage:
    """Anchors and neighbours are found, then an optimiser runs."""
    each, before = evaluation_seconds(size, rates), 0.0
    if size.shape.m:
        before += (SEARCHES_ARD if size.ard else SEARCHES) * search_seconds(size, rates)
    if len(size.approximation.metrics) > 1:
        # The likelier of two sets of anchors is kept.
        before += 2 * each
    return Stage(name, size.n_rows, before, each, evaluations)


def _afterwards(size: Size, rates: Calibration) -> tuple[Stage, Stage]:
    """One pass without gradient for the posterior; gradients along each parameter for the curvature."""
    few = size
    if size.n_rows > 2 * CURVATURE_ROWS and size.approximation.coarse:
        few = replace(size, n_rows=CURVATURE_ROWS)
    posterior, curvature = 0.4 * evaluation_seconds(size, rates), evaluation_seconds(few, rates)
    return (
        Stage("posterior", size.n_rows, posterior, 0.0, 0),
        Stage("curvature", few.n_rows, CURVATURE_DIRECTIONS * curvature, 0.0, 0),
    )


def fit_seconds(plan: tuple[Stage, ...]) -> float:
    """Seconds of all stages together."""
    return sum(stage.seconds for stage in plan)


def prediction_seconds(size: Size, predict_neighbors: int, rates: Calibration) -> float:
    """Seconds to predict one row, mean and variance, among many.

    With neighbours: a search, the features of all q neighbours, and one factor of (q + 1)^2.
    """
    n, i, r, m = size.shape
    if not size.approximation.coarse:
        rows = r or n
        return rates.dense * rows * (rows / 2 + i + ENTRY) * 3 / 5
    features = r * (r + i + ENTRY)
    if not size.approximation.neighbors:
        return rates.anchors * (features + r * r) / 6
    q = min(max(predict_neighbors, m), n)
    conditional = (q + 1) ** 2 * (r + i + (q + 1) / 6 + 0.5 * PAIR_ENTRY)
    search = 2 * rates.search * min(n, SCANNED_ROWS)
    return search + rates.anchors * (q * features + r * r) / 6 + rates.neighbors * conditional / 6


def peak_bytes(size: Size, block_rows: int) -> float:
    """Bytes that a fit holds at most, above the table that it is given and the bare interpreter.

    Code and libraries, copies of the table (scaled; with neighbours also embedded, in storage order, and kept
    for predictions), indices of neighbours, arrays of a block with its halo by rank, some r x r matrices; for
    exact fits six n x n matrices. How large a halo is hangs on the data: here it is as large as can be,
    min(n, M B) rows with the B = ``block_rows`` of the block. Some 500 rows are fitted exactly in any case.
    """
    n, i, _, m = size.shape
    block = min(n, (m + 1) * block_rows)
    tables = (4 if m else 2) * n * (i + 1) + 2 * n * m if size.approximation.coarse else 2 * n * i
    work = tables + size.approximation.numbers(size.shape, block, BLOCK_BYTES)
    start = 2 * n * i + ARRAYS * min(n, START_ROWS) ** 2
    return LOADED_BYTES + (ROW_BYTES if m else 0) + 8 * max(work, start)
