"""The largest and the best value of a dial within a budget, and dials that suit one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from widegp import Reason, WideGPRegressor, budget
from widegp.approximations.layout import Dials
from widegp.compute.backend import choose_backend
from widegp.inference import choose
from widegp.inference.choose import Calibration, calibrate, choose_dials, predicted_seconds
from widegp.kernels import named

# Table tab:year_full_metrics_gridN: rank, total time (s), RMSE.
PUBLISHED = (
    (1000, 5.284, 10.262), (1500, 10.218, 10.112), (2000, 16.643, 9.947), (2500, 28.760, 10.057),
    (3000, 41.467, 9.690), (3500, 61.748, 9.648), (4000, 92.689, 9.594), (4500, 139.815, 10.057),
    (5000, 179.735, 9.677),
)  # fmt: skip
COSTS = {rank: seconds for rank, seconds, _ in PUBLISHED}
ERRORS = {rank: rmse for rank, _, rmse in PUBLISHED}


class FakeClock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def timed(cost, answer=lambda value: None):
    """A clock, the values that were fitted, and a fit that takes cost(value) seconds of that clock."""
    clock, fitted = FakeClock(), []

    def fit(value):
        fitted.append(value)
        clock.now += cost(value)
        return answer(value)

    return clock, fitted, fit


class TestRules:
    @pytest.mark.parametrize(
        ("seconds", "largest", "best"), [(30, 2500, 2000), (60, 3000, 3000), (300, 5000, 4000)]
    )
    def test_table_budget_r_choice_of_the_paper(self, seconds, largest, best):
        assert budget.largest_within(COSTS, seconds) == largest
        assert budget.best_within(COSTS, ERRORS, seconds) == best

    def test_a_cost_equal_to_the_budget_is_within_it(self):
        assert budget.largest_within({1: 1.0, 2: 2.0}, 2.0) == 2

    def test_equal_errors_give_the_smaller_value_and_nan_never_wins(self):
        assert budget.best_within({1: 1, 2: 1, 3: 1}, {1: float("nan"), 2: 0.5, 3: 0.5}, 9) == 2

    def test_errors_say_what_to_do(self):
        with pytest.raises(ValueError, match="no costs"):
            budget.largest_within({}, 1.0)
        with pytest.raises(ValueError, match=r"budget of 5 s; the cheapest value, 1000, takes 5\.28 s"):
            budget.best_within(COSTS, ERRORS, 5.0)
        with pytest.raises(ValueError, match=r"no error for \[2\]"):
            budget.best_within({1: 1.0, 2: 1.0}, {1: 0.3}, 5.0)
        with pytest.raises(ValueError, match="NaN"):
            budget.best_within({1: 1.0}, {1: float("nan")}, 5.0)


class TestChoose:
    def test_power_law_is_recovered_from_its_own_times(self):
        costs = {r: 3e-6 * r**2.4 for r in (100, 200, 400)}
        assert budget.predicted_time(costs, 900) == pytest.approx(3e-6 * 900**2.4)
        assert budget.predicted_time({10: 2.0}, 20) == pytest.approx(8.0)
        assert budget.predicted_time({10: 2.0, 20: 1.0}, 40) == pytest.approx(1.0)

    def test_stops_before_the_value_that_would_overrun(self):
        clock, fitted, fit = timed(lambda r: 1e-4 * r**2)
        out = budget.choose(fit, (400, 50, 100, 200, 800), 20.0, clock=clock)
        assert fitted == [50, 100, 200, 400]
        assert max(t.seconds for t in out.tried) <= 20.0
        assert (out.value, out.largest, out.best, out.error) == (400, 400, None, None)
        assert out.seconds == pytest.approx(16.0)

    @pytest.mark.parametrize(("seconds", "largest", "best"), [(30, 2500, 2000), (60, 3000, 3000)])
    def test_gives_the_published_choice_when_run_at_the_published_times(self, seconds, largest, best):
        clock, _, fit = timed(COSTS.__getitem__, ERRORS.__getitem__)
        out = budget.choose(fit, COSTS, seconds, clock=clock)
        assert (out.largest, out.best, out.value) == (largest, best, best)
        assert out.error == ERRORS[best]
        assert [t.error for t in out.tried] == [ERRORS[t.value] for t in out.tried]

    def test_a_surprise_ends_the_tries_and_is_not_chosen(self):
        clock, fitted, fit = timed({1: 1.0, 2: 2.0, 3: 50.0, 4: 60.0}.__getitem__, lambda r: 1.0 / r)
        out = budget.choose(fit, (1, 2, 3, 4), 10.0, clock=clock)
        assert fitted == [1, 2, 3]
        assert (out.value, out.largest, len(out.tried)) == (2, 2, 3)

    def test_scoring_counts_and_the_total_ends_the_tries(self):
        clock, fitted, fit = timed(lambda r: float(r), lambda r: {"error": 10 - r})

        def score(outcome):
            clock.now += 1.0
            return outcome["error"]

        out = budget.choose(fit, (1, 2, 3, 4), 100.0, score, total=12.5, clock=clock)
        assert fitted == [1, 2, 3]
        assert [t.seconds for t in out.tried] == [2.0, 3.0, 4.0]
        assert out.error == 7.0

    def test_errors_say_what_to_do(self):
        clock, _, fit = timed(lambda r: 5.0)
        with pytest.raises(ValueError, match="the cheapest value, 7, takes 5 s"):
            budget.choose(fit, (7, 9), 1.0, clock=clock)
        with pytest.raises(ValueError, match="at least one"):
            budget.choose(fit, (), 1.0)
        with pytest.raises(ValueError, match="positive"):
            budget.choose(fit, (0, 1), 1.0)
        with pytest.raises(ValueError, match="at least one"):
            budget.predicted_time({}, 1)


AUTO = Dials("auto", 500, 50, "kmeans", "random", None)
MACHINE = Calibration(fixed=1e-3, anchors=4e-10, neighbors=5e-10, dense=1e-10, search=3e-9)


def chosen(seconds, n_rows=20_000, dials=AUTO, ard=False):
    got = choose_dials(dials, n_rows, 10, ard, seconds, lambda: MACHINE)
    return got.name, got.rank, got.neighbors


class TestAuto:
    def test_without_a_budget_nothing_is_measured(self):
        def measure():
            raise AssertionError("measured without a budget")

        assert choose_dials(AUTO, 2000, 5, False, None, measure).name == "exact"
        large = choose_dials(AUTO, 2001, 5, False, None, measure)
        assert (large.name, large.rank, large.neighbors) == ("full-scale", 200, 50)
        named_one = Dials("vfe", 300, 30, "kmeans", "random", None)
        assert choose_dials(named_one, 5000, 5, False, 1.0, measure) is named_one
        assert choose_dials(AUTO, 500, 5, False, 1.0, measure).name == "exact"

    def test_dials_grow_with_the_budget_up_to_the_user_s(self):
        assert chosen(1e-3)[1:] == choose.LADDER[0]
        for rank, m in choose.LADDER:
            dials = Dials("full-scale", rank, m, "kmeans", "random", None)
            seconds = predicted_seconds(dials, 20_000, 10, False, MACHINE) / choose.BUDGET_SHARE
            assert chosen(1.01 * seconds)[1:] == (rank, m)
        small = Dials("auto", 150, 5, "kmeans", "random", None)
        assert chosen(1e4, dials=small) == ("full-scale", 150, 5)

    def test_the_choice_is_predicted_to_fit_unless_nothing_is(self):
        for seconds in (40, 100, 500):
            name, rank, m = chosen(seconds)
            dials = Dials(name, rank, m, "kmeans", "random", None)
            assert predicted_seconds(dials, 20_000, 10, False, MACHINE) <= 0.8 * seconds

    def test_more_rows_or_ard_cost_more(self):
        dials = Dials("full-scale", 200, 30, "kmeans", "random", None)
        once = predicted_seconds(dials, 10_000, 10, False, MACHINE)
        assert predicted_seconds(dials, 20_000, 10, False, MACHINE) > once
        assert predicted_seconds(dials, 10_000, 10, True, MACHINE) > 2 * once

    def test_exact_needs_the_time_and_the_memory(self, monkeypatch):
        assert chosen(1e4, n_rows=2000)[0] == "exact"
        assert chosen(15.0, n_rows=2000)[0] == "full-scale"
        pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**16}
        monkeypatch.setattr(choose.os, "sysconf", pages.__getitem__)
        assert chosen(None, n_rows=1000)[0] == "exact"
        assert chosen(None, n_rows=2000)[0] == "full-scale"

    @pytest.mark.parametrize("n_rows", [800, 5000])
    def test_calibration_measures_positive_rates(self, n_rows):
        X = np.random.default_rng(0).normal(size=(n_rows, 3))
        kernel = named("mixed").replace(sigma_u2=1 / 3)
        got = calibrate(X, kernel, choose_backend(kernel, "native"), 0)
        assert min(got.fixed, got.anchors, got.neighbors) >= 0
        assert min(got.anchors + got.neighbors, got.dense, got.search) > 0

    def test_a_fit_keeps_near_its_budget_and_says_how_it_ended(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(2500, 3))
        y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=len(X))
        settings = {"start": {"sigma_u2": 1.0}, "random_state": 0, "backend": "native"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = WideGPRegressor.plain(budget=3.0, **settings).fit(X, y)
        assert model.result_.reason in (Reason.BUDGET, Reason.CONVERGED, Reason.MAX_ITER)
        assert model.approximation_ == "full-scale"
        assert len(model.anchors_) in {rank for rank, _ in choose.LADDER}
        assert np.mean((model.predict(X[:100]) - y[:100]) ** 2) < 0.1
