"""From a start to an optimum: L-BFGS into the valley, a Hessian there, and BFGS along it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from widegp.cost import START_ROWS
from widegp.inference.optimizers import (
    FEW_PARAMETERS,
    SMALLEST_GAIN,
    Task,
    bfgs,
    curvature_at,
    lbfgs,
    settled,
)
from widegp.inference.result import Optimum, Reason

# Iterations after which a Hessian is worth having.
VALLEY = 20
# Further iterations, at most, for a small table, and the most parameters that it may have.
POLISHING, POLISHED_PARAMETERS = 15, 40


def descend(task: Task, z: np.ndarray, curvature: np.ndarray | None) -> Optimum:
    """BFGS from ``curvature``; where there is none, from that of the point to which L-BFGS has come.

    L-BFGS finds the valley and then takes long to follow it, for it must learn how the loss curves. As many
    evaluations as there are parameters tell that, where the parameters are few.
    """
    if curvature is not None:
        return bfgs(task, z, curvature)
    few, limit = z.size <= FEW_PARAMETERS, task.max_iter
    first = lbfgs(replace(task, max_iter=min(limit, VALLEY)) if few else task, z)
    if not few or limit <= VALLEY or first.reason is not Reason.MAX_ITER or first.gradient is None:
        return first
    rest = replace(task, max_iter=limit - first.n_iter)
    H, evaluations = task.hessian(first.z, first.gradient)
    second = lbfgs(rest, first.z) if H is None else bfgs(rest, first.z, H)
    if second.n_evaluations == 0:
        return replace(first, reason=Reason.BUDGET)
    return second.after(first, 0 if H is None else evaluations)


def polished(task: Task, found: Optimum) -> Optimum:
    """The optimum to the precision of the objective, where rows and parameters are few."""
    few = task.n_rows <= START_ROWS and found.z.size <= POLISHED_PARAMETERS
    if not few or not found.reason.converged or found.gradient is None or task.max_iter == 0:
        return found
    H = curvature_at(task.objective, found.z, found.gradient, task.n_rows)
    if H is None:
        return found
    exact = bfgs(replace(task, max_iter=POLISHING, gain=SMALLEST_GAIN, on_iteration=None), found.z, H)
    if not exact.value <= found.value:
        return found
    done = settled(task, exact.after(found, found.z.size))
    return replace(done, reason=found.reason, path=found.path)
