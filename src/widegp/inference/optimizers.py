"""L-BFGS to convergence, and Adam for a fixed number of steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.optimize

from widegp.inference.result import Optimum, Reason

Objective = Callable[[np.ndarray], tuple[float, np.ndarray, str | None]]
Progress = Callable[[int, float, np.ndarray], None]

# Relative change of the objective per row, and gradient per row, at which L-BFGS stops.
FTOL = 1e-8
GTOL = 1e-5


class _OutOfTime(Exception):
    pass


@dataclass
class _Recorded:
    """The objective with its path, its best point, and failures turned into high finite walls."""

    objective: Objective
    n_rows: int
    deadline: float | None
    on_iteration: Progress | None = None
    path: list[float] = field(default_factory=list)
    evaluations: int = 0
    best_value: float = np.inf
    best_z: np.ndarray | None = None
    last_gradient: np.ndarray | None = None
    problem: str | None = None

    def __call__(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        if self.deadline is not None and self.best_z is not None and time.perf_counter() > self.deadline:
            raise _OutOfTime
        value, gradient, problem = self.objective(z)
        self.evaluations += 1
        if problem is not None or not np.isfinite(value) or not np.all(np.isfinite(gradient)):
            self.problem = problem or "the gradient is not finite"
            wall = abs(self.best_value) if np.isfinite(self.best_value) else 0.0
            return (1e3 * self.n_rows + 10 * wall) / self.n_rows, np.zeros_like(z)
        if value < self.best_value:
            self.best_value, self.best_z, self.last_gradient = value, z.copy(), gradient
        if not self.path:
            self.path.append(value)
        return value / self.n_rows, gradient / self.n_rows

    def iterated(self, intermediate_result: scipy.optimize.OptimizeResult) -> None:
        self.path.append(self.best_value)
        if self.on_iteration:
            self.on_iteration(len(self.path) - 1, self.best_value, intermediate_result.x)

    def optimum(self, reason: Reason, start: np.ndarray) -> Optimum:
        z = start if self.best_z is None else self.best_z
        if self.best_z is None:
            reason = Reason.FAILED
        return Optimum(
            z, self.best_value, reason, tuple(self.path), self.evaluations, self.problem, self.last_gradient
        )


def lbfgs(
    objective: Objective,
    z: np.ndarray,
    bounds: list[tuple[float, float]],
    n_rows: int,
    max_iter: int,
    deadline: float | None = None,
    on_iteration: Progress | None = None,
) -> Optimum:
    """SciPy's L-BFGS-B on the objective per row; the best point seen is the one returned."""
    recorded = _Recorded(objective, n_rows, deadline, on_iteration)
    if z.size == 0 or max_iter == 0:
        recorded(z)
        return recorded.optimum(Reason.FIXED if z.size == 0 else Reason.MAX_ITER, z)
    try:
        out = scipy.optimize.minimize(
            recorded, z, jac=True, method="L-BFGS-B", bounds=bounds, callback=recorded.iterated,
            options={"maxiter": max_iter, "maxfun": 20 * max_iter, "ftol": FTOL, "gtol": GTOL, "maxls": 30},
        )  # fmt: skip
    except _OutOfTime:
        return recorded.optimum(Reason.BUDGET, z)
    if out.status == 0:
        reason = Reason.CONVERGED
    elif out.status == 1:
        reason = Reason.MAX_ITER
    else:
        # The line search found no lower point: rounding of the objective is all that is left to descend.
        reason = Reason.PRECISION
    return recorded.optimum(reason, z)


def adam(
    objective: Objective,
    z: np.ndarray,
    bounds: list[tuple[float, float]],
    n_rows: int,
    steps: int,
    rates: np.ndarray,
    deadline: float | None = None,
    on_iteration: Progress | None = None,
) -> Optimum:
    """optax's Adam with one learning rate per entry of z; the last point is the one returned.

    Scale by the rates after Adam's own normalisation: a step moves an entry by at most about its rate.
    """
    import jax
    import jax.numpy as jnp
    import optax

    low, high = np.array(bounds).T
    recorded = _Recorded(objective, n_rows, deadline)
    reason = Reason.MAX_ITER
    with jax.enable_x64(True):
        transform = optax.scale_by_adam()
        state = transform.init(jnp.asarray(z))
        for step in range(1, steps + 1):
            try:
                value, gradient = recorded(z)
            except _OutOfTime:
                reason = Reason.BUDGET
                break
            if step > 1:
                recorded.path.append(value * n_rows)
            update, state = transform.update(jnp.asarray(gradient), state)
            z = np.clip(z - rates * np.asarray(update), low, high)
            if on_iteration:
                on_iteration(step, value * n_rows, z)
    failed = recorded.best_z is None
    return Optimum(
        z, recorded.path[-1] if recorded.path else np.inf, Reason.FAILED if failed else reason,
        tuple(recorded.path), recorded.evaluations, recorded.problem,
    )  # fmt: skip
