"""Choices left to the program: which approximation, which warp."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize

from widegp.approximations.build import Builder
from widegp.approximations.dense import ARRAYS, Dense
from widegp.approximations.evaluation import Observed
from widegp.approximations.layout import Dials
from widegp.compute.backend import Backend
from widegp.cost import START_ROWS, Calibration, Size, fit_seconds
from widegp.inference.objective import Problem
from widegp.inference.optimizers import lbfgs
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.plan import fit_plan
from widegp.inference.run import Run
from widegp.kernels.base import Kernel
from widegp.neighbors import nearest_earlier
from widegp.warps import candidates, make_warp, profile_start

Clock = Callable[[], float]

EXACT_ROWS = 2000
# Share of the memory that an exact fit may take.
MEMORY_SHARE = 0.25

# Rank and neighbours that a budget chooses among.
LADDER = ((50, 10), (100, 20), (200, 30), (500, 50))
# Share of the budget that a prediction may fill: it is right to some tens of per cent.
BUDGET_SHARE = 0.8
# Rows, rank and neighbours of the evaluations that `calibrate` times, and the rows of its search.
TIMED = ((300, 50, 10), (1200, 50, 10), (1200, 200, 30), (600, 500, 30))
SEARCHED_ROWS = 6000
REPEAT_SECONDS = 0.2
# How firmly the proportions of the rates are held to the typical ones.
HOLD = 0.03


def calibrate(
    X: np.ndarray, kernel: Kernel, backend: Backend, seed: int, clock: Clock = time.perf_counter
) -> Calibration:
    """Time single evaluations on few random rows of X (n, I): some seconds on a CPU."""
    rng = np.random.default_rng(seed)
    X = X[rng.permutation(len(X))[:SEARCHED_ROWS]]
    y, noise = rng.standard_normal(len(X)), 0.1 * float(np.mean(np.asarray(kernel.diag(X))))
    work, seconds = [], []
    with backend.scope():
        # Where blocks are padded every shape is compiled, for seconds: two must do.
        for rows, rank, neighbors in TIMED[1:3] if backend.pads else TIMED:
            rows = min(rows, len(X))
            dials = Dials("full-scale", rank, neighbors, "random", "random", None)
            likelihood = Builder(X[:rows], dials, backend, seed).build(kernel)
            units = Size("full-scale", rows, X.shape[1], rank, neighbors).work
            work.append((1.0, units.anchors, units.neighbors))
            evaluate = partial(likelihood.evaluate, kernel, Observed(y[:rows], noise))
            seconds.append(_seconds(evaluate, clock))
        few = Size("exact", min(START_ROWS, len(X)), X.shape[1], 0, 0)
        exact = Dense(X[: few.n_rows], backend)
        dense = _seconds(partial(exact.evaluate, kernel, Observed(y[: few.n_rows], noise)), clock)
    points = kernel.embedding(X)
    search = _seconds(partial(nearest_earlier, points, min(30, len(X) - 1)), clock) / len(X) ** 2
    rates = _rates(np.array(work), np.array(seconds))
    return Calibration(*rates, dense / few.work.dense, search)


def _seconds(call: Callable[[], Any], clock: Clock) -> float:
    """The least of up to ten calls within REPEAT_SECONDS: the first may compile, any may be disturbed."""
    call()
    seconds: list[float] = []
    while len(seconds) < 2 or (len(seconds) < 10 and sum(seconds) < REPEAT_SECONDS):
        began = clock()
        call()
        seconds.append(clock() - began)
    # A clock may read zero for a trifle.
    return max(min(seconds), 1e-9)


def _rates(work: np.ndarray, seconds: np.ndarray) -> tuple[float, float, float]:
    """argmin sum (work rate / seconds - 1)^2 + 0.03 sum (x - 1)^2 over rates = speed x typical rates, x >= 0.

    work (k, 3): noise must not make any work a gain, nor let one kind of work pay for another.
    """
    typical = Calibration()
    terms = work * (typical.fixed, typical.anchors, typical.neighbors)
    speed = float(np.exp(np.mean(np.log(seconds / terms.sum(1)))))
    held = np.sqrt(HOLD) * np.eye(3)
    x, _ = scipy.optimize.nnls(
        np.vstack([speed * terms / seconds[:, None], held]), np.append(np.ones(len(seconds)), np.diag(held))
    )
    fixed, anchors, neighbors = speed * x * (typical.fixed, typical.anchors, typical.neighbors)
    return float(fixed), float(anchors), float(neighbors)


def predicted_seconds(dials: Dials, n_rows: int, n_inputs: int, ard: bool, calibration: Calibration) -> float:
    """Seconds of a fit that finds its start itself and converges within its iterations."""
    return fit_seconds(fit_plan(Size.of(dials, (n_rows, n_inputs), ard), calibration))


def choose_dials(
    dials: Dials, n_rows: int, n_inputs: int, ard: bool, budget: float | None,
    measure: Callable[[], Calibration] | None = None,
) -> Dials:  # fmt: skip
    """Resolve ``"auto"``: exact while a fit takes about a minute, full-scale beyond.

    With a budget in seconds, the best of exact and `LADDER`, up to the given rank and neighbours, whose
    `predicted_seconds` fit it; the cheapest where none does, and the fit then stops at its deadline.
    ``measure`` is called only where there is something to choose.
    """
    if dials.name != "auto":
        return dials
    exact = n_rows <= EXACT_ROWS and _dense_fits(n_rows)
    if exact and (budget is None or measure is None or n_rows <= START_ROWS):
        return replace(dials, name="exact")
    if budget is None or measure is None:
        return replace(dials, name="full-scale", rank=min(dials.rank, 200))
    options = [replace(dials, name="exact")] if exact else []
    options += [
        replace(dials, name="full-scale", rank=min(rank, dials.rank), neighbors=min(m, dials.neighbors))
        for rank, m in reversed(LADDER)
    ]
    calibration = measure()
    seconds = [predicted_seconds(o, n_rows, n_inputs, ard, calibration) for o in options]
    within = [o for o, s in zip(options, seconds, strict=True) if s <= BUDGET_SHARE * budget]
    return within[0] if within else options[int(np.argmin(seconds))]


def _dense_fits(n_rows: int) -> bool:
    """Whether 6 n^2 numbers fit a quarter of the memory.

    Of all memory, not of what is free just now: the same call must choose the same approximation.
    """
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not offered on this system
        return True
    return ARRAYS * 8 * n_rows**2 <= MEMORY_SHARE * memory


def choose_warp(
    asked: str | None, problem: Problem, builder: Builder, start: Values, scale: dict[str, float], run: Run
) -> tuple[str, np.ndarray]:
    """The name of the warp and where its parameters begin.

    ``"auto"`` fits each family of `candidates` with the kernel on a few rows by the exact likelihood,
    Jacobian included, and keeps the likeliest.
    """
    if asked is None or asked == "none":
        return "none", np.zeros(0)
    if asked != "auto":
        return asked, profile_start(problem.y, asked, **scale)
    y = scale["offset"] + scale["scale"] * problem.y
    rows = np.random.default_rng(builder.seed).permutation(len(y))[: min(len(y), START_ROWS)]
    likelihood = Dense(builder.X[rows], builder.backend)
    scalar = {k: np.asarray(v.mean()) if k in problem.kernel.per_input else v for k, v in start.items()}
    best = (np.inf, "none", np.zeros(0))
    for name in candidates(y):
        warp, psi = make_warp(name, **scale), profile_start(problem.y, name, **scale)
        values = scalar | ({"psi": psi} if psi.size else {})
        space = ParameterSpace.of(problem.kernel, values, tuple(warp.bounds) if psi.size else ())
        objective = replace(problem.restricted(rows), warp=warp).on(likelihood, space)
        out = lbfgs(run.task(objective, 20), space.pack(values))
        if out.value < best[0]:
            best = (out.value, name, space.unpack(out.z).get("psi", np.zeros(0)))
    return best[1], best[2]
