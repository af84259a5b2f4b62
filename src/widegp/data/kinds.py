"""What fitting learns about one column, and the features it becomes: one frozen class per kind.

    numeric, boolean   x -> x                                         missing: the training median
    date               t -> days since the first training day         missing: the training median
                            and sin, cos of 2 pi (day of year) / 365.25 where training spans over a year
    categorical        level -> one feature per level, 0 or 1          missing: all 0
                            of more than 20 levels, the 19 most frequent and one for all others

A column that was missing in at least 2% of the training rows has one more feature, 1 where it is missing.
A value is counted as out of range where it lies outside the training range by more than a tenth of it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from widegp.data.errors import TableError, quoted

if TYPE_CHECKING:
    from widegp.data.values import Values

MOST_LEVELS = 20
# Levels remembered beside those with a feature, so that a level never seen can be told from a rare one.
MOST_RARE = 10_000
# Of a random split, some held-out value of every column lies just beyond the training rows.
BEYOND = 0.1
OUTSIDE = "outside the training range"
DAY = 86_400_000_000
YEAR = 365.25
# By type, the largest number that a description may hold; NaN is no smaller than any.
LARGEST = {"int": 2**62, "float": 1e300}


@dataclass(frozen=True)
class Column:
    """A column that gives no features; the others extend it.

    Fields
    ------
    name, kind : of the input column.
    missing : how many training rows lack it.
    note : why it is not used, or what to know about it.
    indicator : whether a feature says that it is missing.
    """

    name: str
    kind: str
    missing: int
    note: str = ""
    indicator: bool = False

    def value_features(self) -> tuple[str, ...]:
        """Names of the features other than the indicator."""
        return ()

    def encode(self, values: Values, said: Counter[str]) -> np.ndarray:
        """Features (n, k) of the values, without the indicator; what is odd is counted in ``said``."""
        return np.empty((values.data.size, 0))

    def describe(self) -> dict[str, Any]:
        """Levels and range for the summary."""
        return {"levels": None, "min": None, "max": None}


@dataclass(frozen=True)
class NumericColumn(Column):
    """Numbers or booleans within [low, high]; ``varies`` is False where only the indicator is kept."""

    low: float = 0.0
    high: float = 0.0
    median: float = 0.0
    varies: bool = True

    @classmethod
    def fit(cls, name: str, values: Values) -> Self:
        present = values.data[~values.missing]
        low, high = float(present.min()), float(present.max())
        return cls(
            name, values.kind, int(values.missing.sum()), values.remark,
            low=low, high=high, median=float(np.median(present)), varies=low < high,
        )  # fmt: skip

    def value_features(self) -> tuple[str, ...]:
        return (self.name,) if self.varies else ()

    def encode(self, values: Values, said: Counter[str]) -> np.ndarray:
        margin = BEYOND * (self.high - self.low)
        said[_outside(self.name, f"{self.low:g}", f"{self.high:g}")] += int(
            np.sum((values.data < self.low - margin) | (values.data > self.high + margin))
        )
        x = np.where(values.missing, self.median, values.data)[:, None]
        return x if self.varies else x[:, :0]

    def describe(self) -> dict[str, Any]:
        return {"levels": None, "min": self.low, "max": self.high}


@dataclass(frozen=True)
class DateColumn(Column):
    """Moments within [low, high], microseconds since 1970; ``seasonal`` adds sine and cosine of the year."""

    low: int = 0
    high: int = 0
    median: int = 0
    seasonal: bool = False
    zoned: bool = False

    @classmethod
    def fit(cls, name: str, values: Values) -> Self:
        present = np.sort(values.data[~values.missing])
        low, high = int(present[0]), int(present[-1])
        return cls(
            name, values.kind, int(values.missing.sum()), values.remark, low=low, high=high,
            median=int(present[present.size // 2]), seasonal=high - low > YEAR * DAY, zoned=values.zoned,
        )  # fmt: skip

    def value_features(self) -> tuple[str, ...]:
        season = (f"{self.name} (sine of year)", f"{self.name} (cosine of year)") if self.seasonal else ()
        return (f"{self.name} (days)", *season) if self.low < self.high else ()

    def encode(self, values: Values, said: Counter[str]) -> np.ndarray:
        present = ~values.missing
        margin = int(BEYOND * (self.high - self.low))
        outside = ((values.data < self.low - margin) | (values.data > self.high + margin)) & present
        said[_outside(self.name, _day(self.low), _day(self.high))] += int(outside.sum())
        if values.zoned != self.zoned:
            which = "without a time zone" if self.zoned else "with a time zone"
            words = f"values of {quoted(self.name)} {which}, unlike when fitting, taken in UTC"
            said[words] += int(present.sum())
        if self.low == self.high:
            return np.empty((values.data.size, 0))
        moments = np.where(values.missing, self.median, values.data)
        days = (moments - self.low) / DAY
        if not self.seasonal:
            return days[:, None]
        angle = 2 * np.pi * _day_of_year(moments) / YEAR
        return np.column_stack([days, np.sin(angle), np.cos(angle)])

    def describe(self) -> dict[str, Any]:
        return {"levels": None, "min": _day(self.low), "max": _day(self.high)}


@dataclass(frozen=True)
class CategoricalColumn(Column):
    """``levels`` have a feature each, ``rare`` ones share one if ``other``; ``n_levels`` counts all."""

    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    other: bool = False
    n_levels: int = 0

    @classmethod
    def fit(cls, name: str, values: Values) -> Self:
        counts = np.bincount(values.data[~values.missing], minlength=len(values.labels))
        seen = [i for i in range(len(values.labels)) if counts[i]]
        # By frequency, then by name: the order of the rows must not matter.
        ranked = [values.labels[i] for i in sorted(seen, key=lambda i: (-counts[i], values.labels[i]))]
        other = len(ranked) > MOST_LEVELS
        own = MOST_LEVELS - 1 if other else len(ranked)
        note = f"{len(ranked) - own} rare levels taken together" if other else ""
        return cls(
            name, values.kind, int(values.missing.sum()), "; ".join(filter(None, (values.remark, note))),
            levels=tuple(sorted(ranked[:own])), rare=tuple(ranked[own : own + MOST_RARE]),
            other=other, n_levels=len(ranked),
        )  # fmt: skip

    def value_features(self) -> tuple[str, ...]:
        if self.n_levels < 2:
            return ()
        rest = (f"{self.name} (other)",) if self.other else ()
        return tuple(f"{self.name}={level}" for level in self.levels) + rest

    def encode(self, values: Values, said: Counter[str]) -> np.ndarray:
        place = {level: i for i, level in enumerate(self.levels)}
        rare, other = set(self.rare), len(self.levels)
        # One more column takes what has none of its own: missing values, and unseen levels without "other".
        places = np.array([*(place.get(label, other) for label in values.labels), other + self.other])
        unseen = np.array([label not in place and label not in rare for label in values.labels] + [False])
        said[f"values of {quoted(self.name)} not seen when fitting"] += int(unseen[values.data].sum())
        X = np.zeros((values.data.size, other + self.other + 1))
        X[np.arange(X.shape[0]), places[values.data]] = 1.0
        return X[:, : len(self.value_features())]

    def describe(self) -> dict[str, Any]:
        return {"levels": self.n_levels, "min": None, "max": None}


CLASSES: dict[str, type[Column]] = {
    cls.__name__: cls for cls in (Column, NumericColumn, DateColumn, CategoricalColumn)
}
FITTED: dict[str, type[NumericColumn] | type[DateColumn] | type[CategoricalColumn]] = {
    "numeric": NumericColumn, "boolean": NumericColumn, "date": DateColumn, "categorical": CategoricalColumn,
}  # fmt: skip


def column_to_dict(column: Column) -> dict[str, Any]:
    """Plain values that JSON keeps exactly."""
    fields = {f.name: getattr(column, f.name) for f in dataclasses.fields(column)}
    lists = {key: list(value) for key, value in fields.items() if isinstance(value, tuple)}
    return {"class": type(column).__name__} | fields | lists


def column_from_dict(state: Mapping[str, Any]) -> Column:
    """The column that `column_to_dict` described; raises where the description is of nothing fitted."""
    fields = dict(state)
    cls = CLASSES[fields.pop("class")]
    types = {f.name: str(f.type) for f in dataclasses.fields(cls)}
    if set(fields) != set(types):
        raise TableError(f"The fields of a {cls.__name__} are {', '.join(types)}; save the model again.")
    column = cls(**{name: _checked(fields[name], types[name]) for name in types})
    if column.indicator if cls is Column else FITTED.get(column.kind) is not cls:
        raise TableError(f"A {cls.__name__} cannot hold {quoted(column.kind)} values; save the model again.")
    return column


def _checked(value: Any, kind: str) -> Any:
    if kind == "tuple[str, ...]" and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if type(value).__name__ == kind and (kind not in LARGEST or abs(value) <= LARGEST[kind]):
        return value
    raise TableError(f"{quoted(value)} stands where {kind} is meant; save the model again.")


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names, told apart where a level and a column give the same one."""
    taken: dict[str, None] = {}
    for base in names:
        name, i = base, 2
        while name in taken:
            name, i = f"{base} #{i}", i + 1
        taken[name] = None
    return tuple(taken)


def _outside(name: str, low: str, high: str) -> str:
    return f"values of {quoted(name)} {OUTSIDE}, {low} to {high}"


def _day(moment: int) -> str:
    """ISO 8601, without the time of day at midnight."""
    return str(np.datetime64(moment, "us").astype("M8[s]")).removesuffix("T00:00:00")


def _day_of_year(moments: np.ndarray) -> np.ndarray:
    """Days since the first moment of the year, with fraction, in [0, 366)."""
    when = moments.astype("M8[us]")
    return (when - when.astype("M8[Y]").astype("M8[us]")).astype(np.int64) / DAY
