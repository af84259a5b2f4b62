"""The MAP fit: a start from few rows, then rounds of optimisation between neighbour searches."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from widegp.approximations.build import NEEDS_ROWS, WITH_NEIGHBORS, Builder
from widegp.approximations.dense import Dense
from widegp.cost import (
    START_ROWS,
    Calibration,
    Size,
    coarse_sizes,
    evaluation_seconds,
    fit_plan,
    search_seconds,
)
from widegp.inference.objective import MapObjective, Problem, start_values
from widegp.inference.optimizers import Progress, adam, bfgs, curvature_at, differences, lbfgs
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.result import Optimum, Reason
from widegp.kernels.base import Kernel
from widegp.progress import Report, Watch

# Neighbours are found again when more than this share of them would change; at most ROUNDS searches.
STALE = 0.08
ROUNDS = 4
FIRST_ROUND_ITERATIONS = 15
# Parameters few enough for a Hessian by differences, and iterations after which it is worth having one.
FEW_PARAMETERS = 12
VALLEY = 20


@dataclass(frozen=True)
class OptimizerSettings:
    """``rate``, ``noise_rate``, ``batch_rows`` and the batches' ``seed`` are Adam's; ``max_iter`` counts
    iterations or steps; ``seconds`` are those left of a budget."""

    name: str
    max_iter: int
    rate: float = 1e-3
    noise_rate: float = 1e-3
    seconds: float | None = None
    explore: bool = True
    batch_rows: int | None = None
    seed: int = 0


@dataclass
class Fitted:
    """Where the fit ended, the likelihood it ended with, and who is told of what is still done with it."""

    values: Values
    objective: MapObjective
    optimum: Optimum
    rounds: int
    seconds: dict[str, float] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)


def fit_map(
    builder: Builder,
    problem: Problem,
    start: Values,
    settings: OptimizerSettings,
    report: Report | None = None,
) -> Fitted:
    """Minimise eq. (map_loss_body) from ``start``; the targets are in the order of the table.

    ``report`` is told of each stage as it begins, with iteration 0, and of each iteration. The posterior,
    which the caller makes next, begins where this ends.
    """
    clock = time.perf_counter()
    size, adam_steps = _size(builder, start), settings.name == "adam"
    explores = settings.explore and not adam_steps
    watch = Watch(report, fit_plan(size, Calibration(), explores, settings.max_iter, adam_steps))
    deadline = None if settings.seconds is None else clock + settings.seconds
    psi_bounds = tuple(problem.warp.bounds) if "psi" in start else ()
    space = ParameterSpace.of(start, psi_bounds, log=settings.name == "lbfgs")
    seconds: dict[str, float] = {}
    starts, curvature = [start], None
    if explores:
        watch.begin("start", start)
        starts.append(explore(builder, problem, start, space, deadline, watch))
        seconds["start"] = time.perf_counter() - clock
        coarse, curvature = _coarse(builder, problem, starts[-1], space, settings, deadline, watch, seconds)
        starts += coarse
    watch.begin("whole", starts[-1])
    fitted = _rounds(builder, problem, starts.pop(), space, settings, deadline, watch, curvature)
    while fitted.optimum.reason is Reason.FAILED and starts:
        # What a part of the rows allows may be too ill-conditioned for all of them; earlier starts are tamer.
        fitted = _rounds(builder, problem, starts.pop(), space, settings, deadline, watch)
    watch.begin("posterior", fitted.values)
    fitted.seconds, fitted.watch = {**seconds, **fitted.seconds}, watch
    return fitted


def _coarse(
    builder: Builder, problem: Problem, start: Values, space: ParameterSpace, settings: OptimizerSettings,
    deadline: float | None, watch: Watch, seconds: dict[str, float],
) -> tuple[list[Values], np.ndarray | None]:  # fmt: skip
    """Estimates from ever larger parts of the table, and how the loss of the last one curves, per row.

    One variance serves all inputs here, under ARD too: few rows say little about many variances, and a start
    far out in one of them costs more than it saves.
    """
    found: list[Values] = []
    values, reserve, curvature = _isotropic(start), 0.0, None
    small, whole = ParameterSpace.of(values, space.psi_bounds, space.log), _size(builder, start)
    sizes = [len(rows) for rows in coarse_rows(builder)] + [whole.n_rows]
    for rows, after in zip(coarse_rows(builder), sizes[1:], strict=True):
        tick = time.perf_counter()
        part, task = builder.subset(rows), problem.restricted(rows)
        limit = None if deadline is None else deadline - reserve
        watch.begin("coarse", values, len(rows))
        fitted = _rounds(part, task, values, small, settings, limit, watch, curvature)
        if fitted.optimum.reason is not Reason.FAILED:
            values, curvature = fitted.values, _curvature(fitted, after, whole.n_rows)
            found.append(_spread(values, start))
        reserve = _least_seconds(fitted, _size(part, values), whole)
        seconds[f"{len(rows)} rows"] = time.perf_counter() - tick
    return found, curvature if found and small.shapes == space.shapes else None


def _curvature(fitted: Fitted, rows: int, whole: int) -> np.ndarray | None:
    """The Hessian per row at the optimum of a part, as it would be for ``rows`` rows: by differences where
    they cost less than two evaluations of the ``whole`` table, otherwise as BFGS has it.

    The prior counts once, however many rows there are: the more of them, the less of it per row. Left as it
    is, steps along directions that the prior decides would be too short, and many.
    """
    optimum, objective = fitted.optimum, fitted.objective
    n_rows, z = objective.approximation.n_rows, optimum.z
    H = optimum.curvature
    if optimum.gradient is not None and (H is None or n_rows * z.size <= 2 * whole):
        H = curvature_at(objective, z, optimum.gradient, n_rows)
    if H is None:
        return None
    prior = differences(objective.prior_gradient, z, objective.prior_gradient(z))
    return H - prior * (1 / n_rows - 1 / rows)


def _isotropic(values: Values) -> Values:
    """The same with one variance for all inputs."""
    return {k: np.asarray(v.mean()) if k == "sigma_u2" else v for k, v in values.items()}


def _spread(values: Values, like: Values) -> Values:
    """The same with a variance for every input where ``like`` has one."""
    return {**values, "sigma_u2": np.broadcast_to(values["sigma_u2"], like["sigma_u2"].shape).copy()}


def _size(builder: Builder, start: Values) -> Size:
    dials, (n_rows, n_inputs) = builder.dials, builder.X.shape
    return Size(dials.name, n_rows, n_inputs, dials.rank, dials.neighbors, start["sigma_u2"].ndim > 0)


def _least_seconds(coarse: Fitted, part: Size, whole: Size) -> float:
    """What the whole table takes at least, at the pace of a part of it: a search and four evaluations.

    Two of these choose the anchors, one makes the posterior, and the curvature takes about one.
    """
    typical = Calibration()
    by_rows = evaluation_seconds(whole, typical) / evaluation_seconds(part, typical)
    by_pairs = search_seconds(whole, typical) / search_seconds(part, typical) if whole.m else by_rows
    evaluation = coarse.seconds["optimise"] / max(coarse.optimum.n_evaluations, 1)
    return by_pairs * coarse.seconds["search"] + 4 * by_rows * evaluation


def coarse_rows(builder: Builder) -> list[np.ndarray]:
    """Random subsets of a quarter, a sixteenth, ... of the rows, smallest first; none below COARSE_ROWS.

    Few parameters are nearly determined by few rows: a fit to a quarter of them costs a quarter per
    evaluation and leaves a handful of evaluations for the whole table.
    """
    n = len(builder.X)
    if builder.dials.name in NEEDS_ROWS or builder.dials.name == "exact":
        return []
    order = np.random.default_rng(builder.seed + 1).permutation(n)
    # Where every block is padded to the same shape, less than a quarter of one takes no less time.
    least = builder.block_rows() // 4 if builder.backend.keeps_shapes else 0
    return [order[:size] for size in coarse_sizes(n) if size >= least]


def _rounds(
    builder: Builder, problem: Problem, values: Values, space: ParameterSpace, settings: OptimizerSettings,
    deadline: float | None, watch: Watch, curvature: np.ndarray | None = None,
) -> Fitted:  # fmt: skip
    """Optimise, find neighbours and anchors again where the metric has moved, optimise on."""
    done, rounds, evaluations = 0, 0, 0
    path: list[float] = []
    seconds = {"search": 0.0, "optimise": 0.0}
    while True:
        rounds += 1
        tick = time.perf_counter()
        objective = problem.on(builder.build(problem.kernel_at(values)), builder.order, space)
        if rounds == 1:
            objective = _with_better_anchors(builder, objective, values)
        seconds["search"] += time.perf_counter() - tick
        limit = settings.max_iter - done
        if rounds == 1 and _refreshes(builder, values) and settings.name == "lbfgs":
            limit = min(limit, FIRST_ROUND_ITERATIONS)
        tick = time.perf_counter()
        optimum = _optimise(objective, values, limit, settings, deadline, watch, curvature)
        curvature = optimum.curvature
        seconds["optimise"] += time.perf_counter() - tick
        values = space.unpack(optimum.z)
        done += optimum.n_iter
        path += optimum.path
        evaluations += optimum.n_evaluations
        if not _another_round(builder, objective.at(values), optimum, rounds, done, settings):
            break
    whole = replace(optimum, path=tuple(path), n_evaluations=evaluations)
    return Fitted(values, objective, whole, rounds, seconds)


def _with_better_anchors(builder: Builder, objective: MapObjective, values: Values) -> MapObjective:
    """The anchors, of those spread in either metric, under which the targets are likelier at ``values``."""
    metric, Z = builder.metric, builder.Z
    other = builder.in_other_metric(objective.approximation, objective.at(values))  # type: ignore[arg-type]
    if other is None:
        return objective
    z, changed = objective.space.pack(values), replace(objective, approximation=other)
    if changed(z)[0] < objective(z)[0]:
        return changed
    builder.metric, builder.Z = metric, Z
    return objective


def _refreshes(builder: Builder, values: Values) -> bool:
    return builder.dials.name in WITH_NEIGHBORS and values["sigma_u2"].ndim > 0


def _another_round(
    builder: Builder, kernel: Kernel, optimum: Optimum, rounds: int, done: int, settings: OptimizerSettings
) -> bool:
    """Continue while the metric has moved away from the neighbours, or the first round was cut short."""
    if settings.name != "lbfgs" or rounds >= ROUNDS or done >= settings.max_iter:
        return False
    if optimum.reason in (Reason.BUDGET, Reason.FAILED, Reason.FIXED):
        return False
    return optimum.reason is Reason.MAX_ITER or builder.changed(kernel) > STALE


def _optimise(
    objective: MapObjective, values: Values, limit: int, settings: OptimizerSettings,
    deadline: float | None, watch: Watch, curvature: np.ndarray | None,
) -> Optimum:  # fmt: skip
    space = objective.space
    n_rows = objective.approximation.n_rows
    progress = watch.following(space.unpack)
    z, bounds = space.pack(values), space.bounds()
    if settings.name == "lbfgs":
        return _descend(objective, z, bounds, n_rows, limit, deadline, progress, curvature)
    rates = np.array([settings.noise_rate if n == "sigma_eps2" else settings.rate for n in space.labels()])
    if settings.batch_rows is not None:
        objective = _on_batches(objective, settings.batch_rows, settings.seed)
    return adam(objective, z, bounds, n_rows, limit, rates, deadline, progress)


def _descend(
    objective: MapObjective, z: np.ndarray, bounds: list[tuple[float, float]], n_rows: int, limit: int,
    deadline: float | None, progress: Progress | None, curvature: np.ndarray | None,
) -> Optimum:  # fmt: skip
    """BFGS from ``curvature``; where there is none, from that of the point to which L-BFGS has come.

    L-BFGS finds the valley and then takes long to follow it, for it must learn how the loss curves. As many
    evaluations as there are parameters tell that, where the parameters are few.
    """
    if curvature is not None:
        return bfgs(objective, z, bounds, n_rows, limit, curvature, deadline, progress)
    few = z.size <= FEW_PARAMETERS
    first = lbfgs(objective, z, bounds, n_rows, min(limit, VALLEY) if few else limit, deadline, progress)
    if not few or limit <= VALLEY or first.reason is not Reason.MAX_ITER or first.gradient is None:
        return first
    rest, H = limit - first.n_iter, curvature_at(objective, first.z, first.gradient, n_rows, deadline)
    if deadline is not None and time.perf_counter() > deadline:
        return replace(first, reason=Reason.BUDGET)
    if H is None:
        return lbfgs(objective, first.z, bounds, n_rows, rest, deadline, progress).after(first)
    return bfgs(objective, first.z, bounds, n_rows, rest, H, deadline, progress).after(first, z.size)


def _on_batches(objective: MapObjective, size: int, seed: int) -> Any:
    """The objective estimated at every call from another ``size`` random rows."""
    whole: Any = objective.approximation
    if not hasattr(whole, "batch"):
        raise ValueError("batch_rows needs anchors or neighbours; this approximation uses all rows at once.")
    rng = np.random.default_rng(seed)

    def estimate(z: np.ndarray) -> tuple[float, np.ndarray, str | None]:
        rows = rng.choice(whole.n_rows, min(size, whole.n_rows), replace=False)
        return replace(objective, approximation=whole.batch(np.sort(rows)))(z)

    return estimate


def explore(
    builder: Builder, problem: Problem, start: Values, space: ParameterSpace, deadline: float | None,
    watch: Watch,
) -> Values:  # fmt: skip
    """The best of several short fits on few rows with the exact likelihood.

    From one start a fit can collapse to the mean predictor, with all variance put down to noise. The
    starts differ in how fast the function varies (sigma_u2) and in how much of it is noise.
    """
    n = len(builder.X)
    rows = np.random.default_rng(builder.seed).permutation(n)[: min(n, START_ROWS)]
    scalar = _isotropic(start)
    small = ParameterSpace.of(scalar, space.psi_bounds)
    objective = problem.on(Dense(builder.X[rows], builder.backend), rows, small)
    best: Optimum | None = None
    for factor, noise in ((1.0, 1.0), (8.0, 0.25), (0.1, 4.0)):
        trial = {
            **scalar,
            "sigma_u2": scalar["sigma_u2"] * factor,
            "sigma_eps2": scalar["sigma_eps2"] * noise,
        }
        progress = watch.following(small.unpack)
        out = lbfgs(objective, small.pack(trial), small.bounds(), len(rows), 25, deadline, progress)
        if np.isfinite(out.value) and (best is None or out.value < best.value):
            best = out
    if best is None:
        return start
    return _spread(small.unpack(best.z), start)


__all__ = ["Fitted", "OptimizerSettings", "explore", "fit_map", "start_values"]
