"""Split-conformal calibration: intervals and sets whose coverage holds in finite samples, whatever the model.

    s_i = |Phi^-1(p_i)|,     q = s_(k),  k = ceil((c + 1) level),     levels Phi(-q), Phi(q)

p_i is the PIT value of calibration row i = 1..c, a row that the fit has not seen, and s_(k) the k-th smallest
score. If calibration rows and new rows are exchangeable, the interval between the two quantiles of a new row
covers its target with probability k / (c + 1), in [level, level + 1/(c + 1)), when scores have no ties, and
with at least that when they have. Ranks of s are those of |p - 1/2|: this is conformal prediction on the PIT,
which cuts the same probability off both tails, asymmetric on the target's scale where a warp is. On the scale
of Phi^-1 a target 20 sd away still has a finite score, where p itself rounds to 1.

The promise is marginal: over calibration rows and new rows together. Given the calibration rows, the coverage
is a draw from Beta(k, c + 1 - k), of sd about sqrt(level (1 - level) / c); it may also differ from region to
region of the inputs.

Classes have sets in place of intervals, by the same rule with the score s_i = 1 - p_i, p_i the probability of
the class that came at calibration row i (`ClassCalibration`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from widegp.registry import saveable


@saveable
@dataclass(frozen=True, eq=False)
class ConformalCalibration:
    """q(level) from the scores of c calibration rows.

    Fields
    ------
    scores : (c,), |Phi^-1(PIT)| in increasing order: how many predictive sds a target lay from its median.
    """

    scores: np.ndarray

    @classmethod
    def fit(cls, pit: ArrayLike) -> Self:
        """From PIT values (c,) in [0, 1]; those that are exactly 0 or 1 count as infinitely far out."""
        p = _vector("pit", pit)
        if np.any((p < 0) | (p > 1)):
            row = np.flatnonzero((p < 0) | (p > 1))[0]
            raise ValueError(f"pit is {p[row]} in row {row}; pass probabilities P(Y <= y), in [0, 1].")
        return cls.from_standard_scores(ndtri(p))

    @classmethod
    def from_standard_scores(cls, z: ArrayLike) -> Self:
        """From z (c,) = Phi^-1(PIT), e.g. (y - mean) / sd: finer than ``fit`` beyond 8 sd."""
        return cls(np.sort(np.abs(_vector("z", z))))

    @property
    def n_rows(self) -> int:
        """c."""
        return int(self.scores.size)

    def half_width(self, level: float) -> float:
        """q in predictive sds on the Gaussian scale; inf, with a warning, where c rows do not suffice."""
        k = rank(self.n_rows, level)
        if k > self.n_rows:
            warnings.warn(infinite_words(level, self.n_rows), stacklevel=2)
            return math.inf
        return float(self.scores[k - 1])

    def levels(self, level: float) -> tuple[float, float]:
        """Quantile levels Phi(-q), Phi(q) of the interval; (0, 1), the whole line, where q is infinite.

        Phi(q) rounds to 1 beyond q = 8.3; ``half_width`` keeps the interval finite there.
        """
        q = self.half_width(level)
        return float(ndtr(-q)), float(ndtr(q))

    def depth(self, z: ArrayLike) -> np.ndarray:
        """The smallest level whose interval holds a target at normal score z, elementwise.

        With k scores below |z| that is the number next above k / (c + 1): at k / (c + 1) itself the interval
        ends at the k-th score, short of z.
        """
        k = np.searchsorted(self.scores, np.abs(np.asarray(z, float)), side="left")
        return np.nextafter(k / (self.n_rows + 1), 1.0)

    def coverage(self, level: float) -> float:
        """k / (c + 1): what intervals asked for at ``level`` cover on average when scores have no ties."""
        return rank(self.n_rows, level) / (self.n_rows + 1)

    def to_dict(self) -> dict[str, list[float | None]]:
        """Numbers for JSON, which ``from_dict`` reads back exactly; JSON has no infinity, so None is one."""
        return {"scores": [s if math.isfinite(s) else None for s in self.scores.tolist()]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The calibration that ``to_dict`` described."""
        return cls.from_standard_scores([math.inf if s is None else s for s in state["scores"]])


