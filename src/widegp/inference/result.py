"""How a fit ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

# A score within so many standard deviations is put down to chance: whoever adds rows daily should not be told
# to fit again every month.
SIGMAS = 3.0
# The mean score of so many rows is nearly normal; with fewer, a single row far out would ask for a new fit.
LEAST_ROWS = 20


class Reason(StrEnum):
    """Why an optimiser stopped."""

    CONVERGED = "converged"
    PRECISION = "converged to the precision of the objective"
    JUDGED = "stopped where left-out rows are predicted best"
    MAX_ITER = "iteration limit reached"
    BUDGET = "time budget spent"
    FAILED = "numerical failure"
    FIXED = "nothing to estimate"

    @property
    def converged(self) -> bool:
        """Whether it ended by a rule of its own, not for want of time, iterations or digits."""
        return self in (Reason.CONVERGED, Reason.PRECISION, Reason.JUDGED, Reason.FIXED)


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
class Growth:
    """How well rows that came after the fit were predicted, each from all rows before it.

    rows : how many.    score : mean log density of their targets, in nats and the units of y.
    expected : the score of rows like those of the fit, known from rows that were left out of it; where none
        were left out, the score if the model is right.
    chance : sd of the score, from the scatter of the rows of the fit or of these, whichever is larger.
    doubt : sd of ``expected``.
    """

    rows: int
    score: float
    expected: float
    chance: float
    doubt: float = 0.0

    @property
    def range(self) -> tuple[float, float]:
        """Ends between which the score of such rows lies, 369 times in 370."""
        reach = SIGMAS * math.hypot(self.chance, self.doubt)
        return self.expected - reach, self.expected + reach

    @property
    def refit_due(self) -> bool:
        """Whether the rows were predicted worse than chance explains; few rows cannot tell."""
        return self.rows >= LEAST_ROWS and not self.score >= self.range[0]

    @property
    def words(self) -> str:
        """One line."""
        low, high = self.range
        due = "They are predicted as well as those of the fit"
        if self.rows < LEAST_ROWS:
            due = f"Fewer than {LEAST_ROWS} rows cannot tell whether a new fit is due"
        if self.refit_due:
            due = "They are predicted worse than those of the fit: a new fit is due"
        return (
            f"{self.rows:,} rows were added. {due} (mean log density {self.score:.3f}, each row predicted"
            f" before it was added; expected {self.expected:.3f}, by chance {low:.3f} to {high:.3f})."
        )

    @classmethod
    def pooled(cls, parts: Sequence[Growth]) -> Growth:
        """Pool several updates: their sampling errors are independent, the error of the expected score is
        shared."""
        rows = sum(part.rows for part in parts)
        score, expected, doubt = (
            sum(part.rows * getattr(part, name) for part in parts) / rows
            for name in ("score", "expected", "doubt")
        )
        chance = math.hypot(*(part.rows * part.chance for part in parts)) / rows
        return cls(rows, score, expected, chance, doubt)


@dataclass(frozen=True)
class FitResult:
    """The record of a fit.

    ``path`` is the MAP objective per iteration; ``jitter`` the largest share of the mean diagonal that
    was added to the anchors' matrix (0 where there is none); ``undetermined`` the directions of the
    parameters about which the data say less than the priors, by the common scale of vectors where there are
    more than 40 parameters; ``seconds`` the wall time by stage; ``notes`` what else a reader must know, such
    as parameters at an end of their range; ``credible_intervals`` of level 0.95 by parameter, where the
    posterior of the parameters was made; ``growth`` how well rows were predicted that were added later, and
    ``left_out`` what that is compared with: mean and sd of log p(t), t = (z - E z) / sd z, over so many
    left-out rows of the fit.
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
    growth: tuple[Growth, ...] = ()
    left_out: tuple[float, float, int] | None = None

    @property
    def converged(self) -> bool:
        return self.reason.converged

    @property
    def refit_due(self) -> bool:
        """Whether the rows added last, or all rows added since the fit, were predicted worse than chance
        explains: the parameters no longer suit what is coming in.
        """
        return bool(self.growth) and (self.growth[-1].refit_due or Growth.pooled(self.growth).refit_due)
