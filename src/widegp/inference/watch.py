"""Who is told how far a fit is: iterations counted by stage, with the time left by the plan of its work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from widegp.cost import EVALUATIONS_PER_ITERATION, Stage
from widegp.inference.parameters import Values
from widegp.progress import Listener, Progress

# Once this share of the work was done in the present stage, its own pace tells the time left, instead of that
# of all stages.
TRUSTED_SHARE = 0.1

Iterated = Callable[[float, np.ndarray], None]


@dataclass
class Watch:
    """Counts the iterations of each stage of ``plan`` and tells the ``listeners`` of them."""

    listeners: tuple[Listener, ...] = ()
    plan: tuple[Stage, ...] = ()
    stage: str = ""
    rows: int = 0
    iteration: int = field(default=0, init=False)
    began: float = field(default_factory=time.perf_counter)
    pace: Pace = field(default_factory=lambda: Pace())

    def expect(self, plan: tuple[Stage, ...]) -> None:
        """Set the plan of stages unless an enclosing fit has set it."""
        self.plan = self.plan or plan

    def begin(self, stage: str, values: Values, rows: int | None = None) -> None:
        """A stage of the plan begins; ``rows`` tells coarse ones apart."""
        planned = [s for s in self.plan if s.name == stage and rows in (None, s.rows)]
        self.stage, self.rows = stage, rows or (planned[0].rows if planned else 0)
        self.iteration = 0
        self._tell(math.nan, values)

    def again(self, values: Values) -> None:
        """The same stage begins from another start."""
        self.begin(self.stage, values, self.rows or None)

    def following(self, unpack: Callable[[np.ndarray], Values]) -> Iterated:
        """What an optimiser calls after each iteration; ``unpack`` makes parameters of its vector."""

        def iterated(value: float, z: np.ndarray) -> None:
            self.iteration += 1
            if self.listeners:
                self._tell(value, unpack(z))

        return iterated

    def _tell(self, value: float, values: Values) -> None:
        seconds = time.perf_counter() - self.began
        event = Progress(self.stage, self.iteration, value, values, self.rows, seconds, self.fraction())
        event = self.pace.foresee(event)
        for listener in self.listeners:
            listener(event)

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


@dataclass
class InStage(Watch):
    """The watch of a fit that is one step in a stage of a larger fit: its iterations count there, and its own
    stages are not told."""

    whole: Watch = field(default_factory=Watch)

    def expect(self, plan: tuple[Stage, ...]) -> None:
        return None

    def begin(self, stage: str, values: Values, rows: int | None = None) -> None:
        return None

    def following(self, unpack: Callable[[np.ndarray], Values]) -> Iterated:
        return self.whole.following(unpack)


def _share(stage: Stage, iterations: int) -> float:
    """Share of a stage after some iterations: as planned up to 0.8, then ever slower, never 1."""
    if iterations == 0 or stage.seconds == 0:
        return 0.0
    share = (stage.before + stage.each * EVALUATIONS_PER_ITERATION * iterations) / stage.seconds
    return share if share <= 0.8 else 1.0 - 0.2 * math.exp(-(share - 0.8) / 0.2)


@dataclass
class Pace:
    """Seconds per share of the work, since the first iteration of all and since that of the present stage.

    What comes before a first iteration is left out: there code is compiled and neighbours are searched.
    """

    fraction: float = 0.0
    stage: tuple[str, int] = ("", 0)
    first: tuple[float, float] | None = None
    first_here: tuple[float, float] | None = None

    def foresee(self, event: Progress) -> Progress:
        """The event with a share of the work that does not fall, and with the time that is left."""
        self.fraction = max(self.fraction, min(event.fraction, 1.0))
        now = (event.seconds, self.fraction)
        if self.stage != (event.stage, event.rows):
            self.stage, self.first_here = (event.stage, event.rows), None
        if event.iteration > 0:
            self.first, self.first_here = self.first or now, self.first_here or now
        left = None
        for mark, enough in ((self.first, 0.0), (self.first_here, TRUSTED_SHARE)):
            if mark is not None and self.fraction - mark[1] > enough:
                left = (1.0 - self.fraction) * (event.seconds - mark[0]) / (self.fraction - mark[1])
        return replace(event, fraction=self.fraction, seconds_left=left)
