"""How a fit ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np


class Reason(StrEnum):
    """Why an optimiser stopped."""

    CONVERGED = "converged"
    PRECISION = "converged to the precision of the objective"
    MAX_ITER = "iteration limit reached"
    BUDGET = "time budget spent"
    FAILED = "numerical failure"
    FIXED = "nothing to estimate"

    @property
    def converged(self) -> bool:
        return self in (Reason.CONVERGED, Reason.PRECISION, Reason.FIXED)


@dataclass(frozen=True)
class Optimum:
    """Where an optimiser stopped: z (p,), the objective and gradient there, its path, and why.

    ``curvature`` (p, p) is the Hessian per row where the optimiser keeps one, ``jitter`` the largest share of
    the mean diagonal that was added to a matrix.
    """

    z: np.ndarray
    value: float
    reason: Reason
    path: tuple[float, ...]
    n_evaluations: int
    problem: str | None = None
    gradient: np.ndarray | None = None
    curvature: np.ndarray | None = None
    jitter: float = 0.0

    @property
    def n_iter(self) -> int:
        return max(0, len(self.path) - 1)

    def after(self, first: Optimum, evaluations: int = 0) -> Optimum:
        """The same, reached from where ``first`` ended, with further evaluations between them."""
        return replace(
            self,
            path=first.path + self.path[1:],
            n_evaluations=self.n_evaluations + first.n_evaluations + evaluations,
            problem=self.problem or first.problem,
            jitter=max(self.jitter, first.jitter),
        )


@dataclass(frozen=True)
class Direction:
    """A direction of the unconstrained parameters that the data leave open.

    ``loadings`` are its entries by parameter; ``sd`` is the posterior standard deviation along it, where
    1 means a factor of about e in a variance.
    """

    loadings: dict[str, float]
    sd: float

    def __str__(self) -> str:
        largest = sorted(self.loadings.items(), key=lambda item: -abs(item[1]))
        parts = [f"{value:+.2f} {name}" for name, value in largest if abs(value) > 0.2]
        return f"{' '.join(parts)} (sd {self.sd:.2g})"


@dataclass(frozen=True)
class FitResult:
    """The record of a fit.

    ``path`` is the MAP objective per iteration; ``jitter`` the largest share of the mean diagonal that
    was added to the anchors' matrix (0 where there is none); ``undetermined`` the directions of the
    parameters about which the data say less than the priors, by the common scale of vectors where there are
    more than 40 parameters; ``seconds`` the wall time by stage; ``notes`` what else a reader must know, such
    as parameters at an end of their range; ``credible_intervals`` of level 0.95 by parameter, where the
    posterior of the parameters was made.
    """

    reason: Reason
    objective: float
    path: tuple[float, ...]
    n_iter: int
    n_evaluations: int
    jitter: float
    approximation: str
    backend: str
    problem: str | None = None
    rounds: int = 1
    standard_errors: dict[str, float] = field(default_factory=dict)
    undetermined: tuple[Direction, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    credible_intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        return self.reason.converged
