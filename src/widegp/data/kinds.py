"""What fitting keeps of one column, and the features it becomes: one frozen class per kind.

    numeric, boolean   x -> x                                         missing: the training median
    date               t -> days since the first training day         missing: the training median
                            and sin, cos of 2 pi (day of year) / 365.25 where training spans over a year
    categorical        of few levels: one feature per level, 0 or 1   missing: all 0
                       of many, with a target: the mean of the target  missing: the mean over all rows
                            at the level, shrunk to that of all rows where the level is rare; of few levels
                            too where the target has two values and there are 100 rows for each level
                       of many, without: the 19 most frequent levels and one feature for all others

A column that was missing in at least 2% of the training rows has one more feature, 1 where it is missing.
A value is counted as out of range where it lies outside the training range by more than a tenth of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from widegp.data.errors import TableError, quoted
from widegp.notices import Notice

if TYPE_CHECKING:
    from widegp.data.values import Values

# Of a random split, some held-out value of every column lies just beyond the training rows.
BEYOND = 0.1
# Means of the target at a level are, for training rows, those of the rows of the other folds.
FOLDS = 5
DAY = 86_400_000_000
YEAR = 365.25
# By type, the largest number that a description may hold; NaN is no smaller than any.
LARGEST = {int: 2**62, float: 1e300}


class LeftOutMeans(NamedTuple):
    """Means of the target per level, each from all folds of the training rows but one.

    places : of the levels in ``means`` (K, L, T); the last of L is the mean over all levels.
    folds : (n,) the fold of each row of the batch at hand, -1 for rows that are in none.
    """

    places: Mapping[str, int]
    means: np.ndarray
    folds: np.ndarray


@dataclass(frozen=True)
class Column:
    """A column that gives no features; the others extend it.

    Fields
    ------
    name, kind : of the input column.
    missing : how many training rows lack it.
    notes : why it is not used, or what to know about it.
    indicator : whether a feature says that it is missing.
    notation : how text is written, see `widegp.data.text`; "" for other types.
    """

    name: str
    kind: str
    missing: int
    notes: tuple[Notice, ...] = ()
    indicator: bool = False
    notation: str = ""

    def value_features(self) -> tuple[str, ...]:
        """Names of the features other than the indicator."""
        return ()

    def features(self) -> tuple[str, ...]:
        return self.value_features() + ((f"{self.name} (missing)",) if self.indicator else ())

    def encode(self, values: Values, said: Counter[Notice], means: LeftOutMeans | None = None) -> np.ndarray:
        """Features (n, k) of the values, without the indicator; what is odd is counted in ``said``."""
        return np.empty((values.data.size, 0))

    def ends(self) -> tuple[Any, Any]:
        """The training range."""
        return None, None

    def note(self) -> str:
        """The notes in words."""
        out = [notice.words() for notice in self.notes if notice.is_left_out]
        rest = [notice.words() for notice in self.notes if not notice.is_left_out]
        return "; ".join([*(f"left out: {words}" for words in out), *rest])


@dataclass(frozen=True)
class NumericColumn(Column):
    """Numbers or booleans within [low, high]; ``varies`` is False where only the indicator is kept."""

    low: float = 0.0
    high: float = 0.0
    median: float = 0.0
    varies: bool = True

    def value_features(self) -> tuple[str, ...]:
        return (self.name,) if self.varies else ()

    def encode(self, values: Values, said: Counter[Notice], means: LeftOutMeans | None = None) -> np.ndarray:
        margin = BEYOND * (self.high - self.low)
        outside = (values.data < self.low - margin) | (values.data > self.high + margin)
        said[Notice("outside", self.name, (f"{self.low:g}", f"{self.high:g}"))] += int(outside.sum())
        x = np.where(values.missing, self.median, values.data)[:, None]
        return x if self.varies else x[:, :0]

    def ends(self) -> tuple[Any, Any]:
        return self.low, self.high


@dataclass(frozen=True)
class DateColumn(Column):
    """Moments within [low, high], microseconds since 1970; ``seasonal`` adds sine and cosine of the year."""

    low: int = 0
    high: int = 0
    median: int = 0
    seasonal: bool = False
    zoned: bool = False

    def value_features(self) -> tuple[str, ...]:
        season = (f"{self.name} (sine of year)", f"{self.name} (cosine of year)") if self.seasonal else ()
        return (f"{self.name} (days)", *season) if self.low < self.high else ()

    def encode(self, values: Values, said: Counter[Notice], means: LeftOutMeans | None = None) -> np.ndarray:
        present = ~values.missing
        margin = int(BEYOND * (self.high - self.low))
        outside = ((values.data < self.low - margin) | (values.data > self.high + margin)) & present
        said[Notice("outside", self.name, (_day(self.low), _day(self.high)))] += int(outside.sum())
        if values.zoned is not None and values.zoned != self.zoned:
            which = "without" if self.zoned else "with"
            said[Notice("zone", self.name, (which,))] += int(present.sum())
        if self.low == self.high:
            return np.empty((values.data.size, 0))
        moments = np.where(values.missing, self.median, values.data)
        days = (moments - self.low) / DAY
        if not self.seasonal:
            return days[:, None]
        angle = 2 * np.pi * _day_of_year(moments) / YEAR
        return np.column_stack([days, np.sin(angle), np.cos(angle)])

    def ends(self) -> tuple[Any, Any]:
        return _day(self.low), _day(self.high)


@dataclass(frozen=True)
class CategoricalColumn(Column):
    """``levels`` have a feature each, ``rare`` ones share one if ``other``; ``n_levels`` counts all."""

    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    other: bool = False
    n_levels: int = 0

    def value_features(self) -> tuple[str, ...]:
        if self.n_levels < 2:
            return ()
        rest = (f"{self.name} (other)",) if self.other else ()
        return tuple(f"{self.name}={level}" for level in self.levels) + rest

    def encode(self, values: Values, said: Counter[Notice], means: LeftOutMeans | None = None) -> np.ndarray:
        place = {level: i for i, level in enumerate(self.levels)}
        other = len(self.levels)
        # One more column takes what has none of its own: missing values, and unseen levels without "other".
        places = np.array([*(place.get(label, other) for label in values.labels), other + self.other])
        self._count_unseen(values, place.keys() | self.rare, said)
        X = np.zeros((values.data.size, other + self.other + 1))
        X[np.arange(X.shape[0]), places[values.data]] = 1.0
        return X[:, : len(self.value_features())]

    def _count_unseen(self, values: Values, known: set[str], said: Counter[Notice]) -> None:
        unseen = np.array([label not in known for label in values.labels] + [False])
        said[Notice("unseen", self.name)] += int(unseen[values.data].sum())


@dataclass(frozen=True)
class MeanColumn(CategoricalColumn):
    """level l -> (sum of y at l + m mean of y) / (n_l + m), in ``means``; ``mean`` is that of all rows.

    Of T targets, several outputs or all classes but the first, each has a feature: ``means`` are those of the
    levels for one target after the other, and ``further`` the means of all rows for the targets after the
    first. Training rows get the same from the rows of other folds: their own y never enters their input.
    """

    means: tuple[float, ...] = ()
    mean: float = 0.0
    further: tuple[float, ...] = ()

    def value_features(self) -> tuple[str, ...]:
        if not self.further:
            return (f"{self.name} (mean of target)",)
        return tuple(f"{self.name} (mean of target {t + 1})" for t in range(1 + len(self.further)))

    def encode(self, values: Values, said: Counter[Notice], means: LeftOutMeans | None = None) -> np.ndarray:
        place = {level: i for i, level in enumerate(self.levels)}
        self._count_unseen(values, place.keys() | self.rare, said)
        overall = np.array([self.mean, *self.further])
        of_levels = np.vstack([np.reshape(self.means, (len(overall), -1)).T, overall])
        x = of_levels[np.array([*(place.get(label, -1) for label in values.labels), -1])[values.data]]
        if means is not None:
            places = np.array([*(means.places.get(label, -1) for label in values.labels), -1])[values.data]
            x = np.where(means.folds[:, None] >= 0, means.means[means.folds, places], x)
        return x


HOLDS: dict[type[Column], tuple[str, ...]] = {
    Column: (), NumericColumn: ("numeric", "boolean"), DateColumn: ("date",),
    CategoricalColumn: ("categorical",), MeanColumn: ("categorical",),
}  # fmt: skip
CLASSES = {cls.__name__: cls for cls in HOLDS}


def column_to_dict(column: Column) -> dict[str, Any]:
    """Plain values that JSON keeps exactly."""
    fields = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(column).items()}
    notes = [[notice.kind, *notice.detail] for notice in column.notes]
    return {"class": type(column).__name__} | fields | {"notes": notes}


def column_from_dict(state: Mapping[str, Any], version: int) -> Column:
    """The column that `column_to_dict` described; raises where the description is of nothing fitted."""
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in state.items()}
    cls = CLASSES[fields.pop("class")]
    if version == 1:
        note = fields.pop("note")
        fields |= {"notation": "", "notes": (("said", note),) if note else ()}
    if cls is MeanColumn:
        fields.setdefault("further", ())  # Older files know one target.
    blank = vars(cls("", "", 0))
    wrong = [name for name in blank.keys() | fields.keys() if not _is_like(fields.get(name), blank.get(name))]
    if wrong:
        raise TableError(f"{wrong[0]} of a {cls.__name__} is {quoted(fields.get(wrong[0]))}")
    notes = tuple(Notice(kind, fields["name"], tuple(map(str, detail))) for kind, *detail in fields["notes"])
    column = cls(**(fields | {"notes": notes}))
    column.note()
    if column.indicator if cls is Column else column.kind not in HOLDS[cls]:
        raise TableError(f"a {cls.__name__} cannot hold {quoted(column.kind)} values")
    if isinstance(column, MeanColumn) and len(column.means) != len(column.levels) * (1 + len(column.further)):
        raise TableError("it has another number of means than of levels")
    return column


def _is_like(value: Any, blank: Any) -> bool:
    """Whether the value has the type of a blank column's, and its numbers are finite and of sane size."""
    if isinstance(value, tuple):
        return isinstance(blank, tuple) and all(_is_like(v, v) for v in value)
    return type(value) is type(blank) and (type(value) not in LARGEST or abs(value) <= LARGEST[type(value)])


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names, told apart where a level and a column give the same one."""
    taken: dict[str, None] = {}
    for base in names:
        name, i = base, 2
        while name in taken:
            name, i = f"{base} #{i}", i + 1
        taken[name] = None
    return tuple(taken)


def _day(moment: int) -> str:
    """ISO 8601, without the time of day at midnight."""
    return str(np.datetime64(moment, "us").astype("M8[s]")).removesuffix("T00:00:00")


def _day_of_year(moments: np.ndarray) -> np.ndarray:
    """Days since the first moment of the year, with fraction, in [0, 366)."""
    when = moments.astype("M8[us]")
    return (when - when.astype("M8[Y]").astype("M8[us]")).astype(np.int64) / DAY
