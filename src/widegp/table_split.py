"""A table as numbers: which rows are learnt from, which are held out, and the encoding that the first show.

Three passes over the table, each in bounded memory: how it is written and the target, statistics of the
training rows, the encoded rows. These lie in memory, or in a file of TMPDIR where they are many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from widegp.data.arrays import empty_mapped, take
from widegp.data.columns import RowsToLearn, Survey, TableEncoding, learn, survey
from widegp.data.errors import Problems, TableError, quoted, similar
from widegp.data.kinds import LeftOutMeans
from widegp.data.tables import TableSource, open_table
from widegp.data.target_kinds import holds_classes
from widegp.data.text import Reading
from widegp.notices import Notice

# Fewer training rows than this leave nothing to estimate from.
LEAST_ROWS = 3
# Fewer held-out rows say too little, whatever the hurry.
LEAST_SCORED = 200
# Encoded rows beyond these bytes lie in a file.
IN_MEMORY = 2 << 30
# Rows are encoded in parts of about this many numbers.
PART_NUMBERS = 1 << 24


@dataclass(frozen=True)
class TableSettings:
    """What a user decides about a table before a fit.

    target : the column to predict.    further : columns to predict beside it.    drop : those to leave out.
    test_fraction, seed : share of the rows that are held out, and which.
    group : a column, no input, whose rows of one value are held out together or not at all.
    missing : "impute" or "refuse" gaps in inputs.    missing_target : "leave-out" such rows, or "error".
    reading : how text is written, where its cells leave doubt.
    """

    target: str
    drop: tuple[str, ...] = ()
    further: tuple[str, ...] = ()
    test_fraction: float = 0.1
    seed: int = 0
    group: str | None = None
    missing: str = "impute"
    missing_target: str = "leave-out"
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def taken_from(cls, settings: dict[str, Any], **given: Any) -> TableSettings:
        """Settings under names of this class or of `Reading`, taken out of ``settings``."""
        reading = {f.name: settings.pop(f.name) for f in fields(Reading) if f.name in settings}
        own = {f.name: settings.pop(f.name) for f in fields(cls) if f.name in settings}
        return cls(**(own | given), reading=Reading(**reading))


@dataclass(frozen=True)
class Split:
    """Encoded rows (n, I) and targets (n,), or (n, T) for several outputs, the ``n_train`` training rows
    first, then the held-out ones.

    numbers : (n,) of the rows in the table, from 1 on.
    n_scored : held-out rows that are scored, the first of them; None for all.
    notations : how further outputs are written where they are text.
    """

    encoder: TableEncoding
    rows: np.ndarray
    targets: np.ndarray
    n_train: int
    numbers: np.ndarray
    n_scored: int | None = None
    warnings: Counter[Notice] = field(default_factory=Counter)
    notations: tuple[str, ...] = ()

    @property
    def X(self) -> np.ndarray:
        return self.rows[: self.n_train]

    @property
    def y(self) -> np.ndarray:
        return self.targets[: self.n_train]

    @property
    def X_test(self) -> np.ndarray:
        return self.rows[self._scored]

    @property
    def y_test(self) -> np.ndarray:
        return self.targets[self._scored]

    @property
    def _scored(self) -> slice:
        return slice(self.n_train, None if self.n_scored is None else self.n_train + self.n_scored)

    def scored(self, most: int | None, seed: int = 0) -> Split:
        """At most ``most`` held-out rows, drawn at random, are scored, yet no fewer than LEAST_SCORED."""
        held_out = len(self.targets) - self.n_train
        if most is None or held_out <= (most := max(most, LEAST_SCORED)):
            return self
        order = np.arange(len(self.targets))
        order[self.n_train :] = self.n_train + np.random.default_rng(seed).permutation(held_out)
        rows, targets, numbers = take(self.rows, order), self.targets[order], self.numbers[order]
        return replace(self, rows=rows, targets=targets, numbers=numbers, n_scored=most)


def split_table(table: Any, settings: TableSettings) -> Split:
    """Hold out a random share of the rows and encode all by what the training rows show.

    table : a path, a frame of pandas, polars or Dask, an Arrow table, or a `TableSource`.

    Of the n rows with a target the test rows are the first floor(n ``test_fraction``) of NumPy's
    default_rng(seed).permutation(n), or those of the first groups of that of all groups, as many as come
    nearest to that number. All that is wrong with the table is said in one `TableError`.
    """
    source, problems = open_table(table, settings.reading), Problems()
    if not 0 <= settings.test_fraction < 1:
        problems.add(
            f"The test fraction is {settings.test_fraction}; pass a number from 0 to below 1, e.g. 0.1."
        )
    groups = _groups(source, settings, problems)
    if groups is not None and settings.group is not None:
        settings = replace(settings, drop=(*settings.drop, settings.group))
    found, targets, notations = _surveyed(source, settings, problems)
    order, n_train = _order(found, settings, groups, problems)
    training = None
    if found.y is not None:
        chosen = np.zeros(len(found.y), bool)
        chosen[order[:n_train]] = True
        for t, name in enumerate((settings.target, *settings.further)):
            y = targets if targets.ndim == 1 else targets[:, t]
            _check_targets(y[chosen], len(order), name, problems)
        training = RowsToLearn.of(chosen, _learned(source, settings.target, targets), settings.seed)
    encoding, means = learn(source, found, settings.target, settings.missing, problems, training)
    problems.raise_all()
    assert training is not None and found.y is not None
    rows, noticed = _encoded(source, encoding, means, training, order)
    without = len(found.y) - len(order)
    named = " or ".join(map(quoted, (settings.target, *settings.further)))
    noticed += Counter({Notice("no target", detail=(named,)): without})
    noticed += Counter(notice for notice in found.target_notes if notice.kind == "notation")
    if groups is not None:
        kinds = [str(len(np.unique(groups[part]))) for part in (order[n_train:], order)]
        noticed += Counter({Notice("held groups", settings.group or "", tuple(kinds)): 1})
    return Split(encoding, rows, targets[order], n_train, order + 1, warnings=noticed, notations=notations)


def _learned(source: TableSource, target: str, targets: np.ndarray) -> np.ndarray:
    """What levels of columns are told by, (n,) or (n, T): the targets, or whether a row is of class 1, 2, ...

    The number of a class says nothing, but where there are two.
    """
    classes = int(np.nanmax(targets)) + 1 if holds_classes(source.schema.field(target)) else 2
    return targets if classes <= 2 else (targets[:, None] == np.arange(1, classes)) * 1.0


class Surveyed(NamedTuple):
    """How a table is written; its targets, (n,) or (n, T); how the further ones of several are written."""

    found: Survey
    targets: np.ndarray
    notations: tuple[str, ...] = ()


def _surveyed(source: TableSource, settings: TableSettings, problems: Problems) -> Surveyed:
    """A row that lacks one of several targets has none."""
    named, there = (settings.target, *settings.further), set(source.names)

    def of(one: str) -> Survey:
        apart = tuple(name for name in named if name != one and name in there and name not in settings.drop)
        return survey(source, one, (*settings.drop, *apart), settings.reading, problems)

    first, *others = map(of, named)
    columns = [one.y for one in (first, *others) if one.y is not None]
    if not others or len(columns) < len(named):
        return Surveyed(first, np.empty(0) if first.y is None else first.y)
    targets = np.stack(columns, axis=1)
    whole = np.where(np.isnan(targets).any(axis=1), np.nan, targets[:, 0])
    return Surveyed(first._replace(y=whole), targets, tuple(one.target_notation for one in others))


def _groups(source: TableSource, settings: TableSettings, problems: Problems) -> np.ndarray | None:
    """The number of each row's group, (n,); of rows without a value it is the same."""
    if settings.group is None:
        return None
    if settings.group not in source.names:
        named = similar(settings.group, source.names)
        problems.add(f"{source} has no column {quoted(settings.group)} to group by; {named}")
        return None
    if settings.group in (settings.target, *settings.further):
        problems.add(f"{quoted(settings.group)} is the target and cannot group rows; name another column.")
        return None
    column = source.read([settings.group]).column(0).combine_chunks()
    return np.asarray(column.dictionary_encode().indices.fill_null(-1), int)


