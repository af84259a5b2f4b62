"""The stages of a fit and the evaluations of each: what `widegp.cost` turns into seconds.

Evaluations are counted from the numbers of the code that makes them where it fixes them; those until an
optimiser has converged are what some tables took.
"""

from __future__ import annotations

from dataclasses import replace

from widegp.cost import (
    COARSE_ROWS,
    CURVATURE_ROWS,
    EVALUATIONS_PER_ITERATION,
    START_ROWS,
    Calibration,
    Size,
    Stage,
    evaluation_seconds,
    search_seconds,
)
from widegp.inference.starts import DESCENTS, LONG, ROUGH, ROUGHNESS, SHORT

# Evaluations until a stage has converged: one that knows nothing of the curvature, one that knows it from the
# stage before, and one with a variance per input. Four tables took 32 to 83, 4 to 37 and 79 to 122.
EVALUATIONS_FIRST, EVALUATIONS_NEXT, EVALUATIONS_ARD = 60, 10, 110
# The same where many rows follow on a part: of 25,000 to 100,000 rows three to five evaluations were enough.
MANY_ROWS, EVALUATIONS_MANY = 20_000, 5
# Short descents of a start that go on.
CONTINUED = 2
# What an eigendecomposition costs, in evaluations.
PROFILE = 1.6
# Points of the design of K_mix: two places, and two shares of the smooth part except where it is rough.
DESIGN = 1 + 2 * sum(1 if rough >= ROUGH else 2 for rough in ROUGHNESS)
START_EVALUATIONS = EVALUATIONS_PER_ITERATION * (DESCENTS * SHORT + CONTINUED * LONG) + PROFILE * DESIGN
# From so many rows on, the metric of anchors that a part chooses is kept for all larger parts.
SURE_ROWS = 10_000
# What a Hessian by differences may cost after a part, in evaluations of the whole table.
DIFFERENCES = 0.5
# Searches for neighbours per stage, with one variance for all inputs and with one for each.
SEARCHES, SEARCHES_ARD = 1.2, 2.5
# Directions along which the curvature is measured, each by one gradient.
CURVATURE_DIRECTIONS = 7
# The batch that goes ahead of a large table with neighbours has at least so many rows, and so many for each
# anchor.
AHEAD_ROWS, AHEAD_ROWS_PER_ANCHOR = 30_000, 100
# It goes ahead if the table has at least so many times its rows.
AHEAD_WORTHWHILE = 4
# Evaluations of the whole table after a batch.
EVALUATIONS_AFTER_BATCH = 4
# Searches for neighbours after a batch: most often they have moved by then.
SEARCHES_AFTER_BATCH = 0.8
# An evaluation of a batch over one of a table of its size: its rows hardly share neighbours, and the features
# of all neighbours are made.
SCATTERED = 2.0


def ahead_rows(n_rows: int, neighbors: int, rank: int) -> int:
    """Rows of the batch whose optimum is found before the whole table is evaluated; 0 where none is.

    Without neighbours a part of a table is a batch of it, and goes ahead anyway.
    """
    batch = max(AHEAD_ROWS, AHEAD_ROWS_PER_ANCHOR * rank)
    return batch if neighbors and n_rows >= AHEAD_WORTHWHILE * batch else 0


def parts_below(n_rows: int, neighbors: int, rank: int) -> int:
    """The most rows of a part that is fitted by itself: where a batch follows, enough for the largest of the
    quarters to choose the metric of the anchors."""
    return 4 * SURE_ROWS if ahead_rows(n_rows, neighbors, rank) else n_rows


def coarse_sizes(n_rows: int) -> list[int]:
    """n / 4^k, the smallest of at least COARSE_ROWS first, up to n / 4."""
    return [n_rows // 4**k for k in range(19, 0, -1) if n_rows // 4**k >= COARSE_ROWS]


def fit_plan(
    size: Size, rates: Calibration, explores: bool = True, max_iter: int = 100, to_the_end: bool = False,
    parts: bool | None = None,
) -> tuple[Stage, ...]:  # fmt: skip
    """The stages of a fit in their order: start, coarse ones, whole, posterior, curvature.

    explores : whether the fit finds its start itself, as it does unless it is given one.
    max_iter : of the optimiser, which stops before unless ``to_the_end``.
    parts : whether there are coarse stages; by default where the fit finds its start.
    """
    stages = []
    if explores:
        few = Size("exact", min(size.n_rows, START_ROWS), size.n_inputs, 0, 0)
        stages.append(Stage("start", few.n_rows, 0.0, evaluation_seconds(few, rates), START_EVALUATIONS))
    descents = [("whole", size)]
    if (explores if parts is None else parts) and size.approximation.coarse:
        # One variance serves all inputs there.
        largest = parts_below(size.n_rows, size.shape.m, size.shape.r)
        sizes = [rows for rows in coarse_sizes(size.n_rows) if rows <= largest]
        smaller = [replace(size, n_rows=rows, ard=False) for rows in sizes]
        descents = [("coarse", part) for part in smaller] + descents
    chosen = False
    for k, (name, part) in enumerate(descents):
        later = EVALUATIONS_MANY if part.n_rows >= MANY_ROWS else EVALUATIONS_NEXT
        expected = EVALUATIONS_ARD if part.ard else later if k else EVALUATIONS_FIRST
        most = max_iter if to_the_end else min(expected, EVALUATIONS_PER_ITERATION * max_iter)
        if name == "coarse" and part.n_rows * CURVATURE_DIRECTIONS <= DIFFERENCES * size.n_rows:
            most += CURVATURE_DIRECTIONS
        ahead = ahead_rows(part.n_rows, part.shape.m, part.shape.r) if name == "whole" else 0
        if ahead and not to_the_end:
            stages += _with_batch(part, rates, ahead, _descent(name, part, rates, most, chosen))
            break
        stages.append(_descent(name, part, rates, most, chosen))
        chosen = part.n_rows >= SURE_ROWS
    return (*stages, *_afterwards(size, rates))


def _descent(name: str, size: Size, rates: Calibration, evaluations: float, chosen: bool) -> Stage:
    """Anchors and neighbours are found, then an optimiser runs; the metric of anchors may be ``chosen``."""
    each, before = evaluation_seconds(size, rates), 0.0
    if size.shape.m:
        before += (SEARCHES_ARD if size.ard else SEARCHES) * search_seconds(size, rates)
    if len(size.approximation.metrics) > 1 and not chosen:
        # The likelier of two sets of anchors is kept, and with it its evaluation.
        before += each
    return Stage(name, size.n_rows, before, each, evaluations)


def _with_batch(size: Size, rates: Calibration, rows: int, alone: Stage) -> tuple[Stage, Stage]:
    """A batch of so many ``rows``, and what the table takes after it instead of ``alone``."""
    batch = SCATTERED * evaluation_seconds(replace(size, n_rows=rows), rates)
    before = SEARCHES_AFTER_BATCH * search_seconds(size, rates) + (1 + CURVATURE_DIRECTIONS) * batch / 2
    few = min(alone.evaluations, EVALUATIONS_AFTER_BATCH)
    return (
        Stage("batch", rows, alone.before, batch, alone.evaluations),
        Stage("whole", size.n_rows, before, alone.each, few),
    )


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