@saveable
@dataclass(frozen=True, eq=False)
class ClassCalibration:
    """C(x) = {c : 1 - p_c(x) <= q},  q = s_(k),  k = ceil((n + 1) level),  s_i = 1 - p_{y_i}(x_i), i = 1..n.

    The least ambiguous sets (Sadinle, Lei and Wasserman 2019): of all rules that hold the class that came
    with probability ``level``, the one with the fewest classes where p is right. A row at which every class
    is improbable would get none: its set is the likeliest class, which can only add to what is promised.

    Fields
    ------
    scores : (n,), 1 - probability of the class that came at each calibration row, in increasing order.
    """

    scores: np.ndarray

    @classmethod
    def fit(cls, p: ArrayLike, y: ArrayLike) -> Self:
        """From probabilities p (n, C) at rows that the fit has not seen and the places y (n,) of the classes
        that came among the columns; -1 for a class that has none, which no set then holds.
        """
        p, y = np.asarray(p, float), np.asarray(y)
        if p.ndim != 2 or y.shape != (len(p),):
            raise ValueError(f"p has shape {p.shape} and y {y.shape}; pass (n, C) and (n,).")
        if np.isnan(p).any() or np.any((y != np.floor(y)) | (y < -1) | (y >= p.shape[1])):
            last = p.shape[1] - 1
            raise ValueError(f"Pass p without gaps, and y as whole numbers from 0 to {last}, or -1.")
        places = y.astype(int)
        came = p[np.arange(len(p)), places] if len(p) else np.empty(0)
        return cls(np.sort(np.where(places < 0, math.inf, 1 - came)))

    @property
    def n_rows(self) -> int:
        """n."""
        return int(self.scores.size)

    def sets(self, p: ArrayLike, level: float = 0.95) -> np.ndarray:
        """Which classes the set of each row holds, (q, C), for probabilities p (q, C) of new rows.

        All of them, with a warning, where too few rows were held out for ``level``.
        """
        p = np.asarray(p, float)
        k = rank(self.n_rows, level)
        if k > self.n_rows:
            warnings.warn(
                f"Sets of level {level} hold every class with {self.n_rows} calibration rows; calibrate on at"
                f" least {rows_needed(level)}, or lower the level.", stacklevel=2,
            )  # fmt: skip
            return np.ones(p.shape, bool)
        held: np.ndarray = (1 - p <= self.scores[k - 1]) | (p == p.max(axis=1, keepdims=True))
        return held

    def coverage(self, level: float) -> float:
        """k / (n + 1): what sets asked for at ``level`` hold on average when scores have no ties."""
        return rank(self.n_rows, level) / (self.n_rows + 1)


def check_level(level: float) -> None:
    """Raises unless an interval can have this probability."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level}.")


def rank(n_rows: int, level: float) -> int:
    """k = ceil((c + 1) level) for c = ``n_rows``; k = c + 1 means an infinite interval.

    ``level`` is taken as the decimal it is written as: in floating point 100 x 0.55 exceeds 55.
    """
    check_level(level)
    return math.ceil((n_rows + 1) * Fraction(repr(float(level))))


def rows_needed(level: float) -> int:
    """The smallest c with finite intervals, ceil((c + 1) level) <= c: c = ceil(level / (1 - level))."""
    share = Fraction(repr(float(level)))
    return math.ceil(share / (1 - share))


def infinite_words(level: float, n_rows: int) -> str:
    """What to say where ``n_rows`` calibration rows are too few for intervals of ``level``."""
    return (
        f"Intervals of level {level} are infinite with {n_rows} calibration rows;"
        f" calibrate on at least {rows_needed(level)}, or lower the level."
    )


def hold_out(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to fit (n - c,) and rows to calibrate (c,), drawn at random, each in increasing order.

    c is a tenth of the rows, but at least 99 and at most 2,000, and a third of fewer than 297 rows. With 99,
    intervals of level 0.99 are finite; with 2,000 the coverage has an sd of half a percentage point at level
    0.95, and more rows serve the fit better. Of 30 rows 10 are held out: too few for level 0.95, which
    needs 19, and so 57 rows in all.
    """
    count, order = rows_apart(n_rows), np.random.default_rng(seed).permutation(n_rows)
    return np.sort(order[count:]), np.sort(order[:count])


def rows_apart(n_rows: int) -> int:
    """c, how many rows `hold_out` keeps apart."""
    return min(max(n_rows // 10, min(99, n_rows // 3)), 2000)


def _vector(name: str, values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, float)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; pass one number per calibration row.")
    if np.isnan(array).any():
        row = np.flatnonzero(np.isnan(array))[0]
        raise ValueError(f"{name} is NaN in row {row}; drop that row or mend the prediction.")
    return array
