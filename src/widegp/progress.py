"""How far a fit is: a line per iteration for those who ask, and a call for those who show it their own way.

    fit(X, y, progress=f)   calls   f(stage, iteration, objective, values)
    or, where f has such a parameter, f(stage, iteration, objective, values, outlook=Outlook(...))

A callback with ``outlook`` hears of every stage, in the order of `STAGES`: as it begins, with iteration 0 and
an objective of NaN, then of each of its iterations. One without hears of the iterations over the whole table
alone, as stage "fit". ``values`` are the parameters by name. What a callback raises ends the fit.
"""

from __future__ import annotations

import inspect
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np

from widegp.cost import EVALUATIONS_PER_ITERATION, Stage

STAGES = ("start", "coarse", "whole", "posterior", "curvature")
# Share of the work from which on the pace of the present stage counts instead of that of all stages.
TRUSTED_SHARE = 0.1

Values = dict[str, np.ndarray]
# stage, iteration, objective, values, rows of the stage, share of the predicted work that is done
Report = Callable[[str, int, float, Values, int, float], None]


@dataclass(frozen=True)
class Outlook:
    """Rows of the present stage, seconds so far, and two estimates.

    fraction : share of the predicted work that is done; it never falls.
    seconds_left : at the pace so far; None before there is one.
    """

    rows: int
    seconds: float
    fraction: float
    seconds_left: float | None


@dataclass
class Watch:
    """Counts the iterations of each stage of ``plan`` and passes them on to ``report``."""

    report: Report | None = None
    plan: tuple[Stage, ...] = ()
    stage: str = ""
    rows: int = 0
    iteration: int = field(default=0, init=False)

    def begin(self, stage: str, values: Values, rows: int | None = None) -> None:
        """A stage of the plan begins; ``rows`` tells coarse ones apart."""
        planned = [s for s in self.plan if s.name == stage and rows in (None, s.rows)]
        self.stage, self.rows = stage, rows or (planned[0].rows if planned else 0)
        self.iteration = 0
        self._tell(math.nan, values)

    def following(self, unpack: Callable[[np.ndarray], Values]) -> Callable[[int, float, np.ndarray], None]:
        """What an optimiser calls after each iteration; ``unpack`` makes parameters of its vector."""

        def iterated(_: int, value: float, z: np.ndarray) -> None:
            self.iteration += 1
            if self.report is not None:
                self._tell(value, unpack(z))

        return iterated

    def _tell(self, value: float, values: Values) -> None:
        if self.report is not None:
            self.report(self.stage, self.iteration, value, values, self.rows, self.fraction())

    def fraction(self) -> float:
        """Share of the plan's seconds that lie behind."""
        total = sum(stage.seconds for stage in self.plan)
        done = 0.0
        for stage in self.plan:
            if (stage.name, stage.rows) == (self.stage, self.rows):
                done += stage.seconds * _share(stage, self.iteration)
                break
            done += stage.seconds
        return done / total if total > 0 else 0.0


def _share(stage: Stage, iterations: int) -> float:
    """Share of a stage after some iterations: as planned up to 0.8, then ever slower, never 1."""
    if iterations == 0 or stage.seconds == 0:
        return 0.0
    share = (stage.before + stage.each * EVALUATIONS_PER_ITERATION * iterations) / stage.seconds
    return share if share <= 0.8 else 1.0 - 0.2 * math.exp(-(share - 0.8) / 0.2)


class Progress:
    """Prints stage, iteration, objective and seconds to stderr when ``verbose`` is at least 1."""

    def __init__(self, verbose: int, report: Callable[..., None] | None = None) -> None:
        self.verbose, self.report = verbose, report
        self.with_outlook = report is not None and takes_outlook(report)
        self.began = time.perf_counter()
        self.pace = Pace()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def update(
        self, stage: str, iteration: int, value: float, values: Values, rows: int = 0, fraction: float = 0.0
    ) -> None:
        elapsed = time.perf_counter() - self.began
        outlook = self.pace.outlook(stage, rows, iteration, elapsed, fraction)
        if self.report is not None and self.with_outlook:
            self.report(stage, iteration, value, values, outlook=outlook)
        elif self.report is not None and stage == "whole" and iteration > 0:
            self.report("fit", iteration, value, values)
        if self.verbose:
            print(line(stage, iteration, value, values, outlook), file=sys.stderr)


@dataclass
class Pace:
    """Seconds per share of the work, since the first iteration of all and since that of the present stage.

    What comes before a first iteration is left out: there code is compiled and neighbours are searched.
    """

    fraction: float = 0.0
    stage: tuple[str, int] = ("", 0)
    first: tuple[float, float] | None = None
    first_here: tuple[float, float] | None = None

    def outlook(self, stage: str, rows: int, iteration: int, elapsed: float, fraction: float) -> Outlook:
        """After ``elapsed`` seconds and ``fraction`` of the work."""
        self.fraction = max(self.fraction, min(fraction, 1.0))
        now = (elapsed, self.fraction)
        if self.stage != (stage, rows):
            self.stage, self.first_here = (stage, rows), None
        if iteration > 0:
            self.first, self.first_here = self.first or now, self.first_here or now
        left = None
        for mark, enough in ((self.first, 0.0), (self.first_here, TRUSTED_SHARE)):
            if mark is not None and self.fraction - mark[1] > enough:
                left = (1.0 - self.fraction) * (elapsed - mark[0]) / (self.fraction - mark[1])
        return Outlook(rows, elapsed, self.fraction, left)


def takes_outlook(report: Callable[..., Any]) -> bool:
    """Whether a callback has a parameter named ``outlook``."""
    try:
        return "outlook" in inspect.signature(report).parameters
    except (TypeError, ValueError):  # some callables written in C have no signature
        return False


def line(stage: str, iteration: int, value: float, values: Values, outlook: Outlook) -> str:
    """One line of text about one iteration."""
    where = stage_name(stage, outlook.rows)
    if iteration == 0:
        return f"{where}  {outlook.seconds:.1f} s"
    shown = "  ".join(f"{k} {float(np.mean(v)):.4g}" for k, v in values.items() if k != "psi")
    return f"{where} {iteration:4d}  objective {value:14.4f}  {outlook.seconds:7.1f} s  {shown}"


def stage_name(stage: str, rows: int) -> str:
    """The stage, and where that does not tell it from others the rows: coarse, 4,750 rows."""
    return f"{stage}, {rows:,} rows" if stage == "coarse" and rows else stage
