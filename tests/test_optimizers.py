"""Projected BFGS against SciPy's L-BFGS-B and against solutions known in closed form."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from widegp.inference.descent import descend
from widegp.inference.objective import Answer
from widegp.inference.optimizers import GAIN, Task, Timed, bfgs, curvature_at, lbfgs, settled
from widegp.inference.result import Reason

ROWS = 1000


def quadratic(H, centre, log=None):
    """ROWS (z - c)'H (z - c) / 2, counting its evaluations in ``log``."""

    def objective(z):
        if log is not None:
            log.append(z.copy())
        return Answer(ROWS * (z - centre) @ H @ (z - centre) / 2, ROWS * H @ (z - centre))

    return objective


def random_problem(seed, size=5):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size), rng.normal(size=size), rng.normal(size=size) / 2


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_the_true_curvature_reaches_the_optimum_in_the_steps_that_their_length_allows(seed):
    H, centre, start = random_problem(seed)
    log: list[np.ndarray] = []
    out = bfgs(Task(quadratic(H, centre, log), [(-9, 9)] * 5, ROWS, 50), start, H)
    assert out.reason is Reason.CONVERGED
    # A step is one unit at most in any entry; without that limit there would be a single one. Where it has
    # led further than that, the curvature is made anew before it ends.
    distance = np.abs(centre - start).max()
    assert len(log) <= 2 + np.ceil(distance) * 2 + (5 if distance > 0.98 else 0)
    np.testing.assert_allclose(out.z, centre, atol=2e-2)
    # It ends where a step promises less than this, which of a quadratic is what is left: where the last step
    # but one falls short of the optimum by a thousandth (two starts of 1,500), 0.008 is.
    assert out.value < GAIN


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_bounds_are_kept_and_the_constrained_optimum_is_found(seed):
    H, centre, start = random_problem(seed)
    bounds = [(-0.5, 0.5)] * 5
    objective = quadratic(H, centre)
    start = np.clip(start, -0.5, 0.5)
    out = bfgs(Task(objective, bounds, ROWS, 200), start, np.eye(5))
    best = scipy.optimize.minimize(
        lambda z: objective(z)[:2], start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14}
    )
    assert np.all(np.abs(out.z) <= 0.5)
    # It knows the curvature that its steps have shown: of 5,001 seeds ten end 0.02 to 0.043 above.
    assert out.value == pytest.approx(best.fun, abs=5e-2)


def test_a_wrong_curvature_is_corrected_on_the_way():
    def rosenbrock(z):
        return Answer(ROWS * scipy.optimize.rosen(z), ROWS * scipy.optimize.rosen_der(z))

    start = np.array([-0.8, 0.9, 0.3])
    out = bfgs(Task(rosenbrock, [(-3, 3)] * 3, ROWS, 200), start, 100 * np.eye(3))
    np.testing.assert_allclose(out.z, 1, atol=1e-2)
    assert out.reason is Reason.CONVERGED
    truth = scipy.optimize.rosen_hess(out.z) @ np.ones(3)
    was_off = np.linalg.norm(100 * np.ones(3) - truth)
    assert np.linalg.norm(out.curvature @ np.ones(3) - truth) < was_off / 4


def test_a_curvature_made_far_away_does_not_end_the_descent():
    """f = (a - 4)^2 / 2 + h(a) b^2 / 2 - b / 50, with h = 100 at the start and 0.01 at the end.

    No step leads along b, so that no update corrects h; by the first one there is 0.002 to gain, not 20.
    """

    def valley(z):
        a, b = z
        steep = 100 * np.exp(-3 * a)
        value = (a - 4) ** 2 / 2 + (0.01 + steep) * b**2 / 2 - b / 50
        return Answer(ROWS * value, ROWS * np.array([a - 4 - 1.5 * steep * b**2, (0.01 + steep) * b - 0.02]))

    task = Task(valley, [(-9, 9)] * 2, ROWS, 50)
    out = bfgs(task, np.zeros(2), np.diag([1.0, 100.0]))
    assert out.reason is Reason.CONVERGED
    best = scipy.optimize.minimize(lambda z: valley(z)[:2], [4.0, 2.0], jac=True)
    assert out.value == pytest.approx(best.fun, abs=2 * task.gain)
    # Where something that costs less says how the loss curves, the objective itself is not asked for that.
    asked = []

    def about(z):
        asked.append(z)
        return np.diag([1.0, 0.012])

    told = bfgs(replace(task, hessian_elsewhere=about), np.zeros(2), np.diag([1.0, 100.0]))
    assert told.value == pytest.approx(best.fun, abs=2 * task.gain)
    assert asked and told.n_evaluations <= out.n_evaluations - 2 * len(asked)


