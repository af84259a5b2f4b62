"""The MAP fit: a start from few rows, then ever larger parts of the table, then the whole."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.dense import Dense
from widegp.cost import START_ROWS, Calibration, Size, evaluation_seconds, search_seconds
from widegp.inference.objective import MapObjective, Problem
from widegp.inference.optimizers import curvature_at, differences
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.plan import DIFFERENCES, SURE_ROWS, coarse_sizes, fit_plan, parts_below
from widegp.inference.result import Reason
from widegp.inference.rounds import Fitted, Table, has_ard
from widegp.inference.run import Run
from widegp.inference.starts import isotropic, one_per_input, optima, spread

# The optimum of a part is about p / 2 of its nats from that of the whole: its steps must gain so many nats.
PART_GAIN = 0.3


def fit_map(
    builder: Builder,
    problem: Problem,
    start: Values,
    run: Run,
    curvature: np.ndarray | None = None,
    metric: str | None = None,
) -> Fitted:
    """Minimise eq. (map_loss_body) from ``start``. A similar fit may give the ``curvature``, the Hessian per
    row of the loss there, and the ``metric`` of its anchors.

    Those who watch the run are told of each descent as it begins, with iteration 0, and of each iteration.
    The posterior, which the caller makes next, begins where this ends.
    """
    clock, settings, watch = time.perf_counter(), run.settings, run.watch
    psi_bounds = problem.psi_bounds if "psi" in start else ()
    space = ParameterSpace.of(problem.kernel, start, psi_bounds, log=settings.name == "lbfgs")
    size, adam_steps = _size(builder, space, start), settings.name == "adam"
    explores = settings.explore and not adam_steps
    watch.expect(fit_plan(size, Calibration(), explores, settings.max_iter, adam_steps))
    if settings.seconds is not None:
        run = replace(run, deadline=clock + settings.seconds)
    seconds: dict[str, float] = {}
    starts, rivals = [start], [start]
    if explores:
        watch.begin("start", start)
        rivals = [found.values for found in optima(run, builder, problem, start, space)]
        if not builder.approximation.neighbors and builder.approximation.coarse:
            # With few anchors the likelihood may prefer another optimum, so the given start is tried too.
            rivals.append(start)
        starts.append(rivals[0])
        seconds["start"] = time.perf_counter() - clock
    if explores or settings.parts:
        coarse = _coarse(run, builder, problem, rivals, space, seconds)
        curvature, metric = coarse.curvature, coarse.metric
        starts += coarse.values
        rivals = coarse.values[-1:] or rivals
    if explores and has_ard(space, start) and not builder.approximation.coarse and not run.late():
        X = np.asarray(builder.X)
        other = one_per_input(problem.on(Dense(X, builder.backend), space), rivals[0], X, builder.backend)
        rivals = rivals if other is None else [*rivals, other]
    watch.begin("whole", starts.pop())
    whole = Table(run, builder, problem, space)
    fitted = whole.best_of(rivals, curvature, metric)
    while fitted.optimum.reason is Reason.FAILED and starts:
        # If the fit fails from this start, try the start found on fewer rows.
        watch.again(starts[-1])
        fitted = whole.rounds(starts.pop())
    watch.begin("posterior", fitted.values)
    return replace(fitted, seconds={**seconds, **fitted.seconds})


class Coarse(NamedTuple):
    """Estimates from ever larger parts of a table, how the loss of the last curves, per row, and the metric
    of its anchors where that part is large enough to choose it.
    """

    values: list[Values]
    curvature: np.ndarray | None
    metric: str | None


def _coarse(
    run: Run, builder: Builder, problem: Problem, rivals: list[Values], space: ParameterSpace,
    seconds: dict[str, float],
) -> Coarse:  # fmt: skip
    """What parts of the table tell of the whole.

    The first part decides between ``rivals``, the optima of fewer rows.

    One variance serves all inputs here, under ARD too: few rows say little about many variances, and a start
    far out in one of them costs more than it saves.
    """
    found: list[Values] = []
    metric = None
    run = replace(run, settings=replace(run.settings, gain=max(run.settings.gain, PART_GAIN)))
    starts, reserve, curvature = [isotropic(one, space.per_input) for one in rivals], 0.0, None
    small, whole, parts = space.like(starts[0]), _size(builder, space, rivals[0]), coarse_rows(builder)
    if not parts and whole.ard and whole.n_rows > START_ROWS:
        # Fit one variance for all inputs first and begin there.
        parts = [np.arange(whole.n_rows)]
    sizes = [len(rows) for rows in parts] + [whole.n_rows]
    for rows, after in zip(parts, sizes[1:], strict=True):
        tick = time.perf_counter()
        part, task = builder.subset(rows), problem.restricted(rows)
        within = replace(run, deadline=None if run.deadline is None else run.deadline - reserve)
        run.watch.begin("coarse", starts[0], len(rows))
        fitted = Table(within, part, task, small).best_of(starts, curvature, metric)
        if fitted.optimum.reason is not Reason.FAILED:
            starts, curvature = [fitted.values], _curvature(fitted, after, whole.n_rows)
            found.append(spread(fitted.values, rivals[0]))
            metric = fitted.layout.metric if len(rows) >= SURE_ROWS else None
        reserve = _least_seconds(fitted, _size(part, space, starts[0]), whole)
        seconds[f"{len(rows)} rows"] = time.perf_counter() - tick
    return Coarse(found, curvature if found and small.shapes == space.shapes else None, metric)


def _curvature(fitted: Fitted, rows: int, whole: int) -> np.ndarray | None:
    """The Hessian per row at the optimum of a part, as it would be for ``rows`` rows: by differences where
    they cost less than DIFFERENCES evaluations of the ``whole`` table, otherwise as BFGS has it.
    """
    optimum, objective = fitted.optimum, fitted.objective
    H = optimum.curvature
    if optimum.gradient is not None and (
        H is None or objective.n_rows * optimum.z.size <= DIFFERENCES * whole
    ):
        evaluate = fitted.run.journaled(objective)
        H = curvature_at(evaluate, optimum.z, optimum.gradient, objective.n_rows)
    return None if H is None else of_more_rows(H, objective, optimum.z, rows)


def of_more_rows(H: np.ndarray, objective: MapObjective, z: np.ndarray, rows: float) -> np.ndarray:
    """The Hessian per row H (p, p) of an objective at z, as it would be for ``rows`` rows.

    The prior counts once, however many rows there are: the more of them, the less of it per row. Left as it
    is, steps along directions that the prior decides would be too short, and many.
    """
    prior = differences(objective.prior_gradient, z, objective.prior_gradient(z))
    return H - prior * (1 / objective.n_rows - 1 / rows)


def _size(builder: Builder, space: ParameterSpace, values: Values) -> Size:
    return Size.of(builder.dials, builder.X.shape, has_ard(space, values))


def _least_seconds(coarse: Fitted, part: Size, whole: Size) -> float:
    """What the whole table takes at least, at the pace of a part of it: a search and four evaluations.

    Two of these choose the anchors, one makes the posterior, and the curvature takes about one.
    """
    typical = Calibration()
    by_rows = evaluation_seconds(whole, typical) / evaluation_seconds(part, typical)
    by_pairs = by_rows
    if whole.approximation.neighbors:
        by_pairs = search_seconds(whole, typical) / search_seconds(part, typical)
    evaluation = coarse.seconds["optimise"] / max(coarse.optimum.n_evaluations, 1)
    return by_pairs * coarse.seconds["search"] + 4 * by_rows * evaluation


def coarse_rows(builder: Builder) -> list[np.ndarray]:
    """Random subsets of a quarter, a sixteenth, ... of the rows, smallest first; none below COARSE_ROWS.

    Few parameters are nearly determined by few rows: a fit to a quarter of them costs a quarter per
    evaluation and leaves a handful of evaluations for the whole table.
    """
    n = len(builder.X)
    if not builder.approximation.coarse:
        return []
    neighbors = builder.dials.neighbors if builder.approximation.neighbors else 0
    most = parts_below(n, neighbors, builder.dials.rank)
    order = np.random.default_rng(builder.seed + 1).permutation(n)
    # Where every block is padded to the same shape, less than a quarter of one takes no less time.
    least = builder.block_rows() // 4 if builder.backend.keeps_shapes else 0
    return [order[:size] for size in coarse_sizes(n) if least <= size <= most]
