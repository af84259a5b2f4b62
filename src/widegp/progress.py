"""How far a computation is: one event, and one call for whoever wants to know.

    fit(X, y, progress=f)   calls   f(Progress(stage, iteration, objective, values, ...))

A fit tells of every stage, in the order of `STAGES`: as it begins, with iteration 0 and an objective of NaN,
then of each of its iterations; a stage that is tried from several starts begins with each of them. What a
callback raises ends the computation.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

STAGES = ("choices", "start", "coarse", "batch", "whole", "posterior", "curvature")


@dataclass(frozen=True)
class Progress:
    """One step of a computation.

    stage : its name.    iteration : steps done in it.    total : steps in all, where that is known.
    objective : of a fit, the MAP loss of eq. (map_loss_body), which falls.    values : parameters by name.
    rows : of the table or the part of it that the stage works on.    seconds : since the computation began.
    fraction : share of the predicted work that is done; it never falls.
    seconds_left : at the pace so far; None before there is one.
    """

    stage: str
    iteration: int = 0
    objective: float = math.nan
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    rows: int = 0
    seconds: float = 0.0
    fraction: float = 0.0
    seconds_left: float | None = None
    total: int | None = None

    @classmethod
    def step(cls, stage: str, done: int, total: int) -> Self:
        """After ``done`` of ``total`` equal steps."""
        return cls(stage, done, fraction=done / max(total, 1), total=total)

    @property
    def place(self) -> str:
        """The stage, and where that does not tell it from others the rows: coarse, 4,750 rows."""
        return f"{self.stage}, {self.rows:,} rows" if self.stage == "coarse" and self.rows else self.stage

    def __str__(self) -> str:
        """One line of text."""
        if self.iteration == 0:
            return f"{self.place}  {self.seconds:.1f} s"
        shown = "  ".join(f"{k} {float(np.mean(v)):.4g}" for k, v in self.values.items() if k != "psi")
        where = f"{self.place} {self.iteration:4d}  objective {self.objective:14.4f}"
        return f"{where}  {self.seconds:7.1f} s  {shown}"


Listener = Callable[[Progress], None]


def print_line(event: Progress) -> None:
    """The listener of ``verbose=1``: a line on stderr."""
    print(event, file=sys.stderr)
