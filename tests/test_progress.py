"""What a fit tells while it runs, and that telling changes nothing."""

from __future__ import annotations

import io
import math
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from widegp import WideGPRegressor
from widegp.cli.display import FitDisplay
from widegp.cost import START_ROWS, Calibration, Size, Stage, fit_plan
from widegp.progress import STAGES, Outlook, Pace, Progress, Watch, takes_outlook

ROWS = 8200


def fit(progress=None, rows=ROWS, **settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=rows)
    settings = {"approximation": "vfe", "rank": 6, "backend": "native", "random_state": 0} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WideGPRegressor.plain(**settings).fit(X, y, progress=progress)


class Told(list):
    def __call__(self, stage, iteration, objective, values, outlook):
        self.append((stage, iteration, objective, values, outlook))


@pytest.fixture(scope="module")
def watched():
    told = Told()
    return told, fit(told, max_iter=8)


class TestCallback:
    def test_stages_come_in_their_order_with_their_rows(self, watched):
        told, _ = watched
        names = list(dict.fromkeys(stage for stage, *_ in told))
        assert len(names) >= 4 and names == list(STAGES[: len(names)])
        rows = {stage: outlook.rows for stage, _, _, _, outlook in told}
        assert (rows["start"], rows["coarse"], rows["whole"]) == (START_ROWS, ROWS // 4, ROWS)

    def test_a_stage_begins_with_nothing_and_counts_its_iterations(self, watched):
        told, model = watched
        for name in STAGES[:3]:
            here = [(iteration, objective) for stage, iteration, objective, _, _ in told if stage == name]
            assert [iteration for iteration, _ in here] == list(range(len(here)))
            assert math.isnan(here[0][1]) and np.isfinite([objective for _, objective in here[1:]]).all()
        assert here[-1] == (model.n_iter_, pytest.approx(model.result_.objective))

    def test_parameters_are_told_from_the_beginning(self, watched):
        told, model = watched
        for *_, values, _ in told:
            assert set(values) == set(model.params_)
            assert all(np.all(np.asarray(v) > 0) for v in values.values())

    def test_time_and_share_never_fall_and_what_is_left_is_a_time(self, watched):
        outlooks = [outlook for *_, outlook in watched[0]]
        for kind in ("seconds", "fraction"):
            seen = [getattr(outlook, kind) for outlook in outlooks]
            assert np.all(np.diff(seen) >= 0) and min(seen) >= 0
        assert outlooks[0].fraction == 0 and outlooks[-1].fraction <= 1
        lefts = [outlook.seconds_left for outlook in outlooks]
        assert lefts[0] is None and None not in lefts[2:]
        assert all(left >= 0 and math.isfinite(left) for left in lefts[2:])

    def test_four_parameters_hear_of_the_whole_table_alone(self):
        told = []
        model = fit(lambda *said: told.append(said), rows=300)
        assert [said[:2] for said in told] == [("fit", k) for k in range(1, model.n_iter_ + 1)]
        assert all(len(said) == 4 for said in told)

    def test_adam_has_one_descent(self):
        told = Told()
        fit(told, rows=300, optimizer="adam", max_iter=3)
        assert [said[:2] for said in told if said[0] == "whole"] == [("whole", k) for k in range(4)]
        assert told[0][0] == "whole" and told[4][0] == "posterior"

    @pytest.mark.parametrize(
        "settings", [{"rows": ROWS, "max_iter": 8}, {"rows": 300, "approximation": "full-scale", "ard": True}]
    )
    def test_telling_changes_no_bit(self, settings, capsys):
        silent, loud = fit(**settings), fit(Told(), verbose=1, **settings)
        assert silent.result_.path == loud.result_.path
        assert all(np.array_equal(silent.params_[name], loud.params_[name]) for name in silent.params_)
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("start") and sum(line.startswith("whole") for line in lines) > 1

    def test_what_a_callback_raises_ends_the_fit(self):
        def refuse(stage, iteration, objective, values, outlook):
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            fit(refuse, rows=300)


class TestSignature:
    def test_who_takes_an_outlook(self):
        def five(stage, iteration, objective, values, outlook=None): ...
        def four(stage, iteration, objective, values): ...
        def any_four(*said): ...
        def anything(*said, **more): ...

        display = FitDisplay(Console(file=io.StringIO()))
        assert all(map(takes_outlook, (five, display.update, partial(five, "stage"), Told())))
        assert not any(map(takes_outlook, (four, any_four, anything, [].append, print.__call__, max)))


PLAN = fit_plan(Size("full-scale", 40_000, 10, 100, 20), Calibration())


class TestShare:
    @given(st.lists(st.integers(0, 300), min_size=len(PLAN), max_size=len(PLAN)))
    def test_it_rises_whatever_the_iterations(self, iterations):
        seen = []
        watch = Watch(lambda *said: seen.append(said[-1]), PLAN)
        follow = watch.following(lambda z: {})
        for stage, count in zip(PLAN, iterations, strict=True):
            watch.begin(stage.name, {}, stage.rows)
            for k in range(count):
                follow(k, 0.0, np.zeros(0))
        assert np.all(np.diff(seen) >= 0) and seen[0] == 0 and seen[-1] < 1

    def test_a_fit_as_planned_is_told_as_it_is(self):
        stages = (("start", 9, 0.0, 1.0, 100), ("whole", 50, 50.0, 1.0, 50), ("posterior", 50, 0.0, 0.0, 0))
        plan = tuple(Stage(*stage) for stage in stages)
        watch = Watch(None, plan)
        watch.begin("whole", {})
        assert watch.fraction() == 0.5 and watch.rows == 50
        watch.begin("posterior", {})
        assert watch.fraction() == 1.0

    def test_without_a_plan_nothing_is_known(self):
        watch = Watch()
        watch.begin("whole", {})
        assert (watch.fraction(), watch.rows) == (0.0, 0)

    def test_a_second_attempt_at_the_whole_table_does_not_go_back(self):
        progress, said = Progress(0, lambda *_, outlook: said.append(outlook.fraction)), []
        for fraction in (0.1, 0.6, 0.2, 0.7):
            progress.update("whole", 1, 0.0, {}, 10, fraction)
        assert said == [0.1, 0.6, 0.6, 0.7]


class TestPace:
    @given(st.floats(0.01, 1e4), st.floats(0, 1e3))
    def test_at_a_steady_pace_the_time_left_is_right(self, total, compiling):
        pace = Pace()
        assert pace.outlook("start", 700, 0, 0.0, 0.0).seconds_left is None
        for k in range(1, 11):
            # The first iteration compiles, which says nothing about the others.
            outlook = pace.outlook("start", 700, k, compiling + total * k / 10, k / 10)
            if k > 1:
                rounding = 1e-6 * (total + compiling)
                assert outlook.seconds_left == pytest.approx(total * (1 - k / 10), abs=rounding)

    def test_a_stage_that_is_slower_than_planned_is_believed(self):
        pace = Pace()
        for k in range(1, 6):
            pace.outlook("start", 700, k, float(k), 0.1 * k)
        for k in range(1, 5):
            outlook = pace.outlook("whole", 9000, k, 5 + 10.0 * k, 0.5 + 0.1 * k)
        assert outlook.seconds_left == pytest.approx(10.0)


class TestDisplay:
    def display(self, outlook, budget=None, stage="coarse"):
        display = FitDisplay(Console(file=io.StringIO(), width=100), budget)
        display.update(stage, 3, 12.5, {"w": np.array(0.5)}, outlook)
        return display.facts()

    def test_stage_rows_and_estimate(self):
        facts = self.display(Outlook(2050, 3.0, 0.4, 125.9))
        assert facts["stage"] == "coarse, 2,050 rows" and facts["iteration"] == "3"
        assert facts["time"].startswith("0:00, about 2:05 left (estimate)")

    def test_nothing_is_promised_without_a_pace(self):
        assert "left" not in self.display(Outlook(700, 0.0, 0.0, None))["time"]
        assert "left" not in self.display(None)["time"]

    def test_a_budget_is_shown_beside_the_estimate(self):
        time = self.display(Outlook(9000, 3.0, 0.4, 700.0), budget=60.0)["time"]
        assert "11:39 left (estimate)" in time and "at most 0:59 left to optimise" in time

    def test_it_can_be_called_with_anything_a_fit_may_say(self):
        display = FitDisplay(Console(file=io.StringIO(), force_terminal=True, width=100))
        with display:
            for values in ({}, {"sigma_u2": np.array([1.0, 2.0])}, {"w": np.array(np.nan)}):
                for objective in (math.nan, math.inf, -1e300):
                    display.update("whole", 0, objective, values, Outlook(0, 0.0, 0.0, 1e9))
                    assert display.view().row_count == len(display.facts())
