"""Choices left to the program: which approximation, which warp."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.optimize

from widegp.approximations.build import Builder, Dials
from widegp.approximations.dense import Dense
from widegp.compute.backend import Backend
from widegp.inference.fit import START_ROWS
from widegp.inference.objective import Problem
from widegp.inference.optimizers import lbfgs
from widegp.inference.parameters import ParameterSpace, Values
from widegp.kernels.base import Kernel
from widegp.neighbors import nearest_earlier
from widegp.neighbors.metric import embed
from widegp.neighbors.search import EXACT_ROWS as SCANNED_ROWS
from widegp.warps import candidates, make_warp, profile_start

EXACT_ROWS = 2000
# n x n arrays alive at once in an exact evaluation, and the share of the memory that they may take.
DENSE_ARRAYS = 6
MEMORY_SHARE = 0.25

# Rank and neighbours that a budget chooses among.
LADDER = ((50, 10), (100, 20), (200, 30), (500, 50))
# Share of the budget that a prediction may fill: it is right to some tens of per cent.
BUDGET_SHARE = 0.8
# What a fit takes in evaluations of the whole table, standard errors included, and in searches.
EVALUATIONS, EVALUATIONS_ARD = 60, 150
SEARCHES, SEARCHES_ARD = 2, 4
START_EVALUATIONS = 90
# Rows, rank and neighbours of the evaluations that `calibrate` times, and the rows of its search.
TIMED = ((300, 50, 10), (1200, 50, 10), (1200, 200, 30), (600, 500, 30))
SEARCHED_ROWS = 6000


@dataclass(frozen=True)
class Calibration:
    """Seconds per unit of work on this machine, with n rows, I inputs, rank r and m neighbours.

    evaluation = fixed + anchors (n r (r + I) + r^3) + neighbors n (m + 1)^2 (m + I + r)
    exact evaluation = dense n^3,   search = search n min(n, 50,000)
    """

    fixed: float
    anchors: float
    neighbors: float
    dense: float
    search: float


def calibrate(X: np.ndarray, kernel: Kernel, backend: Backend, seed: int) -> Calibration:
    """Time single evaluations on few random rows of X (n, I): about a second on a CPU."""
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
            work.append(_work(rows, X.shape[1], min(rank, rows), min(neighbors, rows - 1)))
            seconds.append(_seconds(partial(likelihood.evaluate, kernel, noise, y[:rows])))
        small = min(START_ROWS, len(X))
        exact = Dense(X[:small], backend)
        dense = _seconds(partial(exact.evaluate, kernel, noise, y[:small])) / small**3
    points = embed(kernel, X)
    search = _seconds(partial(nearest_earlier, points, min(30, len(X) - 1))) / len(X) ** 2
    return Calibration(*_rates(np.array(work), np.array(seconds)), dense, search)


def _seconds(call: Callable[[], Any]) -> float:
    # The first call may compile.
    call()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _work(n: int, n_inputs: int, r: int, m: int) -> tuple[float, float, float]:
    return 1.0, float(n * r * (r + n_inputs) + r**3), float(n * (m + 1) ** 2 * (m + n_inputs + r))


def _rates(work: np.ndarray, seconds: np.ndarray) -> tuple[float, float, float]:
    """argmin sum (work rate / seconds - 1)^2 over rates >= 0: noise must not make any work a gain."""
    relative = work / seconds[:, None]
    size = relative.max(0)
    fixed, anchors, neighbors = scipy.optimize.nnls(relative / size, np.ones(len(seconds)))[0] / size
    return float(fixed), float(anchors), float(neighbors)


def predicted_seconds(dials: Dials, n_rows: int, n_inputs: int, ard: bool, calibration: Calibration) -> float:
    """start + evaluations x one evaluation + searches x one search, of a full-scale or exact fit."""
    c = calibration
    start = START_EVALUATIONS * c.dense * min(n_rows, START_ROWS) ** 3
    evaluations = EVALUATIONS_ARD if ard else EVALUATIONS
    if dials.name == "exact":
        return start + evaluations * c.dense * n_rows**3
    work = _work(n_rows, n_inputs, min(dials.rank, n_rows), min(dials.neighbors, n_rows - 1))
    evaluation = float(np.dot(work, (c.fixed, c.anchors, c.neighbors)))
    searches = (SEARCHES_ARD if ard else SEARCHES) * c.search * n_rows * min(n_rows, SCANNED_ROWS)
    return start + evaluations * evaluation + searches


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
    return DENSE_ARRAYS * 8 * n_rows**2 <= MEMORY_SHARE * memory


def choose_warp(
    asked: str | None, y: np.ndarray, problem: Problem, builder: Builder, start: Values,
    scale: dict[str, float],
) -> tuple[str, np.ndarray]:  # fmt: skip
    """The name of the warp and where its parameters begin.

    ``"auto"`` fits each family of `candidates` with the kernel on a few rows by the exact likelihood,
    Jacobian included, and keeps the likeliest.
    """
    if asked is None or asked == "none":
        return "none", np.zeros(0)
    if asked != "auto":
        return asked, profile_start(problem.y, asked, **scale)
    rows = np.random.default_rng(builder.seed).permutation(len(y))[: min(len(y), START_ROWS)]
    likelihood = Dense(builder.X[rows], builder.backend)
    scalar = {k: (np.asarray(v.mean()) if k == "sigma_u2" else v) for k, v in start.items()}
    best = (np.inf, "none", np.zeros(0))
    for name in candidates(y):
        warp, psi = make_warp(name, **scale), profile_start(problem.y, name, **scale)
        values = scalar | ({"psi": psi} if psi.size else {})
        space = ParameterSpace.of(values, tuple(warp.bounds) if psi.size else ())
        objective = replace(problem, warp=warp).on(likelihood, rows, space)
        out = lbfgs(objective, space.pack(values), space.bounds(), len(rows), 20)
        if out.value < best[0]:
            best = (out.value, name, space.unpack(out.z).get("psi", np.zeros(0)))
    return best[1], best[2]
