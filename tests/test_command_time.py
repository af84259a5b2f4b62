"""The time of a whole command: what follows a fit is planned, told, and kept within a budget."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from widegp import TableModel
from widegp.command_time import (
    BOOSTING,
    CONDITIONING,
    PREDICTING,
    SHUFFLING,
    AfterFit,
    CommandTime,
)
from widegp.cost import Calibration, Size, prediction_seconds
from widegp.fitted import FittedGP
from widegp.importance import prepare
from widegp.progress import Progress
from widegp.table_split import Split

FULL_SCALE = Size("full-scale", 50_000, 10, 200, 30)


class Clock:
    """Seconds as told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def timed(budget: float | None = None, heard: list | None = None) -> tuple[CommandTime, Clock]:
    clock = Clock()
    time = CommandTime(None if heard is None else heard.append, budget, clock)
    time.expect((50_000, 10), AfterFit(5_000, 10), {})
    return time, clock


class TestPlan:
    def test_stages_follow_each_other_and_cost_what_predictions_cost(self):
        stages = AfterFit(5_000, 10).plan(FULL_SCALE, Calibration())
        assert [stage.name for stage in stages] == [PREDICTING, SHUFFLING, BOOSTING, CONDITIONING]
        each = prediction_seconds(FULL_SCALE, 400, Calibration(), 5_000)
        assert stages[0].seconds == pytest.approx(5_000 * each)
        assert all(stage.seconds > 0 for stage in stages)

    def test_without_held_out_rows_nothing_follows(self):
        assert AfterFit(0, 10).plan(FULL_SCALE, Calibration()) == ()

    @pytest.mark.parametrize(("rows", "columns"), [(3, 2), (50, 1), (400, 7), (9_000, 3), (9_000, 300)])
    @pytest.mark.parametrize("slow", [False, True])
    def test_shuffled_rows_are_those_that_the_shuffles_predict(self, rows, columns, slow, monkeypatch):
        monkeypatch.setattr("widegp.importance._predicted", lambda fitted, X, y: (X[:, 0], None))
        fitted = object.__new__(FittedGP)
        vars(fitted)["rows"] = object() if slow else None
        base = prepare(fitted, np.zeros((rows, 2)), None, columns)
        assert AfterFit(rows, columns).shuffled(slow) == len(base.X) * (1 + len(base.shifts) * columns)


class TestTimeLeft:
    def test_what_follows_the_fit_counts_at_the_pace_of_the_fit(self):
        heard: list[Progress] = []
        time, _ = timed(heard=heard)
        # Half of a fit that takes three times as long as planned.
        half = 1.5 * time.planned
        time.fitting(Progress("whole", 5, seconds=half, fraction=0.5, seconds_left=half))
        after = sum(stage.seconds for stage in time.after)
        assert heard[-1].seconds_left == pytest.approx(half + 3 * after)
        assert heard[-1].fraction == pytest.approx(0.5 * time.planned / (time.planned + after))
        time(SHUFFLING)
        assert heard[-1].seconds_left == pytest.approx(3 * (after - time.after[0].seconds))
        assert 0.5 < heard[-1].fraction < 1

    def test_before_there_is_a_pace_no_time_is_told(self):
        heard: list[Progress] = []
        time, clock = timed(heard=heard)
        clock.now = 4.0
        time("reading the table")
        time.fitting(Progress("choices"))
        assert [event.seconds_left for event in heard] == [None, None]
        assert [event.seconds for event in heard] == [4.0, 4.0]


class TestBudget:
    def test_the_fit_gets_what_the_rest_leaves(self):
        time, clock = timed(budget=1000.0)
        clock.now = 10.0
        after = sum(stage.seconds for stage in time.after)
        assert time.for_the_fit() == pytest.approx(990 - 1.3 * after)
        clock.now = 999.0
        assert time.for_the_fit() == pytest.approx(0.3)
        assert timed()[0].for_the_fit() is None

    def test_what_does_not_fit_is_left_out_or_cut(self):
        time, clock = timed(budget=100.0)
        assert time.allows(BOOSTING) and time.affordable(0.25) == 240
        clock.now = 99.9
        assert not time.allows(BOOSTING) and not time.allows(CONDITIONING)
        assert time.affordable(0.02) == 2
        free = timed()[0]
        assert free.allows(BOOSTING) and free.affordable(0.1) is None

    def test_a_machine_that_others_use_leaves_the_fit_less(self):
        clock, busy = Clock(), Clock()
        time = CommandTime(None, 1000.0, clock, busy)
        clock.now, busy.now = 12.0, 4.0
        time.expect((50_000, 10), AfterFit(5_000, 10), {})
        assert time.pace == 3.0
        after = sum(stage.seconds for stage in time.after)
        assert time.for_the_fit() == pytest.approx(988 - 1.3 * 3 * after)

    def test_so_many_rows_are_scored_as_there_is_time_for(self):
        time, clock = timed(budget=100.0)
        rows = np.arange(30_000.0)[:, None]

        def predict(X: np.ndarray) -> None:
            clock.now += 0.05 * len(X)

        # 32 rows take 1.6 s, and of the rest 60% is for a twentieth of a second each.
        split = Split(None, rows, rows[:, 0], 10_000, np.arange(1, 30_001))
        assert len(time.thinned(split, predict, 0).y_test) == int(0.6 * 98.4 / 0.05)
        assert timed()[0].thinned(split, predict, 0) is split

    def test_held_out_rows_are_thinned_at_random_and_keep_their_targets(self):
        rows = np.arange(3000.0)[:, None]
        split = Split(None, rows, 2 * rows[:, 0], 1000, np.arange(1, 3001))
        some = split.scored(500, seed=1)
        assert len(some.y_test) == 500 and np.array_equal(some.y_test, 2 * some.X_test[:, 0])
        assert some.X_test.min() >= 1000 and np.ptp(some.X_test) > 1500
        np.testing.assert_array_equal(np.sort(some.rows[:, 0]), rows[:, 0])
        np.testing.assert_array_equal(some.X, split.X)
        np.testing.assert_array_equal(some.numbers, some.rows[:, 0] + 1)
        assert len(split.scored(1, seed=1).y_test) == 200 and split.scored(None) is split

    def test_a_whole_command_keeps_to_it(self, monkeypatch):
        """With a clock on which every look costs a second the aftermath is cut, and the model still made."""
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"x": rng.uniform(size=400), "z": rng.uniform(size=400)})
        frame["y"] = frame.x + 0.1 * rng.normal(size=400)
        ticks = iter(range(10_000))
        monkeypatch.setattr(CommandTime, "spent", property(lambda self: float(next(ticks))))
        settings = {"approximation": "vfe", "rank": 5, "max_iter": 2, "budget": 6.0, "test_fraction": 0.6}
        with pytest.warns(UserWarning):
            model = TableModel.fit(frame, "y", **settings)
        assert model.provenance["yardstick"] is None
        assert model.provenance["rows_conditioned_on"] == 160
