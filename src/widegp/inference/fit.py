"""The MAP fit: a start from few rows, then rounds of optimisation between neighbour searches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from widegp.approximations.build import NEEDS_ROWS, WITH_NEIGHBORS, Builder
from widegp.approximations.dense import Dense
from widegp.inference.objective import MapObjective, Problem, start_values
from widegp.inference.optimizers import adam, lbfgs
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.result import Optimum, Reason
from widegp.kernels.base import Kernel

# Rows of the exact likelihood that chooses among the starts.
START_ROWS = 700
# Neighbours are found again when more than this share of them would change; at most ROUNDS searches.
STALE = 0.08
ROUNDS = 4
FIRST_ROUND_ITERATIONS = 15
# Smallest subset of the rows worth a fit of its own before the whole table.
COARSE_ROWS = 2000


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
    """Where the fit ended, and the likelihood it ended with."""

    values: Values
    objective: MapObjective
    optimum: Optimum
    rounds: int
    seconds: dict[str, float] = field(default_factory=dict)


def fit_map(
    builder: Builder,
    problem: Problem,
    start: Values,
    settings: OptimizerSettings,
    report: Callable[[str, int, float, Values], None] | None = None,
) -> Fitted:
    """Minimise eq. (map_loss_body) from ``start``; the targets are in the order of the table."""
    clock = time.perf_counter()
    deadline = None if settings.seconds is None else clock + settings.seconds
    psi_bounds = tuple(problem.warp.bounds) if "psi" in start else ()
    space = ParameterSpace.of(start, psi_bounds, log=settings.name == "lbfgs")
    seconds: dict[str, float] = {}
    starts, reserve = [start], 0.0
    if settings.explore and settings.name == "lbfgs":
        starts.append(explore(builder, problem, start, space, deadline))
        seconds["start"] = time.perf_counter() - clock
        for rows in coarse_rows(builder):
            tick = time.perf_counter()
            part, task = builder.subset(rows), problem.restricted(rows)
            limit = None if deadline is None else deadline - reserve
            coarse = _rounds(part, task, starts[-1], space, settings, limit, None)
            starts.append(coarse.values)
            reserve = _least_seconds(coarse, len(builder.X) / len(rows))
            seconds[f"{len(rows)} rows"] = time.perf_counter() - tick
    fitted = _rounds(builder, problem, starts.pop(), space, settings, deadline, report)
    while fitted.optimum.reason is Reason.FAILED and starts:
        # What a part of the rows allows may be too ill-conditioned for all of them; earlier starts are tamer.
        fitted = _rounds(builder, problem, starts.pop(), space, settings, deadline, report)
    fitted.seconds = {**seconds, **fitted.seconds}
    return fitted


def _least_seconds(coarse: Fitted, growth: float) -> float:
    """What a table ``growth`` times as large takes at least: a search and four evaluations.

    Two of these choose the anchors, one makes the posterior, and the curvature takes about one.
    """
    evaluation = coarse.seconds["optimise"] / max(coarse.optimum.n_evaluations, 1)
    return growth * (coarse.seconds["search"] + 4 * evaluation)


def coarse_rows(builder: Builder) -> list[np.ndarray]:
    """Random subsets of a quarter, a sixteenth, ... of the rows, smallest first; none below COARSE_ROWS.

    Few parameters are nearly determined by few rows: a fit to a quarter of them costs a quarter per
    evaluation and leaves a handful of evaluations for the whole table.
    """
    n = len(builder.X)
    if builder.dials.name in NEEDS_ROWS or builder.dials.name == "exact":
        return []
    order = np.random.default_rng(builder.seed + 1).permutation(n)
    sizes = [n // 4**k for k in range(1, 20) if n // 4**k >= COARSE_ROWS]
    return [order[:size] for size in reversed(sizes)]


def _rounds(
    builder: Builder, problem: Problem, values: Values, space: ParameterSpace, settings: OptimizerSettings,
    deadline: float | None, report: Callable[[str, int, float, Values], None] | None,
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
        optimum = _optimise(objective, values, limit, settings, deadline, report)
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
    deadline: float | None, report: Callable[..., None] | None,
) -> Optimum:  # fmt: skip
    space = objective.space
    n_rows = objective.approximation.n_rows

    def progress(iteration: int, value: float, z: np.ndarray) -> None:
        if report:
            report("fit", iteration, value, space.unpack(z))

    if settings.name == "lbfgs":
        return lbfgs(objective, space.pack(values), space.bounds(), n_rows, limit, deadline, progress)
    rates = np.array([settings.noise_rate if n == "sigma_eps2" else settings.rate for n in space.labels()])
    if settings.batch_rows is not None:
        objective = _on_batches(objective, settings.batch_rows, settings.seed)
    return adam(objective, space.pack(values), space.bounds(), n_rows, limit, rates, deadline, progress)


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
    builder: Builder, problem: Problem, start: Values, space: ParameterSpace, deadline: float | None = None
) -> Values:
    """The best of several short fits on few rows with the exact likelihood.

    From one start a fit can collapse to the mean predictor, with all variance put down to noise. The
    starts differ in how fast the function varies (sigma_u2) and in how much of it is noise.
    """
    n = len(builder.X)
    rows = np.random.default_rng(builder.seed).permutation(n)[: min(n, START_ROWS)]
    shared = {k: v for k, v in start.items() if k != "sigma_u2"}
    scalar = {k: (np.asarray(v.mean()) if k == "sigma_u2" else v) for k, v in start.items()}
    small = ParameterSpace.of(scalar, space.psi_bounds)
    objective = problem.on(Dense(builder.X[rows], builder.backend), rows, small)
    best: tuple[float, Any] = (np.inf, None)
    for factor, noise in ((1.0, 1.0), (8.0, 0.25), (0.1, 4.0)):
        trial = {
            **scalar,
            "sigma_u2": scalar["sigma_u2"] * factor,
            "sigma_eps2": shared["sigma_eps2"] * noise,
        }
        out = lbfgs(objective, small.pack(trial), small.bounds(), len(rows), 25, deadline)
        if out.value < best[0]:
            best = (out.value, out.z)
    if best[1] is None:
        return start
    found = small.unpack(best[1])
    return {**found, "sigma_u2": np.broadcast_to(found["sigma_u2"], start["sigma_u2"].shape).copy()}


__all__ = ["Fitted", "OptimizerSettings", "explore", "fit_map", "start_values"]
