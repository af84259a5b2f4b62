"""How the loss of a table curves, told by a part of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from widegp.approximations.build import Builder
from widegp.inference.objective import MapObjective, Problem
from widegp.inference.optimizers import Objective, curvature_at, differences
from widegp.inference.parameters import ParameterSpace

# Share of the rows, and their least number, that tell how the loss of a large table curves. A Hessian says
# how long a step should be, not where the optimum is: for that a part is enough.
SHARE, LEAST_ROWS = 1 / 16, 5_000
# Tables of fewer rows than so many times the part say it themselves.
WORTHWHILE = 8


@dataclass(frozen=True)
class PartHessian:
    """z -> d^2 L / dz^2 per row (p, p) of the loss of a random part of the rows, or None where it fails.

    ``journaled`` makes of an objective what is evaluated; the rest is the whole table, as a fit has it.
    """

    journaled: Callable[[MapObjective], Objective]
    builder: Builder
    problem: Problem
    space: ParameterSpace
    n_part: int

    @classmethod
    def of(
        cls, journaled: Callable[[MapObjective], Objective], builder: Builder, problem: Problem,
        space: ParameterSpace,
    ) -> Self | None:  # fmt: skip
        """None where the table is so small, or so dense, that a part spares nothing."""
        n = len(builder.X)
        part = max(LEAST_ROWS, int(SHARE * n))
        if not builder.approximation.coarse or n < WORTHWHILE * part:
            return None
        return cls(journaled, builder, problem, space, part)

    def __call__(self, z: np.ndarray) -> np.ndarray | None:
        order = np.random.default_rng(self.builder.seed + 2).permutation(len(self.builder.X))
        rows = order[: self.n_part]
        kernel = self.problem.kernel_at(self.space.unpack(z))
        likelihood = self.builder.subset(rows).build(kernel)
        objective = self.problem.restricted(rows).on(likelihood, self.space)
        evaluate = self.journaled(objective)
        here = evaluate(z)
        if here.problem is not None:
            return None
        H = curvature_at(evaluate, z, here.gradient, objective.n_rows)
        return None if H is None else of_more_rows(H, objective, z, self.problem.count)


def of_more_rows(H: np.ndarray, objective: MapObjective, z: np.ndarray, rows: float) -> np.ndarray:
    """The Hessian per row H (p, p) of an objective at z, as it would be for ``rows`` rows.

    The prior counts once, however many rows there are: the more of them, the less of it per row. Left as it
    is, steps along directions that the prior decides would be too short, and many.
    """
    prior = differences(objective.prior_gradient, z, objective.prior_gradient(z))
    return H - prior * (1 / objective.n_rows - 1 / rows)
