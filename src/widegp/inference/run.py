"""How an objective is minimised: the settings of an optimiser, and what all stages of a fit share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from widegp.inference.batches import Batches, BatchHessian
from widegp.inference.descent import descend, polished
from widegp.inference.journal import Journal, Journaled
from widegp.inference.objective import MapObjective
from widegp.inference.optimizers import GAIN, KnownAnswer, Objective, Task, Timed, adam, least_gain
from widegp.inference.parameters import Values
from widegp.inference.result import Optimum
from widegp.inference.watch import Watch


@dataclass(frozen=True)
class OptimizerSettings:
    """How an optimiser runs.

    max_iter : iterations or steps.    seconds : left of a budget.    gain : nats that a BFGS step must gain.
    rate, noise_rate, batch_rows, seed : of Adam and its batches.
    explore : whether several starts are compared. Parts of the table are then fitted before the whole.
    parts : whether they are fitted first in any case.
    exact : whether an optimum of few rows is found to the precision of the loss.
    """

    name: str
    max_iter: int
    rate: float = 1e-3
    noise_rate: float = 1e-3
    seconds: float | None = None
    explore: bool = True
    batch_rows: int | None = None
    seed: int = 0
    parts: bool = False
    gain: float = GAIN
    exact: bool = True


@dataclass(frozen=True)
class Run:
    """What every stage of a fit shares: settings, the reading of the clock at which it must end, who is told
    of it, and where its evaluations are written down.
    """

    settings: OptimizerSettings
    watch: Watch = field(default_factory=Watch)
    deadline: float | None = None
    journal: Journal | None = None

    def journaled(self, objective: MapObjective) -> Objective:
        """The objective, answered from the journal where it can be."""
        return objective if self.journal is None else Journaled(objective, self.journal)

    def late(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.perf_counter() > self.deadline

    def task(
        self, objective: MapObjective, max_iter: int, known: KnownAnswer | None = None,
        elsewhere: BatchHessian | None = None,
    ) -> Task:  # fmt: skip
        """What an optimiser is given: the objective, of batches if asked for, until the time is up."""
        wrapped = self.journaled(objective)
        if known is not None:
            wrapped = known.before(wrapped)
        if self.settings.batch_rows is not None and self.settings.name == "adam":
            rng = np.random.default_rng(self.settings.seed)
            wrapped = Batches(objective, self.settings.batch_rows, rng, self.journaled)
        if self.deadline is not None:
            wrapped = Timed(wrapped, self.deadline)
        following = self.watch.following(objective.space.unpack)
        bounds, gain = objective.space.bounds(), max(self.settings.gain, least_gain(objective.n_rows))
        return Task(wrapped, bounds, objective.n_rows, max_iter, following, gain, elsewhere)

    def optimise(
        self, objective: MapObjective, values: Values, max_iter: int, curvature: np.ndarray | None,
        known: KnownAnswer | None = None, elsewhere: BatchHessian | None = None,
    ) -> Optimum:  # fmt: skip
        task, z = self.task(objective, max_iter, known, elsewhere), objective.space.pack(values)
        if self.settings.name == "lbfgs":
            found = descend(task, z, curvature)
            return polished(task, found) if self.settings.exact else found
        by_name = {"sigma_eps2": self.settings.noise_rate}
        labels = objective.space.labels()
        return adam(task, z, np.array([by_name.get(label, self.settings.rate) for label in labels]))
