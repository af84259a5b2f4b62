"""What a fit tells while it runs, and that telling changes nothing."""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from widegp import WideGPRegressor
from widegp.cli.display import FitDisplay
from widegp.cost import START_ROWS, Calibration, Size, Stage
from widegp.inference.optimizers import GAIN
from widegp.inference.plan import fit_plan
from widegp.inference.watch import InStage, Pace, Watch
from widegp.progress import STAGES, Progress

ROWS = 8200


def fit(progress=None, rows=ROWS, **settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=rows)
    settings = {"approximation": "vfe", "rank": 6, "backend": "native", "random_state": 0} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WideGPRegressor.plain(**settings).fit(X, y, progress=progress)


@pytest.fixture(scope="module")
def watched():
    told = []
    return told, fit(told.append, max_iter=8)


def descents(told, stage):
    """The events of a stage, parted where it begins from another start."""
    events = [event for event in told if event.stage == stage]
    begins = [k for k, event in enumerate(events) if event.iteration == 0]
    return [events[k:end] for k, end in zip(begins, [*begins[1:], len(events)], strict=True)]


class TestCallback:
    def test_stages_come_in_their_order_with_their_rows(self, watched):
        told, _ = watched
        names = list(dict.fromkeys(event.stage for event in told))
        assert names == [stage for stage in STAGES if stage not in ("choices", "batch")][: len(names)]
        assert len(names) >= 4
        rows = {event.stage: event.rows for event in told}
        assert (rows["start"], rows["coarse"], rows["whole"]) == (START_ROWS, ROWS // 4, ROWS)

    def test_a_stage_begins_with_nothing_and_counts_its_iterations(self, watched):
        told, model = watched
        for name in ("start", "coarse", "whole"):
            for events in descents(told, name):
                assert [event.iteration for event in events] == list(range(len(events)))
                assert math.isnan(events[0].objective)
                assert np.isfinite([event.objective for event in events[1:]]).all()
        assert events[-1].iteration == model.n_iter_
        assert events[-1].objective == pytest.approx(model.result_.objective)

    def test_parameters_are_told_from_the_beginning(self, watched):
        told, model = watched
        for event in told:
            assert set(event.values) == set(model.params_)
            assert all(np.all(np.asarray(v) > 0) for v in event.values.values())

    def test_time_and_share_never_fall_and_what_is_left_is_a_time(self, watched):
        told, _ = watched
        for kind in ("seconds", "fraction"):
            seen = [getattr(event, kind) for event in told]
            assert np.all(np.diff(seen) >= 0) and min(seen) >= 0
        assert told[0].fraction == 0 and told[-1].fraction <= 1
        lefts = [event.seconds_left for event in told]
        assert lefts[0] is None and None not in lefts[2:]
        assert all(left >= 0 and math.isfinite(left) for left in lefts[2:])

    def test_each_start_of_a_small_table_is_told_and_the_kept_one_counts(self):
        told = []
        model = fit(told.append, rows=300)
        ends = [events[-1] for events in descents(told, "whole")]
        assert len(ends) > 1
        best = min(ends, key=lambda event: event.objective)
        # A small table polishes its optimum, untold, by less than what ends an iteration.
        assert best.iteration == model.n_iter_
        assert 0 <= best.objective - model.result_.objective < GAIN

    def test_choices_are_one_stage_before_the_fit(self):
        rng, told = np.random.default_rng(0), []
        X = rng.normal(size=(150, 2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = WideGPRegressor(random_state=0, noise="constant", target_transform=None)
            model.fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=150), progress=told.append)
        after = STAGES[STAGES.index("whole") :]
        assert list(dict.fromkeys(event.stage for event in told)) == ["choices", *after]
        ((first, *later),) = descents(told, "choices")
        assert math.isnan(first.objective) and np.isfinite([event.objective for event in later]).all()
        assert [event.iteration for event in later] == list(range(1, len(later) + 1))

    def test_adam_has_one_descent(self):
        told = []
        fit(told.append, rows=300, optimizer="adam", max_iter=3)
        assert [event.iteration for event in told if event.stage == "whole"] == [0, 1, 2, 3]
        assert told[0].stage == "whole" and told[4].stage == "posterior"

    def test_telling_changes_no_bit(self, watched):
        self.same(fit(max_iter=8), watched[1])

    def test_nor_does_printing_a_line_for_each(self, capsys):
        settings = {"rows": 300, "approximation": "full-scale", "ard": True, "max_iter": 8}
        self.same(fit(**settings), fit([].append, verbose=1, **settings))
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith("start") and sum(line.startswith("whole") for line in lines) > 1

    def same(self, silent, loud):
        assert silent.result_.path == loud.result_.path
        assert all(np.array_equal(silent.params_[name], loud.params_[name]) for name in silent.params_)

    def test_what_a_callback_raises_ends_the_fit(self):
        def refuse(event):
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            fit(refuse, rows=300)


PLAN = fit_plan(Size("full-scale", 40_000, 10, 100, 20), Calibration())


class TestShare:
    @given(st.lists(st.integers(0, 300), min_size=len(PLAN), max_size=len(PLAN)))
    def test_it_rises_whatever_the_iterations(self, iterations):
        seen = []
        watch = Watch((lambda event: seen.append(event.fraction),), PLAN)
        follow = watch.following(lambda z: {})
        for stage, count in zip(PLAN, iterations, strict=True):
            watch.begin(stage.name, {}, stage.rows)
            for _ in range(count):
                follow(0.0, np.zeros(0))
        assert np.all(np.diff(seen) >= 0) and seen[0] == 0 and seen[-1] < 1

    def test_a_fit_as_planned_is_told_as_it_is(self):
        stages = (("start", 9, 0.0, 1.0, 100), ("whole", 50, 50.0, 1.0, 50), ("posterior", 50, 0.0, 0.0, 0))
        plan = tuple(Stage(*stage) for stage in stages)
        watch = Watch((), plan)
        watch.begin("whole", {})
        assert watch.fraction() == 0.5 and watch.rows == 50
        watch.begin("posterior", {})
        assert watch.fraction() == 1.0

    def test_without_a_plan_nothing_is_known(self):
        watch = Watch()
        watch.begin("whole", {})
        assert (watch.fraction(), watch.rows) == (0.0, 0)

    def test_a_second_attempt_at_the_whole_table_does_not_go_back(self):
        pace = Pace()
        said = [pace.foresee(Progress("whole", 1, fraction=share)).fraction for share in (0.1, 0.6, 0.2, 0.7)]
        assert said == [0.1, 0.6, 0.6, 0.7]

    def test_a_fit_within_a_stage_counts_there_and_tells_no_stage_of_its_own(self):
        told = []
        whole = Watch((told.append,))
        whole.begin("choices", {})
        for _ in range(2):
            trial = InStage(whole=whole)
            trial.expect(PLAN)
            trial.begin("start", {})
            trial.following(lambda z: {})(1.0, np.zeros(0))
        assert [(event.stage, event.iteration) for event in told] == [("choices", k) for k in range(3)]
        assert whole.plan == ()


class TestPace:
    @given(st.floats(0.01, 1e4), st.floats(0, 1e3))
    def test_at_a_steady_pace_the_time_left_is_right(self, total, compiling):
        pace = Pace()
        assert pace.foresee(Progress("start", rows=700)).seconds_left is None
        for k in range(1, 11):
            # The first iteration compiles, which says nothing about the others.
            event = Progress("start", k, rows=700, seconds=compiling + total * k / 10, fraction=k / 10)
            left = pace.foresee(event).seconds_left
            if k > 1:
                rounding = 1e-6 * (total + compiling)
                assert left == pytest.approx(total * (1 - k / 10), abs=rounding)

    def test_a_stage_that_is_slower_than_planned_is_believed(self):
        pace = Pace()
        for k in range(1, 6):
            pace.foresee(Progress("start", k, rows=700, seconds=float(k), fraction=0.1 * k))
        for k in range(1, 5):
            event = Progress("whole", k, rows=9000, seconds=5 + 10.0 * k, fraction=0.5 + 0.1 * k)
            event = pace.foresee(event)
        assert event.seconds_left == pytest.approx(10.0)


class TestDisplay:
    EVENT = Progress("coarse", 3, 12.5, {"w": np.array(0.5)}, rows=2050, seconds=3.0, fraction=0.4)

    def facts(self, budget=None, **changes):
        display = FitDisplay(Console(file=io.StringIO(), width=100), budget)
        display.update(replace(self.EVENT, **changes))
        return display.facts()

    def test_stage_rows_and_estimate(self):
        facts = self.facts(seconds_left=125.9)
        assert facts["stage"] == "coarse, 2,050 rows" and facts["iteration"] == "3"
        assert facts["time"].startswith("0:00, about 2:05 left (estimate)")

    def test_nothing_is_promised_without_a_pace(self):
        assert "left" not in self.facts()["time"]
        assert "left" not in FitDisplay(Console(file=io.StringIO())).facts()["time"]

    def test_a_budget_is_shown_beside_the_estimate(self):
        time = self.facts(seconds_left=700.0, budget=60.0)["time"]
        assert "11:39 left (estimate)" in time and "0:59 left of the budget" in time

    def test_it_can_be_called_with_anything_a_fit_may_say(self):
        display = FitDisplay(Console(file=io.StringIO(), force_terminal=True, width=100))
        with display:
            for values in ({}, {"sigma_u2": np.array([1.0, 2.0])}, {"w": np.array(np.nan)}):
                for objective in (math.nan, math.inf, -1e300):
                    display.update(Progress("whole", 0, objective, values, seconds_left=1e9))
                    assert display.view().row_count == len(display.facts())