def test_an_optimum_is_settled_by_its_gradient_where_values_are_rounded():
    H, centre, _ = random_problem(1)

    def rounded(z):
        exact = quadratic(H, centre)(z)
        return exact._replace(value=round(1e3 + exact.value, 6))

    task = Task(rounded, [(-9, 9)] * 5, ROWS, 50, gain=1e-14)
    found = bfgs(task, centre + 1e-5, 1.05 * H)
    out = settled(task, found)
    assert np.abs(found.z - centre).max() > 1e-7 > 1e-10 > np.abs(out.z - centre).max()
    # A step that does not lead nearer is not taken.
    assert settled(task, replace(found, curvature=-H)).z is found.z


def test_fewer_evaluations_than_without_the_curvature():
    H, centre, start = np.diag([1e-3, 1.0, 1e3]), np.array([0.9, -0.3, 0.1]), np.zeros(3)
    with_it, without = [], []
    bfgs(Task(quadratic(H, centre, with_it), [(-9, 9)] * 3, ROWS, 50), start, 1.3 * H)
    lbfgs(Task(quadratic(H, centre, without), [(-9, 9)] * 3, ROWS, 50), start)
    assert len(with_it) < len(without)


def test_a_wall_is_walked_around():
    def walled(z):
        if z[0] > 0.6:
            return Answer(np.inf, np.zeros_like(z), problem="a wall")
        return Answer(ROWS * ((z[0] - 0.5) ** 2 + z[1] ** 2), 2 * ROWS * np.array([z[0] - 0.5, z[1]]))

    out = bfgs(Task(walled, [(-3, 3)] * 2, ROWS, 100), np.array([-0.4, 0.2]), 0.3 * np.eye(2))
    np.testing.assert_allclose(out.z, [0.5, 0.0], atol=2e-3)


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_the_curvature_of_a_quadratic_is_its_matrix(seed):
    H, centre, z = random_problem(seed)
    objective = quadratic(H, centre)
    found = curvature_at(objective, z, objective(z).gradient, ROWS)
    np.testing.assert_allclose(found, H, rtol=1e-6, atol=1e-8)


def test_no_curvature_where_an_evaluation_fails():
    def failing(z):
        return Answer(np.inf, z * 0, problem="failed")

    assert curvature_at(failing, np.zeros(2), np.zeros(2), ROWS) is None


def test_an_optimum_after_another_counts_both_paths():
    task = Task(quadratic(np.eye(2), np.ones(2)), [(-9, 9)] * 2, ROWS, 1)
    first = lbfgs(task, np.zeros(2))
    then = bfgs(replace(task, max_iter=5), first.z, np.eye(2))
    both = then.after(first, 2)
    assert both.n_iter == first.n_iter + then.n_iter
    assert both.n_evaluations == first.n_evaluations + then.n_evaluations + 2
    np.testing.assert_array_equal(both.z, then.z)


def valley(asked):
    """Curved and flat by turns: L-BFGS is not through with it after 20 iterations."""

    def objective(z):
        asked.append(z)
        return Answer(ROWS * scipy.optimize.rosen(z), ROWS * scipy.optimize.rosen_der(z))

    return objective


def test_bfgs_takes_over_where_lbfgs_has_found_the_valley():
    asked = []
    start, bounds = np.array([-1.2, 1.0, -0.5, 0.8, -1.1, 0.9]), [(-3, 3)] * 6
    out = descend(Task(valley(asked), bounds, ROWS, 200), start, None)
    assert out.reason is Reason.CONVERGED and out.n_iter > 20
    assert out.n_evaluations == len(asked)
    np.testing.assert_allclose(out.z, 1, atol=1e-2)


def test_differences_end_at_the_deadline():
    asked = []
    evaluate = valley(asked)

    def slow(z):
        if len(asked) == 28:
            time.sleep(max(0.0, deadline - time.perf_counter()) + 0.01)
        return evaluate(z)

    start, bounds = np.array([-1.2, 1.0, -0.5, 0.8, -1.1, 0.9]), [(-3, 3)] * 6
    deadline = time.perf_counter() + 2.0
    out = descend(Task(Timed(slow, deadline), bounds, ROWS, 200), start, None)
    assert out.reason is Reason.BUDGET
    assert len(asked) <= 30
