"""Losses of large tables estimated from some of their rows, each of them given its neighbours among all.

A fit to a part of a table sees neighbours that lie further apart than those of the whole, and its optimum
moves as rows are added. A batch keeps anchors and neighbours as they are: only its sums are of fewer rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from widegp.inference.objective import Answer, MapObjective
from widegp.inference.optimizers import Objective, curvature_at
from widegp.inference.plan import ahead_rows

# Share of the rows, and their least and most, that tell how the loss of a large table curves. A Hessian says
# how long a step should be, not where the optimum is: for that a batch is enough.
SHARE, LEAST_ROWS, MOST_ROWS = 1 / 16, 5_000, 20_000
# A table with fewer than WORTHWHILE batches of rows is used whole.
WORTHWHILE = 8


def of_rows(objective: MapObjective, count: int, rng: np.random.Generator) -> MapObjective:
    """L(z) with its sums over ``count`` rows, drawn without replacement, times n / ``count``."""
    whole = objective.likelihood
    rows = rng.choice(whole.n_rows, min(count, whole.n_rows), replace=False)
    return replace(objective, likelihood=whole.batch(np.sort(rows)))


def ahead_of(objective: MapObjective, seed: int) -> MapObjective | None:
    """The loss of a batch, whose optimum is where to begin on a table with many rows and neighbours; None
    where there are so few rows, or no neighbours, that it spares nothing.

    The minimum of b rows is about p / 2 * n / b nats above that of all n, p parameters: one or two steps.
    """
    shape = objective.likelihood.summed
    if shape is None:
        return None
    count = ahead_rows(shape.n, shape.m, shape.r)
    return of_rows(objective, count, np.random.default_rng(seed + 2)) if count else None


@dataclass(frozen=True)
class BatchHessian:
    """z -> d^2 L / dz^2 per row (p, p) of the loss of a batch, or None where it fails.

    ``journaled`` wraps an objective so that its answers go to the journal.
    """

    journaled: Callable[[MapObjective], Objective]
    whole: MapObjective
    count: int
    seed: int

    @classmethod
    def of(
        cls, journaled: Callable[[MapObjective], Objective], whole: MapObjective, seed: int
    ) -> BatchHessian | None:
        """None where the table is so small, or so dense, that a batch spares nothing."""
        n = whole.likelihood.n_rows
        count = min(max(LEAST_ROWS, int(SHARE * n)), MOST_ROWS)
        if whole.likelihood.summed is None or n < WORTHWHILE * count:
            return None
        return cls(journaled, whole, count, seed + 2)

    def __call__(self, z: np.ndarray) -> np.ndarray | None:
        batch = of_rows(self.whole, self.count, np.random.default_rng(self.seed))
        evaluate = self.journaled(batch)
        here = evaluate(z)
        if here.problem is not None:
            return None
        return curvature_at(evaluate, z, here.gradient, batch.n_rows)


@dataclass
class Batches:
    """The objective estimated at every call from another ``size`` random rows."""

    whole: MapObjective
    size: int
    rng: np.random.Generator
    journaled: Callable[[MapObjective], Objective]

    def __call__(self, z: np.ndarray) -> Answer:
        # The rows are drawn whether or not the journal knows the answer: a fit gone on with draws the same.
        return self.journaled(of_rows(self.whole, self.size, self.rng))(z)
