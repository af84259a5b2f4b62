"""L-BFGS to convergence, BFGS from a known curvature, and Adam for a fixed number of steps.

An optimiser calls an objective, z -> `Answer`, through wrappers that each add one thing: `Journaled` answers
from a file what was evaluated before, `Timed` ends a fit whose time is up, `Recorded` keeps the path and the
best point.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.optimize

from widegp.data.arrays import Floats
from widegp.inference.objective import Answer
from widegp.inference.result import Optimum, Reason
from widegp.inference.watch import Iterated

Objective = Callable[[np.ndarray], Answer]

# Relative change of the objective per row, and gradient per row, at which L-BFGS stops.
FTOL = 1e-8
GTOL = 1e-5
# BFGS stops where a Newton step would gain fewer nats than this: the estimates are then within a seventh of a
# posterior standard deviation of the optimum.
GAIN = 1e-2
# The same for small tables, whose evaluations cost next to nothing: predictions then have ten digits or more
# that depend on the data alone.
SMALLEST_GAIN = 1e-14
# Nats a row that a step on a large table must gain. Less changes no prediction, and would follow a flat
# valley for one evaluation after the other.
GAIN_PER_ROW = 1e-6
# Above so many rows GAIN_PER_ROW grows as the square of the rows, up to MOST_PER_ROW.
MANY_ROWS, MOST_PER_ROW = 30_000, 1e-4
# At most so many final Newton steps that use the gradient alone.
SETTLING = 4
# Parameters few enough for a Hessian by differences.
FEW_PARAMETERS = 12
# Step of the differences that make a Hessian.
STEP = 1e-3
# Curvatures below this share of the largest are raised to it.
FLATTEST = 1e-6
# The longest step: a factor of e in a variance.
LONGEST = 1.0
# b1, b2 and eps of Adam, as its authors have them.
FIRST_DECAY, SECOND_DECAY, LEAST_ROOT = 0.9, 0.999, 1e-8


def least_gain(n_rows: float) -> float:
    """Nats that a step must gain on a table of so many rows, where that is more than GAIN."""
    return n_rows * min(GAIN_PER_ROW * max(1.0, n_rows / MANY_ROWS) ** 2, MOST_PER_ROW)


class _OutOfTime(Exception):
    """The deadline of a fit has passed."""


@dataclass
class Timed:
    """An objective that raises `_OutOfTime` after ``deadline``, a reading of ``time.perf_counter``.

    The first evaluation is always made: a fit without any would have nothing to show.
    """

    objective: Objective
    deadline: float
    evaluated: bool = False

    def __call__(self, z: np.ndarray) -> Answer:
        if self.evaluated and time.perf_counter() > self.deadline:
            raise _OutOfTime
        self.evaluated = True
        return self.objective(z)


@dataclass(frozen=True)
class KnownAnswer:
    """An answer that has been computed already, and the point z of it."""

    z: np.ndarray
    answer: Answer

    def before(self, objective: Objective) -> Objective:
        """The objective, not evaluated again at that point."""
        return lambda z: self.answer if np.array_equal(z, self.z) else objective(z)


@dataclass(frozen=True)
class Task:
    """What an optimiser is to minimise: an objective of z within bounds, the sum over ``n_rows`` rows.

    max_iter : iterations, or steps of Adam, at most.
    on_iteration : called with the objective and z after each.
    gain : nats that a step of BFGS must promise.
    hessian_elsewhere : the Hessian per row at z, of an objective that costs less and curves alike, if any.
    """

    objective: Objective
    bounds: list[tuple[float, float]]
    n_rows: float
    max_iter: int
    on_iteration: Iterated | None = None
    gain: float = GAIN
    hessian_elsewhere: Callable[[np.ndarray], np.ndarray | None] | None = None

    def hessian(self, z: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray | None, int]:
        """The Hessian per row at z, where the gradient is this one, and the evaluations that it took."""
        if self.hessian_elsewhere is not None:
            return self.hessian_elsewhere(z), 0
        return curvature_at(self.objective, z, gradient, self.n_rows), z.size


@dataclass
class Recorded:
    """The objective per row with its path, its best point, and failures turned into high finite walls."""

    task: Task
    path: list[float] = field(default_factory=list)
    evaluations: int = 0
    best_value: float = np.inf
    best_z: np.ndarray | None = None
    last_gradient: np.ndarray | None = None
    problem: str | None = None
    jitter: float = 0.0

    @property
    def n_rows(self) -> float:
        return self.task.n_rows

    def __call__(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient, jitter, problem = self.task.objective(z)
        self.evaluations += 1
        if problem is not None or not np.isfinite(value) or not np.all(np.isfinite(gradient)):
            self.problem = problem or "the gradient is not finite"
            wall = abs(self.best_value) if np.isfinite(self.best_value) else 0.0
            return (1e3 * self.n_rows + 10 * wall) / self.n_rows, np.zeros_like(z)
        self.jitter = max(self.jitter, jitter)
        if value < self.best_value:
            self.best_value, self.best_z, self.last_gradient = value, z.copy(), gradient
        if not self.path:
            self.path.append(value)
        return value / self.n_rows, gradient / self.n_rows

    def curvature(self, z: np.ndarray, gradient: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
        """The Hessian per row at z, where the gradient per row is this one; ``otherwise`` where it fails."""
        H, evaluations = self.task.hessian(z, gradient * self.n_rows)
        self.evaluations += evaluations
        return otherwise if H is None else raised(H)

    def iterated(self, intermediate_result: scipy.optimize.OptimizeResult) -> None:
        self.path.append(self.best_value)
        if self.task.on_iteration:
            self.task.on_iteration(self.best_value, intermediate_result.x)

    def optimum(self, reason: Reason, start: np.ndarray) -> Optimum:
        z = start if self.best_z is None else self.best_z
        if self.best_z is None:
            reason = Reason.FAILED
        return Optimum(
            z, self.best_value, reason, tuple(self.path), self.evaluations, self.problem, self.last_gradient,
            jitter=self.jitter,
        )  # fmt: skip


def lbfgs(task: Task, z: np.ndarray) -> Optimum:
    """SciPy's L-BFGS-B on the objective per row; the best point seen is the one returned."""
    recorded = Recorded(task)
    if z.size == 0 or task.max_iter == 0:
        recorded(z)
        return recorded.optimum(Reason.FIXED if z.size == 0 else Reason.MAX_ITER, z)
    most = task.max_iter
    options = {"maxiter": most, "maxfun": 20 * most, "ftol": FTOL, "gtol": GTOL, "maxls": 30}
    try:
        out = scipy.optimize.minimize(
            recorded, z, jac=True, method="L-BFGS-B", bounds=task.bounds, callback=recorded.iterated,
            options=options,
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


def bfgs(task: Task, z: np.ndarray, curvature: np.ndarray) -> Optimum:
    """Projected BFGS from ``curvature`` (p, p), the Hessian per row of a like objective: z <- z - t H^-1 g.

    Where a part of the table has said how the loss curves, a few steps on the whole are enough. SciPy's BFGS
    knows no bounds and its L-BFGS-B no curvature to start from, hence this one. It stops by the Newton
    decrement g'H^-1 g / 2, what a step promises to gain. An entry at a bound that the gradient pushes it
    against stays there.

    Updates correct H along the steps alone. Far from where H was made, other directions may curve a hundred
    times less than H says, so that a step along them would gain a hundred times as much. So H is made anew
    before BFGS stops at such a point.
    """
    recorded = Recorded(task)
    low, high = np.array(task.bounds).T
    H, made_at = raised(curvature), z
    reason = Reason.MAX_ITER
    try:
        value, gradient = recorded(z)
        for _ in range(task.max_iter):
            step = newton_step(H, gradient, z, low, high)
            if -(gradient @ step) / 2 * task.n_rows < task.gain and _far(z, made_at):
                H, made_at = recorded.curvature(z, gradient, H), z
                step = newton_step(H, gradient, z, low, high)
            slope = float(gradient @ step)
            if -slope / 2 * task.n_rows < task.gain:
                reason = Reason.CONVERGED
                break
            moved = _descended(recorded, z, value, step, slope)
            if moved is None:
                reason = Reason.PRECISION
                break
            there, value, new_gradient = moved
            H = _updated(H, there - z, new_gradient - gradient)
            z, gradient = there, new_gradient
            recorded.iterated(scipy.optimize.OptimizeResult(x=z, fun=value))
    except _OutOfTime:
        reason = Reason.BUDGET
    return replace(recorded.optimum(reason, z), curvature=H)


def _far(z: np.ndarray, made_at: np.ndarray) -> bool:
    """Whether z is far from where the Hessian was made, and a new one is affordable."""
    return 0 < z.size <= FEW_PARAMETERS and float(np.abs(z - made_at).max()) > LONGEST


def settled(task: Task, found: Optimum) -> Optimum:
    """The optimum by its gradient alone: z <- z - H^-1 g while a step leaves less than a quarter of g'H^-1 g.

    Around an optimum the value is flat: by values of thirteen digits z is known to six or seven. The gradient
    is not flat there: by it z is known to nearly as many digits as it has itself.
    """
    if found.curvature is None or found.gradient is None:
        return found
    low, high = np.array(task.bounds).T
    H, z, gradient = found.curvature, found.z, found.gradient / task.n_rows
    step = newton_step(H, gradient, z, low, high)
    for _ in range(SETTLING):
        try:
            answer = task.objective(z := np.clip(z + step, low, high))
        except _OutOfTime:
            break
        found = replace(found, n_evaluations=found.n_evaluations + 1)
        if answer.problem is not None or not np.all(np.isfinite(answer.gradient)):
            break
        before, gradient = abs(float(gradient @ step)), answer.gradient / task.n_rows
        step = newton_step(H, gradient, z, low, high)
        if abs(float(gradient @ step)) >= before / 4:
            break
        found = replace(found, z=z, value=answer.value, gradient=answer.gradient)
    return found


def newton_step(H: Floats, gradient: Floats, z: Floats, low: Floats, high: Floats) -> Floats:
    """-H^-1 g over the entries that may move, none by more than LONGEST."""
    stuck = ((z <= low) & (gradient > 0)) | ((z >= high) & (gradient < 0))
    free = np.flatnonzero(~stuck)
    step: Floats = np.zeros_like(z)
    step[free] = -np.linalg.solve(H[np.ix_(free, free)], gradient[free])
    return step / max(1.0, float(np.abs(step).max()) / LONGEST)


def _descended(
    recorded: Recorded, z: np.ndarray, value: float, step: np.ndarray, slope: float
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """A point down the step, cut off at the bounds, with its value and gradient; None if there is none."""
    low, high = np.array(recorded.task.bounds).T
    length = 1.0
    while -slope * length * recorded.n_rows >= recorded.task.gain / 10:
        there = np.clip(z + length * step, low, high)
        new_value, gradient = recorded(there)
        if new_value <= value + 1e-4 * length * slope:
            return there, new_value, gradient
        # The minimum of the parabola through what is known, within reason.
        fitted = -slope * length**2 / (2 * (new_value - value - slope * length))
        length = float(np.clip(fitted, 0.1 * length, 0.5 * length))
    return None


def _updated(H: np.ndarray, s: np.ndarray, y: np.ndarray) -> np.ndarray:
    """H <- H + y y'/y's - H s s'H / s'Hs, where the loss curves upwards along s."""
    curved, Hs = float(s @ y), H @ s
    if curved <= 1e-10 * float(np.linalg.norm(s) * np.linalg.norm(y)):
        return H
    return H + np.outer(y, y) / curved - np.outer(Hs, Hs) / float(s @ Hs)


def raised(H: Floats) -> Floats:
    """H with eigenvalues raised to FLATTEST of the largest."""
    values, vectors = np.linalg.eigh((H + H.T) / 2)
    whole: Floats = (vectors * np.maximum(values, FLATTEST * values[-1])) @ vectors.T
    return whole


def curvature_at(
    objective: Objective, z: np.ndarray, gradient: np.ndarray, n_rows: float
) -> np.ndarray | None:
    """d^2 L / dz^2 per row (p, p) by differences of the gradient; None where one fails or time is up."""

    def slope(there: np.ndarray) -> np.ndarray:
        answer = objective(there)
        if answer.problem is not None or not np.all(np.isfinite(answer.gradient)):
            raise ArithmeticError(answer.problem or "the gradient is not finite")
        return answer.gradient

    try:
        H = differences(slope, z, gradient) / n_rows
    except (ArithmeticError, _OutOfTime):
        return None
    return H if np.linalg.eigvalsh(H)[-1] > 0 else None


def differences(slope: Callable[[Floats], Floats], z: Floats, here: Floats) -> Floats:
    """The symmetric derivative (p, p) of ``slope``, which is ``here`` at z."""
    H = np.array([(slope(z + STEP * unit) - here) / STEP for unit in np.eye(len(z))], np.float64)
    return (H + H.T) / 2


def adam(task: Task, z: np.ndarray, rates: np.ndarray) -> Optimum:
    """Adam (Kingma and Ba 2015, algorithm 1) with one learning rate per entry of z; returns the last point.

    m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,  z -= rate m^ / (sqrt(v^) + eps), where m^ and v^ are
    divided by 1 - b1^t and 1 - b2^t: a step moves an entry by at most about its rate.
    """
    low, high = np.array(task.bounds).T
    recorded = Recorded(task)
    reason = Reason.MAX_ITER
    mean, square = np.zeros_like(z), np.zeros_like(z)
    for step in range(1, task.max_iter + 1):
        try:
            value, gradient = recorded(z)
        except _OutOfTime:
            reason = Reason.BUDGET
            break
        if step > 1:
            recorded.path.append(value * task.n_rows)
        mean = (1 - FIRST_DECAY) * gradient + FIRST_DECAY * mean
        square = (1 - SECOND_DECAY) * gradient**2 + SECOND_DECAY * square
        root = np.sqrt(square / (1 - SECOND_DECAY**step))
        z = np.clip(z - rates * (mean / (1 - FIRST_DECAY**step)) / (root + LEAST_ROOT), low, high)
        if task.on_iteration:
            task.on_iteration(value * task.n_rows, z)
    failed = recorded.best_z is None
    return Optimum(
        z, recorded.path[-1] if recorded.path else np.inf, Reason.FAILED if failed else reason,
        tuple(recorded.path), recorded.evaluations, recorded.problem, jitter=recorded.jitter,
    )  # fmt: skip
