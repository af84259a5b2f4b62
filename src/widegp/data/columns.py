"""A table as it is, to the matrix a model needs: a transform fitted on training rows and kept with the model.

Two passes over a source, in bounded memory: `survey` finds out how text is written and reads the target,
`learn` adds up statistics of the training rows. All problems of a table are gathered for one message. What a
later table can have wrong is refused with a `TableError`, or counted as a `Notice`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from widegp.data.errors import Problems, TableError, quoted, similar
from widegp.data.kinds import (
    FOLDS,
    CategoricalColumn,
    Column,
    LeftOutMeans,
    column_from_dict,
    column_to_dict,
    unique_names,
)
from widegp.data.tables import FIRST_ROW, TableSource, open_table
from widegp.notices import Notice, counted

if TYPE_CHECKING:
    import pyarrow as pa

    from widegp.data.statistics import Statistics
    from widegp.data.text import Reading
    from widegp.data.values import Values

FORMAT = 2
MISSING = ("impute", "refuse")
# The notation of a column whose cells were refused; the problems say why.
REFUSED = "refused"
# Beyond these a wrong name is said at once, before the rows are read for other problems.
QUICKLY_READ = 64 << 20


class Survey(NamedTuple):
    """Columns without statistics, the target y (n,), NaN where missing, or None if there is none to read, and
    how it is written where it is text, with a remark where that is no plain number.
    """

    columns: tuple[Column, ...]
    y: np.ndarray | None
    target_notation: str = ""
    target_notes: tuple[Notice, ...] = ()


class RowsToLearn(NamedTuple):
    """Which of the n rows to learn from (booleans), their targets (n, T) less the means of these, and their
    folds.
    """

    chosen: np.ndarray
    y: np.ndarray
    folds: np.ndarray

    @classmethod
    def of(cls, chosen: np.ndarray, y: np.ndarray, seed: int = 0) -> Self:
        """Targets y, (n,) or (n, T); folds of nearly equal size, drawn at random; -1 for rows not chosen."""
        y = np.reshape(y, (len(chosen), -1))
        folds = np.full(len(y), -1)
        folds[chosen] = np.random.default_rng(seed).permutation(int(chosen.sum())) % FOLDS
        return cls(chosen, y - (y[chosen].mean(axis=0) if chosen.any() else 0.0), folds)


@dataclass(frozen=True)
class TableEncoding:
    """x = (features of column 1, of column 2, ...), as `widegp.data.kinds` defines them per kind.

    Fields
    ------
    columns : what was learnt about each input column, used or not, in the order of the table.
    target_name : the column to predict, or None.
    missing : "impute" fills a missing value with the training median, "refuse" raises.
    n_rows : training rows.
    target_notation : how the target is written where it is text, see `widegp.data.text`.
    """

    columns: tuple[Column, ...]
    target_name: str | None
    missing: str
    n_rows: int
    target_notation: str = ""

    @classmethod
    def fit(
        cls, table: Any, target: str | None, drop: Sequence[str] = (), missing: str = "impute",
        reading: Reading | None = None,
    ) -> TableEncoding:  # fmt: skip
        """Learn kinds, levels, ranges and medians from all rows of anything that `open_table` takes."""
        source, problems = open_table(table, reading), Problems()
        found = survey(source, target, drop, reading, problems)
        rows = None if found.y is None else RowsToLearn.of(~np.isnan(found.y), found.y)
        encoding, _ = learn(source, found, target, missing, problems, rows)
        problems.raise_all()
        return encoding

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The I features, in the order of the columns of ``transform``."""
        return unique_names([name for column in self.columns for name in column.features()])

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """The columns that a table must have for ``transform``."""
        return tuple(column.name for column in self.columns if column.features())

    def summary(self) -> list[dict[str, Any]]:
        """Per input column: name, kind, used, missing, levels, min, max, note."""
        keys = ("name", "kind", "used", "missing", "levels", "min", "max", "note")
        return [
            dict(zip(keys, (c.name, c.kind, bool(c.features()), c.missing, getattr(c, "n_levels", None),
                            *c.ends(), c.note()), strict=True))
            for c in self.columns
        ]  # fmt: skip

    def transform(
        self, batch: pa.RecordBatch | pa.Table, means: Mapping[str, LeftOutMeans] | None = None
    ) -> tuple[np.ndarray, Counter[Notice]]:
        """X (n, I) float64, all finite, and what was odd, counted; ``means`` are for training rows."""
        from widegp.data.values import read_values

        self._check_columns(batch)
        known = {column.name for column in self.columns} | {self.target_name}
        extra = [name for name in batch.schema.names if name not in known]
        said = Counter({Notice("unknown column", name): batch.num_rows for name in extra})
        X = np.empty((batch.num_rows, len(self.feature_names)))
        row, at = first_row(batch), 0
        for column in self.columns:
            width = len(column.features())
            if width:
                values = read_values(batch.column(column.name), column, row)
                self._count_gaps(column, values, row, said)
                block = column.encode(values, said, (means or {}).get(column.name))
                X[:, at : at + block.shape[1]] = block
                if column.indicator:
                    X[:, at + width - 1] = values.missing
                at += width
        return X, +said

    def _count_gaps(self, column: Column, values: Values, row: int, said: Counter[Notice]) -> None:
        if self.missing == "refuse":
            _refuse_missing(column.name, values, row)
        elif column.missing == 0:
            level = "taken as no level" if isinstance(column, CategoricalColumn) else "filled with the median"
            said[Notice("newly missing", column.name, (level,))] += int(values.missing.sum())

    def target(self, batch: pa.RecordBatch | pa.Table) -> np.ndarray:
        """y (n,) float64, NaN where it is missing."""
        from widegp.data.values import read_target

        target, names = self.target_name, batch.schema.names
        if target is None:
            raise TableError("No target was named when fitting; fit the encoder with one.")
        if target not in names:
            raise TableError(f"The table has no target {quoted(target)}; {similar(target, names)}")
        return read_target(target, batch.column(target), self.target_notation, first_row(batch))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which keeps them exactly."""
        return {
            "format": FORMAT, "target": self.target_name, "missing": self.missing, "n_rows": self.n_rows,
            "target_notation": self.target_notation,
            "columns": [column_to_dict(column) for column in self.columns],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The encoding that ``to_dict`` of this version or an earlier one described."""
        try:
            version = state["format"]
            if version not in range(1, FORMAT + 1):
                raise TableError(f"its format is {quoted(version)}, and this version reads 1 to {FORMAT}")
            target, missing, n_rows = state["target"], state["missing"], state["n_rows"]
            notation = state.get("target_notation", "")
            columns = tuple(column_from_dict(column, version) for column in state["columns"])
            named = isinstance(target, str | None) and isinstance(notation, str)
            if not (named and missing in MISSING and type(n_rows) is int):
                raise TableError("target, missing or n_rows is not what fitting leaves")
        # A description can be edited by hand in any way: all that fails says the same.
        except Exception as error:
            raise TableError(f"This describes no fitted table ({error}); save the model again.") from error
        return cls(columns, target, missing, n_rows, notation)

    def _check_columns(self, batch: pa.RecordBatch | pa.Table) -> None:
        names = set(batch.schema.names)
        lacking = [name for name in self.input_names if name not in names]
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            known = {*self.input_names, self.target_name}
            others = [name for name in batch.schema.names if name not in known]
            near = similar(lacking[0], others, "columns that the model does not know are")
            cure = f"add it, or rename one: {near}" if others else "add it."
            raise TableError(
                f"The table lacks the column {quoted(lacking[0])}{more} of the fitted model; {cure}"
            )


