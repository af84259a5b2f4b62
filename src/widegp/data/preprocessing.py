"""Affine transforms of inputs and target, fitted on training rows and kept as plain values.

    X~ = (X - shift) / scale,    y~ = (y - mean) / sd

A fitted transform is frozen: it holds a few numbers per column and no rows, so it can be saved,
compared and sent to a worker. Standard deviations have divisor n, as in scikit-learn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

KINDS = ("standard", "bounded", "minmax", "none")

# A column that moves by no more than this share of its magnitude carries nothing but rounding.
ROUNDING = 16 * np.finfo(float).eps

# Mean and sd of a column leave out the values beyond these quantiles where they multiply its sd by more than
# LEVERAGE, and there are LEAST_ROWS. Tables read in parts keep the plain sd, which one row hardly moves.
CENTRAL = (0.01, 0.99)
LEVERAGE = 10.0
LEAST_ROWS = 20

# Columns that lie in one line of the cache.
TOGETHER = 8
# Entries of a table from which on threads share its columns.
MANY_ENTRIES = 2**20

# Beyond this the difference of two finite values may overflow.
HUGE = 1e300
LARGEST = float(np.finfo(float).max)


@dataclass(frozen=True, eq=False)
class InputScaler:
    """X~ = (X - shift) / scale, column by column.

    ========== ================= ============= =======================================
    kind       shift             scale         result on the training rows
    ========== ================= ============= =======================================
    "standard" mean              sd            mean 0, sd 1; see below for rows far out
    "bounded"  mean              sd            the same; new rows far outside count as less far
    "minmax"   (min + max) / 2   max - min     [-1/2, 1/2]: the paper's [0, 1] minus 1/2
    "none"     0                 1             unchanged
    ========== ================= ============= =======================================

    A constant column has shift = its value and scale = 1, so it becomes 0. A column that differs
    from a constant by rounding alone is divided by its magnitude (if above 1), so that it vanishes too.
    Where the rows outside the central 98% of a column multiply its sd by more than LEVERAGE, mean and sd are
    those of the central rows: a single value of 10,000 would leave the others within a hair of each other.
    "bounded" takes a value that lies outside the range of the training rows by more than the width of that
    range as lying just so far outside: one mistyped cell would else take a row so far from all others that
    nothing is known of it, whatever its other cells say.

    Fields
    ------
    shift, scale : (I,), scale > 0.
    kind : which of the rules was fitted.
    low, high : (I,), between which values count as they are; None if everywhere.
    """

    shift: np.ndarray
    scale: np.ndarray
    kind: str
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    @classmethod
    def fit(cls, X: ArrayLike, kind: str | None = "standard", weight: np.ndarray | None = None) -> Self:
        """The scaler of ``kind`` for training rows X (n, I); ``None`` means "none".

        ``weight`` (n,): how often each row counts.
        """
        kind = _known("none" if kind is None else kind)
        X = as_matrix(X)
        if X.shape[0] == 0:
            raise ValueError("X has no rows; pass at least one training row.")
        if kind == "none":
            return cls(np.zeros(X.shape[1]), np.ones(X.shape[1]), kind)
        rule = _minmax_column if kind == "minmax" else partial(_standard_column, weight=weight)

        def of(few: slice) -> list[tuple[float, ...]]:
            columns = enumerate(columns_of(X[:, few]), few.start)
            return [(*rule(finite(x, f"X, column {j}")), x.min(), x.max()) for j, x in columns]

        parts = [slice(start, start + TOGETHER) for start in range(0, X.shape[1], TOGETHER)]
        if X.size < MANY_ENTRIES:
            made = list(map(of, parts))
        else:
            # Imported where it is needed: it brings the compiler along.
            from widegp.threads import in_threads

            made = in_threads(of, parts)
        shift, scale, low, high = np.array(list(itertools.chain(*made))).reshape(X.shape[1], 4).T.copy()
        return cls(shift, scale, kind)._between(low, high)

    @classmethod
    def fit_stream(cls, parts: Iterable[np.ndarray], kind: str | None = "standard") -> Self:
        """As `fit`, up to rounding, from parts (c, I) of the rows, each seen once; entries are finite."""
        from sklearn.preprocessing import MinMaxScaler, StandardScaler

        moments, ends = StandardScaler(), MinMaxScaler()
        for part in parts:
            moments.partial_fit(part)
            ends.partial_fit(part)
        low, high = ends.data_min_, ends.data_max_
        largest = np.maximum(np.abs(low), np.abs(high))
        varies = high - low > ROUNDING * np.ldexp(1.0, np.frexp(largest)[1])
        constant = np.where(high > low, np.maximum(1.0, largest), 1.0)
        if kind in ("standard", "bounded"):
            shift, scale = np.where(varies, moments.mean_, low), np.sqrt(moments.var_)
        else:
            shift, scale = low / 2 + high / 2, high - low
        if kind is None or kind == "none":
            return cls(np.zeros(len(low)), np.ones(len(low)), "none")
        return cls(shift, np.where(varies, scale, constant), _known(kind))._between(low, high)

    def _between(self, low: np.ndarray, high: np.ndarray) -> Self:
        """The same, of training rows between ``low`` and ``high`` (I,)."""
        if self.kind != "bounded":
            return self
        with np.errstate(over="ignore"):
            width = high - low
            return replace(self, low=low - width, high=high + width)

    def transform(self, X: ArrayLike) -> np.ndarray:
        """(X - shift) / scale; X (n, I) -> (n, I)."""
        rows = self._checked(X)
        if self.low is not None:
            rows = np.clip(rows, self.low, self.high)
        return _subtract_divide(rows, self.shift, self.scale)

    def inverse(self, X: ArrayLike) -> np.ndarray:
        """shift + scale X~; X~ (n, I) -> (n, I)."""
        return self._checked(X) * self.scale + self.shift

    def _checked(self, X: ArrayLike) -> np.ndarray:
        X = as_matrix(X)
        if X.shape[1] != self.shift.size:
            raise ValueError(
                f"X has {X.shape[1]} columns but the scaler was fitted on {self.shift.size};"
                " pass the same columns in the same order."
            )
        return X


@dataclass(frozen=True)
class TargetScaler:
    """y~ = (y - mean) / sd, with sd = 1 for a constant target or a single row.

    Fields
    ------
    mean, sd : of the training target, sd > 0.
    """

    mean: float
    sd: float

    @classmethod
    def fit(cls, y: ArrayLike, weight: np.ndarray | None = None) -> Self:
        """Mean and sd of training targets y (n,), each counted ``weight`` (n,) times."""
        y = np.asarray(y, float)
        if y.ndim != 1 or y.size == 0:
            raise ValueError(f"y has shape {y.shape}; pass one number per row, shape (n,), n >= 1.")
        mean, sd, _ = mean_sd(finite(y, "y"), weight)
        return cls(mean, sd if sd > 0 else 1.0)

    def transform(self, y: ArrayLike) -> np.ndarray:
        """(y - mean) / sd, elementwise."""
        return _subtract_divide(np.asarray(y, float), np.array(self.mean), np.array(self.sd))

    def inverse_mean(self, mean: ArrayLike) -> np.ndarray:
        """mean + sd m for locations m (predictive means, quantiles), elementwise."""
        return self.mean + self.sd * np.asarray(mean, float)

    def inverse_sd(self, sd: ArrayLike) -> np.ndarray:
        """sd s for spreads s (predictive standard deviations), elementwise."""
        return self.sd * np.asarray(sd, float)


def columns_of(X: np.ndarray) -> Iterator[np.ndarray]:
    """The columns of X, each contiguous; copied a few at a time, as many as lie in one line of the cache."""
    for start in range(0, X.shape[1], TOGETHER):
        yield from np.ascontiguousarray(X[:, start : start + TOGETHER].T)


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"Unknown input scaling {kind!r}; choose one of {', '.join(map(repr, KINDS))}.")
    return kind


def _standard_column(x: np.ndarray, weight: np.ndarray | None = None) -> tuple[float, float]:
    """(mean, sd) of x (n,), or of its central part (see `InputScaler`), made safe for division."""
    mean, sd, noise = mean_sd(x, weight)
    # The outer rows hold nearly all the variance only if some lie further out than sqrt(1 / 2%) = 7 sd.
    if len(x) >= LEAST_ROWS and np.abs(x).max() < HUGE and np.abs(x - mean).max() > 7 * sd > 0:
        low, high = np.quantile(x, CENTRAL)
        inside = (x >= low) & (x <= high)
        central, central_sd, _ = mean_sd(x[inside], None if weight is None else weight[inside])
        if 0 < LEVERAGE * central_sd < sd:
            return central, central_sd
    return mean, sd if sd > 0 else _scale_of_constant(x, noise)


def _minmax_column(x: np.ndarray) -> tuple[float, float]:
    """((min + max) / 2, max - min) of x (n,), made safe for division."""
    low, high = float(x.min()), float(x.max())
    # Halving subnormal numbers drops their last bit; summing numbers near 1e308 overflows.
    middle = low / 2 + high / 2 if max(-low, high) > 1 else (low + high) / 2
    _, sd, noise = mean_sd(x)
    if sd > 0:
        return middle, min(high - low, LARGEST)
    return middle, _scale_of_constant(x, noise)


def _scale_of_constant(x: np.ndarray, noise: bool) -> float:
    """1 for an exact constant; for rounding noise its magnitude, so that dividing removes the noise."""
    return max(1.0, float(np.abs(x).max())) if noise else 1.0


def mean_sd(x: np.ndarray, weight: np.ndarray | None = None) -> tuple[float, float, bool]:
    """(mean, sd, noise) of x (n,), each entry counted ``weight`` (n,) times.

    sd = 0 when x is constant up to rounding, ``noise`` if not exactly.

    With 2^e >= max|x|, all sums are of u = 2^-e x, which is exact and cannot overflow, and of
    u - u_1, which keeps the digits of a small spread on a large level.
    """
    exponent = math.frexp(float(np.abs(x).max()))[1]
    u = np.ldexp(x, -exponent)
    deviation = u - u[0]
    if np.ptp(deviation) <= ROUNDING:
        return float(x[0]), 0.0, bool(np.ptp(deviation) > 0)
    centre = np.average(deviation, weights=weight)
    sd = math.sqrt(np.average((deviation - centre) ** 2, weights=weight))
    # A subnormal sd may round to 0, which callers treat as a constant column.
    return float(np.ldexp(u[0] + centre, exponent)), min(float(np.ldexp(sd, exponent)), LARGEST), False


def _subtract_divide(x: np.ndarray, shift: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """(x - shift) / scale, where columns of huge magnitude are first multiplied by 1/16, exactly."""
    huge = np.maximum(np.abs(shift), scale) > HUGE
    if not np.any(huge):
        moved = x - shift
        moved /= scale
        return moved
    factor = np.where(huge, 0.0625, 1.0)
    return (x * factor - shift * factor) / (scale * factor)


def as_matrix(X: ArrayLike) -> np.ndarray:
    """X as a table of numbers (n, I); an array of another shape is refused."""
    X = np.asarray(X, float)
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}; pass a table of shape (n, I), e.g. X.reshape(-1, 1).")
    return X


def finite(x: np.ndarray, what: str) -> np.ndarray:
    """x (n,) as it is; refused, by the name ``what``, where a value is missing or infinite."""
    bad = np.flatnonzero(~np.isfinite(x))
    if bad.size:
        raise ValueError(f"{what} is {x[bad[0]]} in row {bad[0]}; drop or impute such values before fitting.")
    return x