def _order(
    found: Survey, settings: TableSettings, groups: np.ndarray | None, problems: Problems
) -> tuple[np.ndarray, int]:
    """Numbers of the rows with a target, training rows first, both parts in the order of the table, and how
    many training rows there are.
    """
    if settings.missing_target not in ("leave-out", "error"):
        problems.add(f"missing_target={settings.missing_target!r} is unknown; choose 'leave-out' or 'error'.")
    if found.y is None:
        return np.empty(0, int), 0
    absent = np.flatnonzero(np.isnan(found.y))
    if absent.size and (settings.missing_target == "error" or absent.size == len(found.y)):
        problems.add(
            f"Target {quoted(settings.target)} is missing in row {absent[0] + 1}"
            f" ({absent.size} of {len(found.y)} rows); drop such rows."
        )
    here = np.flatnonzero(~np.isnan(found.y))
    count = int(len(here) * settings.test_fraction) if 0 <= settings.test_fraction < 1 else 0
    rng, held = np.random.default_rng(settings.seed), np.zeros(len(here), bool)
    if groups is None:
        held[rng.permutation(len(here))[:count]] = True
    elif count:
        kinds, kind = np.unique(groups[here], return_inverse=True)
        drawn = rng.permutation(len(kinds))
        rows = np.cumsum(np.bincount(kind)[drawn])[:-1]
        if len(rows):
            held = np.isin(kind, drawn[: 1 + np.argmin(np.abs(rows - count))])
        else:
            named = quoted(settings.group or "")
            problems.add(f"Column {named} has one value and parts no rows; name another.")
    return np.concatenate([here[~held], here[held]]), int(np.sum(~held))


