"""The MAP fit: a start from few rows, then rounds of optimisation between neighbour searches."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.dense import Dense
from widegp.approximations.layout import Layout
from widegp.cost import START_ROWS, Calibration, Size, evaluation_seconds, search_seconds
from widegp.inference.batches import Batches, BatchHessian, ahead_of
from widegp.inference.descent import descend, polished
from widegp.inference.journal import Journal, Journaled
from widegp.inference.objective import MapObjective, Problem
from widegp.inference.optimizers import (
    GAIN,
    KnownAnswer,
    Objective,
    Task,
    Timed,
    adam,
    curvature_at,
    differences,
    least_gain,
)
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.plan import DIFFERENCES, SURE_ROWS, coarse_sizes, fit_plan, parts_below
from widegp.inference.result import Optimum, Reason
from widegp.inference.starts import apart, isotropic, optima, spread
from widegp.inference.watch import Watch
from widegp.kernels.base import Kernel

# Neighbours are found again when more than this share of them would change; at most ROUNDS searches.
STALE = 0.08
ROUNDS = 4
FIRST_ROUND_ITERATIONS = 15
# The optimum of a part is about p / 2 of its nats from that of the whole: its steps must gain so many nats.
PART_GAIN = 0.3


@dataclass(frozen=True)
class OptimizerSettings:
    """How an optimiser runs.

    max_iter : iterations or steps.    seconds : left of a budget.    gain : nats that a BFGS step must gain.
    rate, noise_rate, batch_rows, seed : of Adam and its batches.
    explore : whether several starts are compared. Parts of the table are then fitted before the whole.
    parts : whether they are fitted first in any case.
    exact : whether an optimum of few rows is found to the precision of the loss.
    """

    name: str
    max_iter: int
    rate: float = 1e-3
    noise_rate: float = 1e-3
    seconds: float | None = None
    explore: bool = True
    batch_rows: int | None = None
    seed: int = 0
    parts: bool = False
    gain: float = GAIN
    exact: bool = True


@dataclass(frozen=True)
class Run:
    """What every stage of a fit shares: settings, the reading of the clock at which it must end, who is told
    of it, and where its evaluations are written down.
    """

    settings: OptimizerSettings
    watch: Watch = field(default_factory=Watch)
    deadline: float | None = None
    journal: Journal | None = None

    def journaled(self, objective: MapObjective) -> Objective:
        """The objective, answered from the journal where it can be."""
        return objective if self.journal is None else Journaled(objective, self.journal)

    def late(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.perf_counter() > self.deadline

    def task(
        self, objective: MapObjective, max_iter: int, known: KnownAnswer | None = None,
        elsewhere: BatchHessian | None = None,
    ) -> Task:  # fmt: skip
        """What an optimiser is given: the objective, of batches if asked for, until the time is up."""
        wrapped = self.journaled(objective)
        if known is not None:
            wrapped = known.before(wrapped)
        if self.settings.batch_rows is not None and self.settings.name == "adam":
            rng = np.random.default_rng(self.settings.seed)
            wrapped = Batches(objective, self.settings.batch_rows, rng, self.journaled)
        if self.deadline is not None:
            wrapped = Timed(wrapped, self.deadline)
        following = self.watch.following(objective.space.unpack)
        bounds, gain = objective.space.bounds(), max(self.settings.gain, least_gain(objective.n_rows))
        return Task(wrapped, bounds, objective.n_rows, max_iter, following, gain, elsewhere)

    def optimise(
        self, objective: MapObjective, values: Values, max_iter: int, curvature: np.ndarray | None,
        known: KnownAnswer | None = None, elsewhere: BatchHessian | None = None,
    ) -> Optimum:  # fmt: skip
        task, z = self.task(objective, max_iter, known, elsewhere), objective.space.pack(values)
        if self.settings.name == "lbfgs":
            found = descend(task, z, curvature)
            return polished(task, found) if self.settings.exact else found
        by_name = {"sigma_eps2": self.settings.noise_rate}
        labels = objective.space.labels()
        return adam(task, z, np.array([by_name.get(label, self.settings.rate) for label in labels]))


@dataclass(frozen=True)
class Fitted:
    """Where the fit ended, with which layout and likelihood, and the run that it was part of."""

    values: Values
    objective: MapObjective
    layout: Layout
    optimum: Optimum
    rounds: int
    run: Run
    seconds: dict[str, float] = field(default_factory=dict)


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
    if explores and _has_ard(space, start) and not builder.approximation.coarse and not run.late():
        X = np.asarray(builder.X)
        other = apart(problem.on(Dense(X, builder.backend), space), rivals[0], X, builder.backend)
        rivals = rivals if other is None else [*rivals, other]
    watch.begin("whole", starts.pop())
    whole = _Table(run, builder, problem, space)
    fitted = whole.best_of(rivals, curvature, metric)
    while fitted.optimum.reason is Reason.FAILED and starts:
        # If the fit fails from this start, try the start found on fewer rows.
        watch.again(starts[-1])
        fitted = whole.rounds(starts.pop())
    watch.begin("posterior", fitted.values)
    return replace(fitted, seconds={**seconds, **fitted.seconds})


@dataclass(frozen=True)
class _Table:
    """A table, or a part of one, what is estimated from it, and the run that this is part of."""

    run: Run
    builder: Builder
    problem: Problem
    space: ParameterSpace

    def best_of(self, starts: list[Values], curvature: np.ndarray | None, metric: str | None) -> Fitted:
        """The lowest optimum that any of ``starts``, best first, leads to; only the first once time is up."""
        best = self.rounds(starts[0], curvature, metric)
        for start in starts[1:]:
            if not self.run.late():
                self.run.watch.again(start)
                other = self.rounds(start, curvature, metric)
                best = min(best, other, key=lambda fitted: fitted.optimum.value)
        return best

    def rounds(
        self, values: Values, curvature: np.ndarray | None = None, metric: str | None = None
    ) -> Fitted:
        """Optimise, find neighbours and anchors again where the metric has moved, optimise on; the anchors
        are those of ``metric``, or of the one under which the targets are likelier.
        """
        run, builder, problem, space = self.run, self.builder, self.problem, self.space
        done, rounds, evaluations = 0, 0, 0
        path: list[float] = []
        seconds = {"search": 0.0, "optimise": 0.0}
        while True:
            rounds += 1
            tick, known = time.perf_counter(), None
            layout = builder.layout(problem.kernel_at(values), metric)
            objective = problem.on(builder.likelihood(layout), space)
            if metric is None:
                objective, layout, known = _with_better_anchors(run, builder, objective, layout, values)
                metric = layout.metric
            seconds["search"] += time.perf_counter() - tick
            limit = run.settings.max_iter - done
            if rounds == 1 and _refreshes(builder, space, values) and run.settings.name == "lbfgs":
                limit = min(limit, FIRST_ROUND_ITERATIONS)
            tick = time.perf_counter()
            elsewhere = BatchHessian.of(run.journaled, objective, builder.seed)
            ahead = self._ahead(objective, values, limit, curvature) if rounds == 1 else None
            if ahead is not None:
                values, done, limit = space.unpack(ahead.z), done + ahead.n_iter, limit - ahead.n_iter
                curvature, known = ahead.curvature, None
                seconds["batch"] = time.perf_counter() - tick
                run.watch.begin("whole", values)
                if _stale(builder, layout, problem.kernel_at(values), ahead):
                    continue
                tick = time.perf_counter()
            if elsewhere is not None and "batch" in seconds:
                # BFGS has learned the curvature along its steps alone; a batch gives all of it for a tenth.
                made = elsewhere(space.pack(values))
                curvature = curvature if made is None else made
            optimum = run.optimise(objective, values, limit, curvature, known, elsewhere)
            curvature = optimum.curvature
            seconds["optimise"] += time.perf_counter() - tick
            values = space.unpack(optimum.z)
            done += optimum.n_iter
            path += optimum.path
            evaluations += optimum.n_evaluations
            ended = rounds >= ROUNDS or done >= run.settings.max_iter or run.settings.name != "lbfgs"
            if ended or not _stale(builder, layout, problem.kernel_at(values), optimum):
                break
        whole = replace(optimum, path=tuple(path), n_evaluations=evaluations)
        return Fitted(values, objective, layout, whole, rounds, run, seconds)

    def _ahead(
        self, objective: MapObjective, values: Values, limit: int, curvature: np.ndarray | None
    ) -> Optimum | None:
        """The optimum of a batch of the rows, where the table is large enough for one to go ahead."""
        run, batch = self.run, None
        if limit > 0 and run.settings.name == "lbfgs" and not run.late():
            batch = ahead_of(objective, self.builder.seed)
        if batch is None:
            return None
        run.watch.begin("batch", values)
        found = run.optimise(batch, values, limit, curvature)
        return None if found.reason is Reason.FAILED else found


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
        fitted = _Table(within, part, task, small).best_of(starts, curvature, metric)
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


def _has_ard(space: ParameterSpace, values: Values) -> bool:
    return any(values[name].ndim > 0 for name in space.per_input)


def _size(builder: Builder, space: ParameterSpace, values: Values) -> Size:
    return Size.of(builder.dials, builder.X.shape, _has_ard(space, values))


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


def _with_better_anchors(
    run: Run, builder: Builder, objective: MapObjective, layout: Layout, values: Values
) -> tuple[MapObjective, Layout, KnownAnswer | None]:
    """The anchors, of those spread in either metric, under which the targets are likelier at ``values``, and
    what the objective is there.
    """
    other = builder.with_other_anchors(layout, objective.problem.kernel_at(values))
    if other is None:
        return objective, layout, None
    z, changed = objective.space.pack(values), replace(objective, likelihood=builder.likelihood(other))
    there, here = run.journaled(changed)(z), run.journaled(objective)(z)
    if there.value < here.value:
        return changed, other, KnownAnswer(z, there)
    return objective, layout, KnownAnswer(z, here)


def _refreshes(builder: Builder, space: ParameterSpace, values: Values) -> bool:
    """Whether the metric moves while variances by input are fitted, so that a first round should be short."""
    return builder.approximation.neighbors and _has_ard(space, values)


def _stale(builder: Builder, layout: Layout, kernel: Kernel, optimum: Optimum) -> bool:
    """Whether the metric has moved away from the neighbours, or the round was cut short."""
    if optimum.reason in (Reason.BUDGET, Reason.FAILED, Reason.FIXED):
        return False
    return optimum.reason is Reason.MAX_ITER or builder.changed(layout, kernel) > STALE
