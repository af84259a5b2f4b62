"""The time of a command that fits a table: what follows the fit, what that costs, and what is left of all.

    left = left of the fit + pace (predicting + shuffling + boosting + conditioning),
    pace = seconds that the fit takes by now / seconds that its plan has for it

A budget is for the whole command: the fit gets what is planned to remain beside the work after it, and that
work is cut to what the fit has left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from widegp.approximations.layout import Dials
from widegp.choices.plan import chosen_plan
from widegp.cost import Calibration, Size, Stage, evaluation_seconds, prediction_seconds, search_seconds
from widegp.importance import LEAST_ROWS, MOST_REPEATS, PREDICTIONS, PREDICTIONS_SLOW
from widegp.inference.choose import choose_dials
from widegp.inference.plan import fit_plan
from widegp.progress import Listener, Progress
from widegp.table_split import Split

PREDICTING, SHUFFLING = "predicting the held-out rows", "shuffling the columns"
BOOSTING, CONDITIONING = "gradient boosting beside it", "conditioning on all rows"
# Seconds of boosting: fixed, and per number, up to BOOSTING_CELLS; 100 trees, one core of 2020 or later.
BOOSTING_FIXED, BOOSTING_EACH, BOOSTING_CELLS = 0.5, 1e-6, 5_000_000
# Shares of a budget: what the fit gets at least, and what is left of the rest that predictions may take.
LEAST_FIT, PREDICTED = 0.3, 0.6
# A plan is right to some tens of per cent.
SPARE = 1.3
# Where others compute too a second of work takes more than one, but a pace beyond this is an accident.
SLOWEST = 10.0
TIMED_ROWS = 32


@dataclass(frozen=True)
class AfterFit:
    """What is done after a fit: rows and columns of the table, and neighbours of a prediction.

    held_out : rows that are scored.    columns : of the table, each shuffled by itself.
    """

    held_out: int
    columns: int
    predict_neighbors: int = 400

    def plan(self, size: Size, rates: Calibration) -> tuple[Stage, ...]:
        """The stages after the fit of a table of ``size`` with their seconds; none without held-out rows."""
        if not self.held_out:
            return ()
        each = prediction_seconds(size, self.predict_neighbors, rates, self.held_out)
        whole = replace(size, n_rows=size.n_rows + self.held_out)
        again = 0.4 * evaluation_seconds(whole, rates)
        again += search_seconds(whole, rates) if size.shape.m else 0.0
        cells = min(size.n_rows * size.n_inputs, BOOSTING_CELLS)
        return (
            Stage(PREDICTING, self.held_out, 0.0, each, self.held_out),
            Stage(SHUFFLING, self.held_out, 0.0, each, self.shuffled(bool(size.shape.m))),
            Stage(BOOSTING, size.n_rows, BOOSTING_FIXED + BOOSTING_EACH * cells, 0.0, 0),
            Stage(CONDITIONING, whole.n_rows, again, 0.0, 0),
        )

    def shuffled(self, slow: bool) -> int:
        """Predictions of shuffled rows, as `widegp.importance.prepare` counts them."""
        most, columns = PREDICTIONS_SLOW if slow else PREDICTIONS, max(1, self.columns)
        rows = max(2, min(self.held_out, max(LEAST_ROWS, most // columns)) // 2 * 2)
        repeats = min(most // (rows * columns), MOST_REPEATS, rows - 2) // 2 * 2
        return rows * (1 + max(1, repeats) * columns)


@dataclass
class CommandTime:
    """Tells a ``listener`` of the stages of a command, called with their names, and of the steps of its fit.

    budget : seconds for all of it, or None.    clock : seconds that rise.
    busy : seconds that the process has computed; where others compute too, they rise more slowly.
    """

    listener: Listener | None = None
    budget: float | None = None
    clock: Callable[[], float] = time.perf_counter
    busy: Callable[[], float] = time.process_time
    after: tuple[Stage, ...] = ()
    planned: float = 0.0
    pace: float = 1.0
    began: float = field(init=False)
    was_busy: float = field(init=False)

    def __post_init__(self) -> None:
        self.began, self.was_busy = self.clock(), self.busy()

    @property
    def spent(self) -> float:
        return self.clock() - self.began

    def expect(self, shape: tuple[int, ...], after_fit: AfterFit, settings: Mapping[str, Any]) -> None:
        """Plan the fit of rows of ``shape`` (n, I) with the ``settings`` of a regressor, and what follows."""
        get = settings.get
        rank, neighbors = int(get("rank", 500)), int(get("neighbors", 30))
        asked = Dials(str(get("approximation", "auto")), rank, neighbors, "kmeans", "random", None)
        ard = bool(get("ard", False))
        size = Size.of(choose_dials(asked, shape[0], shape[1], ard, None), shape, ard)
        plain = ard or self.budget is not None or get("metric", "auto") == "iso"
        stages = (fit_plan if plain else chosen_plan)(size, Calibration())
        self.planned = sum(stage.seconds for stage in stages)
        # Until the fit shows its own pace, that of reading the table: how long a second of work took.
        computed = self.busy() - self.was_busy
        self.pace = min(max(self.spent / computed if computed > 0 else 1.0, 1.0), SLOWEST)
        self.after = after_fit.plan(size, Calibration())

    def for_the_fit(self) -> float | None:
        """Seconds of the budget that the fit may take."""
        if self.budget is None:
            return None
        left = self.budget - self.spent
        after = self.pace * sum(stage.seconds for stage in self.after)
        return max(LEAST_FIT * left, left - SPARE * after, 0.0)

    def __call__(self, stage: str) -> None:
        """A stage of the command begins."""
        names = [one.name for one in self.after]
        to_come = self.after[names.index(stage) :] if stage in names else ()
        left = self.pace * sum(one.seconds for one in to_come) if to_come else None
        self._tell(Progress(stage, fraction=self._share(to_come) if to_come else 0.0, seconds_left=left))

    def fitting(self, event: Progress) -> None:
        """What the fit tells, with the time left for what comes after it."""
        left = event.seconds_left
        if left is not None and self.planned > 0:
            self.pace = (event.seconds + left) / self.planned
            left += self.pace * sum(stage.seconds for stage in self.after)
        self._tell(replace(event, fraction=event.fraction * self._share(self.after), seconds_left=left))

    def _share(self, to_come: tuple[Stage, ...]) -> float:
        """Share of the planned seconds that are done when the stages ``to_come`` are not."""
        total = self.planned + sum(stage.seconds for stage in self.after)
        return 1 - sum(stage.seconds for stage in to_come) / total if total > 0 else 0.0

    def _tell(self, event: Progress) -> None:
        if self.listener is not None:
            self.listener(replace(event, seconds=self.spent))

    def allows(self, stage: str) -> bool:
        """Whether a stage after the fit is planned to end within the budget."""
        planned = sum(one.seconds for one in self.after if one.name == stage)
        return self.budget is None or self.pace * planned <= self.budget - self.spent

    def affordable(self, each: float) -> int | None:
        """Predictions of ``each`` so many seconds that a stage may make; None without a budget: all."""
        if self.budget is None:
            return None
        return int(max(0.0, PREDICTED * (self.budget - self.spent)) / max(each, 1e-9))

    def thinned(self, split: Split, predict: Callable[[np.ndarray], Any], seed: int) -> Split:
        """The split with as many held-out rows to score as the budget has time to ``predict``.

        Some of them are predicted for that: how long one takes is known best from themselves.
        """
        few = split.X_test[:TIMED_ROWS]
        if self.budget is None or len(few) == 0:
            return split
        began = self.spent
        predict(few)
        return split.scored(self.affordable((self.spent - began) / len(few)), seed)