def _check_targets(y: np.ndarray, n: int, target: str, problems: Problems) -> None:
    if n and len(y) < LEAST_ROWS:
        problems.add(
            f"The table has {n} row{'s' if n > 1 else ''}, which leaves {len(y)} to fit on;"
            f" pass a table with more rows (at least {LEAST_ROWS} to fit on)."
        )
    elif n and np.ptp(y) == 0:
        problems.add(f"The target {quoted(target)} is {y[0]:g} in every row; pass a column that varies.")


def _encoded(
    source: TableSource, encoding: TableEncoding, means: Mapping[str, LeftOutMeans], training: RowsToLearn,
    order: np.ndarray,
) -> tuple[np.ndarray, Counter[Notice]]:  # fmt: skip
    """The rows of the table in ``order``, encoded part by part, and what was odd about them."""
    shape = len(order), len(encoding.feature_names)
    rows = empty_mapped(shape) if 8 * shape[0] * shape[1] > IN_MEMORY else np.empty(shape)
    place = np.full(len(training.y), -1)
    place[order] = np.arange(len(order))
    noticed: Counter[Notice] = Counter()
    at, size = 0, max(256, min(65536, PART_NUMBERS // max(shape[1], 1)))
    for batch in source.batches(size, encoding.input_names):
        part = slice(at, at + batch.num_rows)
        at, here = part.stop, place[part] >= 0
        folds = training.folds[part][here]
        encoded, odd = encoding.transform(
            batch.filter(here), {name: found._replace(folds=folds) for name, found in means.items()}
        )
        rows[place[part][here]] = encoded
        noticed += odd
    if at != len(place):
        raise TableError(f"{source} has changed while it was read: {at} rows now, {len(place)} before.")
    return rows, noticed
