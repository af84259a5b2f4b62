"""Losses estimated from some rows of a table, beside those of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from widegp import WideGPRegressor
from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.compute.backend import choose_backend
from widegp.inference import batches, plan
from widegp.inference.objective import MapObjective, Problem, start_values
from widegp.inference.optimizers import curvature_at, least_gain
from widegp.inference.parameters import ParameterSpace
from widegp.kernels import Mixed
from widegp.measure import table
from widegp.warps import make_warp

ROWS = 4000


def loss(name: str, rows: int = ROWS) -> tuple[MapObjective, np.ndarray]:
    """The loss of a table under an approximation, and parameters that suit it."""
    X, y = table(rows, 3)
    kernel = Mixed(sigma_u2=1.0)
    builder = Builder(X, Dials(name, 40, 10, "kmeans", "random", None), choose_backend(kernel), 0)
    problem = Problem(kernel, (y - y.mean()) / y.std(), make_warp("none"), {})
    values = start_values(kernel, 0.1, np.empty(0), None)
    space = ParameterSpace.of(kernel, values, (), log=True)
    return problem.on(builder.build(kernel), space), space.pack(values)


@pytest.mark.parametrize("name", ["vfe", "full-scale", "vecchia"])
class TestAnyApproximation:
    def test_a_batch_of_all_rows_is_the_table(self, name):
        whole, z = loss(name)
        batch = batches.of_rows(whole, ROWS, np.random.default_rng(0))
        assert batch(z).value == pytest.approx(whole(z).value, rel=1e-12)
        np.testing.assert_allclose(batch(z).gradient, whole(z).gradient, rtol=1e-8, atol=1e-8)

    def test_a_batch_is_the_table_up_to_chance(self, name):
        whole, z = loss(name)
        batch = batches.of_rows(whole, 1000, np.random.default_rng(0))
        assert batch.n_rows == whole.n_rows
        # Of 1,000 terms with a standard deviation of about 0.7 nats.
        assert abs(batch(z).value - whole(z).value) / ROWS < 4 * 0.7 / np.sqrt(1000)

    def test_its_hessian_is_that_of_the_table_up_to_chance(self, name, monkeypatch):
        monkeypatch.setattr(batches, "LEAST_ROWS", 500)
        whole, z = loss(name)
        part = batches.BatchHessian.of(lambda objective: objective, whole, 0)
        assert part is not None and part.count == 500
        exact = curvature_at(whole, z, whole(z).gradient, whole.n_rows)
        # 500 rows of 4,000 tell a mean of squares to within some twentieth.
        assert np.linalg.norm(part(z) - exact) < 0.15 * np.linalg.norm(exact)


def test_small_and_dense_tables_have_no_batch(monkeypatch):
    monkeypatch.setattr(batches, "LEAST_ROWS", 500)
    monkeypatch.setattr(plan, "AHEAD_ROWS", 1000)
    monkeypatch.setattr(plan, "AHEAD_ROWS_PER_ANCHOR", 1)
    exact, _ = loss("exact", 100)
    few, _ = loss("full-scale", 3999)
    without, _ = loss("vfe")
    for objective in (exact, few):
        assert batches.BatchHessian.of(lambda one: one, objective, 0) is None
        assert batches.ahead_of(objective, 0) is None
    assert batches.ahead_of(without, 0) is None
    assert batches.ahead_of(loss("full-scale")[0], 0).likelihood.share == 4.0
    with pytest.raises(ValueError, match="all rows at once"):
        batches.of_rows(exact, 50, np.random.default_rng(0))


def test_a_fit_with_a_batch_ahead_ends_where_one_without_does(monkeypatch):
    X, y = table(ROWS, 3)
    settings = {"approximation": "full-scale", "rank": 30, "random_state": 0}
    stages: list[str] = []
    without = WideGPRegressor.plain(**settings).fit(X, y).result_
    monkeypatch.setattr(plan, "AHEAD_ROWS", 1000)
    monkeypatch.setattr(plan, "AHEAD_ROWS_PER_ANCHOR", 1)
    model = WideGPRegressor.plain(**settings)
    found = model.fit(X, y, progress=lambda event: stages.append(event.stage)).result_
    last = {stage: k for k, stage in enumerate(stages)}
    assert last["coarse"] < last["batch"] < last["whole"]
    assert found.seconds["batch"] > 0 and found.converged
    # Neighbours and anchors are those of the parameters at which they were found: two nats of 4,000 rows.
    assert found.objective == pytest.approx(without.objective, abs=2.0)


def test_what_a_step_must_promise_grows_with_the_rows_up_to_a_bound():
    assert least_gain(30_000) == pytest.approx(0.03)
    assert least_gain(300_000) == pytest.approx(30)
    assert least_gain(3_000_000) == pytest.approx(300)