def survey(
    source: TableSource, target: str | None, drop: Sequence[str], reading: Reading | None, problems: Problems
) -> Survey:
    """How the text of each column is written, and the target, from one pass over those columns."""
    import pyarrow as pa

    from widegp.data.arrow_files import holds_levels
    from widegp.data.text import KINDS, Reading, TextSurvey, clean, settle
    from widegp.data.values import decoded, read_target, short_type

    _check_chosen(source, target, drop, problems)
    kinds = {f.name: decoded(pa.chunked_array([], f.type))[1] for f in source.schema if f.name not in drop}
    levels = {field.name for field in source.schema if holds_levels(field)} - {target}
    words = [name for name, kind in kinds.items() if kind == "categorical" and name not in levels]
    texts = {name: TextSurvey(name, not source.is_text and name != target) for name in words}
    targets: list[pa.Array] = []
    columns = [name for name in kinds if name in texts or name == target]
    for batch in source.batches(columns=columns) if columns else ():
        for name in [*texts]:
            column, kinds[name] = decoded(batch.column(name))
            if kinds[name] == "categorical":
                texts[name].update(clean(column), first_row(batch))
            else:
                del texts[name]
        if target in kinds:
            targets.append(batch.column(target))
    settled = settle(texts.values(), reading or Reading(), target, problems)
    y = None
    if target is not None and targets and (target in settled or target not in texts):
        with problems.gathered():
            y = read_target(target, pa.chunked_array(targets), settled.get(target, ("", ()))[0])
    found = []
    for field in source.schema:
        name, kind = field.name, kinds.get(field.name, str(field.type))
        notation, notes = settled.get(name, (REFUSED if name in texts else "", ()))
        if name in drop:
            notes = (Notice("by choice", name),)
        elif kind == "unusable":
            kind = short_type(field.type)
            notes = (Notice("no type", name, (kind,)),)
        if name != target:
            found.append(Column(name, KINDS.get(notation, kind), 0, notes, notation=notation))
    notation, notes = settled.get(target, ("", ())) if target is not None else ("", ())
    return Survey(tuple(found), y, notation, notes)


