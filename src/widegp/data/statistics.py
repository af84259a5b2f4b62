"""What is added up over the training rows of one column, batch by batch, and the fitted column it gives."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any

import numpy as np

from widegp.data import kinds
from widegp.data.errors import quoted
from widegp.data.kinds import FOLDS, Column, LeftOutMeans
from widegp.data.level_means import level_means
from widegp.data.tables import NO_NAME
from widegp.data.values import LARGEST_EXACT, Values
from widegp.notices import Notice

# Levels with an input each: at most so many with a target, whose means say more about many, and without.
MOST_ONE_HOT, MOST_LEVELS = 12, 20
# Of a target of two classes the means serve few levels too, if there are so many rows of each on average: an
# input per level makes rows of different levels strangers, and of two classes there is less to tell them by.
ROWS_FOR_MEANS = 100
# Levels remembered of a column while its rows are counted, and in a model.
MOST_COUNTED, MOST_KEPT = 100_000, 10_000
# Standardised, the 1s of a rarer indicator lie so far out that they swamp the distances of all other inputs.
RARE_GAPS = 0.02
# Fewer rows may well stand in the order of an input by chance or for tidiness.
LEAST_ID_ROWS = 20
LIKE_AN_ID = re.compile(r"(^|[^a-z])(id|ids|idx|index|key|uuid|guid|row|rownum|rowid|nr|no)$", re.I)
# The median is that of at least so many values, evenly spread over the rows.
SAMPLED = 50_000


class Statistics:
    """Of any column: rows, gaps, and digests that tell columns and gaps that are the same.

    blank : the column as a survey found it, without statistics.
    """

    def __init__(self, blank: Column) -> None:
        self.blank, self.rows, self.missing = blank, 0, 0
        self._digest, self._gaps = hashlib.sha256(), hashlib.sha256()

    def update(self, values: Values, y: np.ndarray | None, folds: np.ndarray | None) -> None:
        """Add rows: their values, and with targets y (n, T) and folds (n,) of the rows."""
        self.rows += values.data.size
        self.missing += int(values.missing.sum())
        self._gaps.update(values.missing.tobytes())
        self._digest.update(values.missing.tobytes())
        self._digest.update(np.ascontiguousarray(self._add(values, y, folds)).tobytes())

    def _add(self, values: Values, y: np.ndarray | None, folds: np.ndarray | None) -> np.ndarray:
        """Add the rows; what tells them from other columns, (n,)."""
        return values.missing

    def reason(self) -> Notice | None:
        """Why the column cannot be used, if so."""
        return None

    def fitted(self, common: dict[str, Any]) -> Column:
        return Column(**common)

    def column(self, seen: dict[Any, str]) -> Column:
        """The fitted column; ``seen`` maps digests of earlier columns and of their gaps to names."""
        name, blank = self.blank.name, replace(self.blank, missing=self.missing)

        def left_out(why: str, *detail: str) -> Column:
            return replace(blank, notes=(Notice(why, name, detail), *blank.notes))

        if self.missing == self.rows:
            return left_out("no values")
        if reason := self.reason():
            return left_out(reason.kind, *reason.detail)
        # Only columns that stay are compared with: of two that are the same one must.
        alike = "numeric" if blank.kind == "boolean" else blank.kind
        first = seen.setdefault((alike, self._digest.digest()), name)
        if first != name:
            return left_out("the same", quoted(first))
        column = self.fitted(dict(vars(blank)))
        varies = bool(column.value_features())
        if self.missing == 0:
            return column if varies else left_out("constant")
        if varies and self.missing < RARE_GAPS * self.rows:
            return replace(column, notes=(*column.notes, Notice("rare gaps", name)))
        first = seen.setdefault(self._gaps.digest(), name)
        if first != name and not varies:
            return left_out("constant gaps", quoted(first))
        gaps = () if first == name else (Notice("same gaps", name, (quoted(first),)),)
        alone = () if varies else (Notice("gaps alone", name),)
        return replace(column, notes=(*column.notes, *gaps, *alone), indicator=first == name)


class NumberStatistics(Statistics):
    """Of numbers, booleans and dates: ends, a sample for the median, and whether they count rows."""

    def __init__(self, blank: Column) -> None:
        super().__init__(blank)
        self.low, self.high, self.last = np.inf, -np.inf, None
        self.whole = self.rises = self.falls = True
        self.zoned, self.step = False, 1
        self.sample = np.empty(0, np.int64 if blank.kind == "date" else float)

    def _add(self, values: Values, y: np.ndarray | None, folds: np.ndarray | None) -> np.ndarray:
        present = values.data[~values.missing]
        self.zoned |= bool(values.zoned)
        if present.size:
            self.low, self.high = min(self.low, present.min()), max(self.high, present.max())
            steps = np.diff(present) if self.last is None else np.diff(present, prepend=self.last)
            self.last = present[-1]
            self.rises = self.rises and bool(np.all(steps > 0))
            self.falls = self.falls and bool(np.all(steps < 0))
            self.whole = self.whole and bool(np.all(present == np.floor(present)))
            # Every value while they are few, then every second, every fourth, ...
            before = self.rows - self.missing - present.size
            self.sample = np.concatenate([self.sample, present[-before % self.step :: self.step]])
            while self.sample.size > 2 * SAMPLED:
                self.sample, self.step = self.sample[::2], 2 * self.step
        # -0.0 and 0.0 are equal, and all NaN mean missing.
        return np.where(values.missing, 0, values.data) + 0

    def reason(self) -> Notice | None:
        is_index = self.blank.name == NO_NAME and self.blank.kind == "numeric" and self.whole and self.rises
        return Notice("row numbers") if is_index else None

    def is_identifier(self) -> bool:
        """Whole numbers, all different, of enough rows, under a name such as customer_id."""
        if self.blank.kind != "numeric" or not self.whole or not LIKE_AN_ID.search(self.blank.name):
            return False
        return self.rows - self.missing >= LEAST_ID_ROWS and np.unique(self.sample).size == self.sample.size

    def fitted(self, common: dict[str, Any]) -> Column:
        if self.blank.kind == "date":
            common |= {"low": int(self.low), "high": int(self.high), "zoned": self.zoned}
            common["seasonal"] = common["high"] - common["low"] > kinds.YEAR * kinds.DAY
            return kinds.DateColumn(**common, median=int(np.sort(self.sample)[self.sample.size // 2]))
        counts = self.whole and self.blank.kind == "numeric"
        if counts and max(-self.low, self.high) > LARGEST_EXACT:
            common["notes"] += (Notice("large", self.blank.name),)
        if counts and (self.rises or self.falls) and self.missing == 0 and self.rows >= LEAST_ID_ROWS:
            common["notes"] += (Notice("in order", self.blank.name),)
        common |= {"low": float(self.low), "high": float(self.high), "varies": bool(self.low < self.high)}
        return kinds.NumericColumn(**common, median=float(np.median(self.sample)))


class LevelStatistics(Statistics):
    """Of text: of each target, level and fold the sums (T, 3, L, K) of 1, y, y^2; place 0 is that of levels
    not counted.
    """

    def __init__(self, blank: Column) -> None:
        super().__init__(blank)
        self.places: dict[str, int] = {}
        self.sums = np.zeros((1, 3, 1, FOLDS))
        self.has_target = False
        self.targets: set[float] = set()  # a few of its values: enough to tell two classes

    def _add(self, values: Values, y: np.ndarray | None, folds: np.ndarray | None) -> np.ndarray:
        for label in values.labels:
            if len(self.places) < MOST_COUNTED:
                self.places.setdefault(label, len(self.places) + 1)
        codes = np.array([*(self.places.get(label, 0) for label in values.labels), -1])[values.data]
        present, size = codes >= 0, len(self.places) + 1
        self.has_target = y is not None
        y = np.zeros((codes.size, 1)) if y is None else y
        if len(self.targets) < 3:
            self.targets |= set(np.unique(y[:, 0])[:3].tolist())
        cell = (codes * FOLDS + (0 if folds is None else folds))[present]
        added = [[np.bincount(cell, own**power, size * FOLDS) for power in (0, 1, 2)] for own in y[present].T]
        grown = np.zeros((y.shape[1], 3, size, FOLDS))
        grown[:, :, : self.sums.shape[2]] = self.sums
        self.sums = grown + np.reshape(added, grown.shape)
        return codes

    def counts(self) -> np.ndarray:
        return self.sums[0, 0].sum(axis=1)

    def reason(self) -> Notice | None:
        present, different = self.rows - self.missing, int((self.counts() > 0).sum())
        if different == present > 1:
            return Notice("all different", detail=(str(present),))
        nearly = different > MOST_LEVELS and 2 * different > present
        return Notice("nearly unique", detail=(str(different), str(present))) if nearly else None

    def fitted(self, common: dict[str, Any]) -> Column:
        counts, name = self.counts(), self.blank.name
        seen = [label for label, i in self.places.items() if counts[i]]
        # By frequency, then by name: the order of the rows must not matter.
        ranked = sorted(seen, key=lambda label: (-counts[self.places[label]], label))
        common["n_levels"] = len(ranked) + bool(counts[0])
        two_classes = len(self.targets) == 2 and len(self.sums) == 1
        of_classes = two_classes and self.rows >= ROWS_FOR_MEANS * len(ranked) > ROWS_FOR_MEANS
        if self.has_target and (of_classes or len(ranked) > MOST_ONE_HOT):
            means, (mean, *further) = _means_of_each(self.sums.sum(axis=3))
            common["notes"] += (Notice("means", name, (f"{len(ranked):,}",)),)
            common |= {"levels": tuple(ranked[:MOST_KEPT]), "mean": mean, "further": tuple(further)}
            places = [self.places[level] for level in common["levels"]]
            return kinds.MeanColumn(**common, means=tuple(means[:, places].ravel().tolist()))
        other = len(ranked) > MOST_LEVELS
        own = MOST_LEVELS - 1 if other else len(ranked)
        if other:
            common["notes"] += (Notice("rare levels", name, (str(len(ranked) - own),)),)
        common |= {"levels": tuple(sorted(ranked[:own])), "rare": tuple(ranked[own : own + MOST_KEPT])}
        return kinds.CategoricalColumn(**common, other=other)

    def left_out_means(self) -> LeftOutMeans:
        """The means at each level from the rows of all folds but one; folds of rows are filled in later."""
        without = self.sums.sum(axis=3)[..., None] - self.sums
        found = [_means_of_each(without[..., k]) for k in range(FOLDS)]
        means = np.array([np.column_stack([per_level, overall]).T for per_level, overall in found])
        return LeftOutMeans(self.places, means, np.empty(0, int))


def _means_of_each(sums: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """`level_means` of each target, from sums (T, 3, L): (T, L), and those of all rows."""
    means, overall = zip(*map(level_means, sums), strict=True)
    return np.stack(means), list(overall)


def statistics_of(blank: Column) -> Statistics:
    if blank.kind == "categorical":
        return LevelStatistics(blank)
    return (NumberStatistics if blank.kind in ("numeric", "boolean", "date") else Statistics)(blank)