def learn(
    source: TableSource, found: Survey, target: str | None, missing: str, problems: Problems,
    rows: RowsToLearn | None = None,
) -> tuple[TableEncoding, dict[str, LeftOutMeans]]:  # fmt: skip
    """The encoding learnt from ``rows`` (by default all, without a target), and the means for training rows.

    Every row is checked, so that errors number the rows of the table.
    """
    from widegp.data.statistics import LevelStatistics

    if missing not in MISSING:
        problems.add(f"missing={missing!r} is unknown; choose {' or '.join(map(repr, MISSING))}.")
    usable = [c for c in found.columns if c.notation != REFUSED and not any(n.is_left_out for n in c.notes)]
    held = _statistics(source, usable, missing == "refuse", problems, rows)
    n = max((statistics.rows for statistics in held.values()), default=0)
    if held and n < 2:
        problems.add(f"The table has {counted(n, 'row')}; a fit needs at least 2.")
    columns = _fitted(found.columns, held)
    encoding = TableEncoding(columns, target, missing, n, found.target_notation)
    if not encoding.feature_names and not problems.sentences:
        why = "; ".join(f"{quoted(c.name)}: {c.note()}" for c in columns[:5]) or "it is the target alone"
        problems.add(f"No column of the table can be used ({why}); add a column that varies.")
    levels = [s for s in held.values() if isinstance(s, LevelStatistics) and s.has_target]
    return encoding, {s.blank.name: s.left_out_means() for s in levels}


def _statistics(
    source: TableSource, columns: Sequence[Column], no_gaps: bool, problems: Problems,
    rows: RowsToLearn | None,
) -> dict[str, Statistics]:  # fmt: skip
    """By name, what the training rows add up to; a column with a problem in any row is not among them."""
    from widegp.data.statistics import statistics_of
    from widegp.data.values import read_values

    held = {column.name: statistics_of(column) for column in columns}
    for batch in source.batches(columns=[*held]) if held else ():
        part = slice(first_row(batch), first_row(batch) + batch.num_rows)
        chosen = slice(None) if rows is None else rows.chosen[part]
        y, folds = (None, None) if rows is None else (rows.y[part][chosen], rows.folds[part][chosen])
        for name, statistics in [*held.items()]:
            try:
                values = read_values(batch.column(name), statistics.blank, part.start)
                if no_gaps:
                    _refuse_missing(name, values, part.start)
                statistics.update(values.at(chosen), y, folds)
            except TableError as error:
                problems.add(str(error))
                del held[name]
    return held


def _fitted(columns: tuple[Column, ...], held: Mapping[str, Statistics]) -> tuple[Column, ...]:
    """The columns with what was learnt; identifiers are left out where other inputs remain."""
    from widegp.data.statistics import NumberStatistics

    known = {name: statistics for name, statistics in held.items() if statistics.rows}
    named = {n for n, s in known.items() if isinstance(s, NumberStatistics) and s.is_identifier()}
    seen: dict[Any, str] = {}
    # Identifiers come last: a column that is the same as one of them, or has gaps where it has, stays.
    fitted = {name: known[name].column(seen) for name in sorted(known, key=named.__contains__)}
    used = {name for name, column in fitted.items() if column.features()}
    for name in used & named if used - named else ():
        fitted[name] = replace(held[name].blank, notes=(Notice("identifier", name),))
    return tuple(fitted.get(column.name, column) for column in columns)


def _check_chosen(source: TableSource, target: str | None, drop: Sequence[str], problems: Problems) -> None:
    names = source.names
    if isinstance(drop, str):
        problems.add(f"drop={drop!r} is one text; pass a list of names.")
        drop = ()
    if target is not None and target not in names:
        problems.add(f"{source} has no target {quoted(target)}; {similar(target, names)}")
    for name in drop:
        if name not in names:
            problems.add(f"{source} has no column {quoted(name)} to drop; {similar(name, names)}")
    if target is not None and target in drop:
        problems.add(f"{quoted(target)} is the target and cannot be dropped; choose one of the two.")
    if sum(path.stat().st_size for path in source.files) > QUICKLY_READ:
        problems.raise_all()


def _refuse_missing(name: str, values: Values, before: int) -> None:
    if values.missing.any():
        raise TableError(
            f"Column {quoted(name)} is missing in row {before + int(values.missing.argmax()) + 1};"
            " fill it in, drop the column, or choose 'impute'."
        )


def first_row(batch: pa.RecordBatch | pa.Table) -> int:
    """Rows of the table before this batch, where its source wrote them down."""
    written = (batch.schema.metadata or {}).get(FIRST_ROW, b"0")
    return int(written) if written.isdigit() else 0
