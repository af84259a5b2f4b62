"""A table as it is, to the matrix a model needs: a transform fitted on training rows and kept with the model.

Sees no target but as a column to leave out, and no rows but those it is given. What a later table can have
wrong is refused with a `TableError`, or counted in plain words that add up over batches.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from widegp.data.errors import TableError, quoted, similar
from widegp.data.kinds import (
    FITTED,
    OUTSIDE,
    CategoricalColumn,
    Column,
    column_from_dict,
    column_to_dict,
    unique_names,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from widegp.data.values import Values

__all__ = ["TableEncoder", "TableError", "in_words"]

FORMAT = 1
MISSING = ("impute", "refuse")
# Standardised, the 1s of a rarer indicator lie so far out that they swamp the distances of all other inputs.
RARE_GAPS = 0.02
LIKE_AN_ID = "whole numbers in order, all different, as of an identifier"
# Fewer rows may well stand in the order of an input by chance or for tidiness.
LEAST_ID_ROWS = 20
# More columns than this with values out of range share one line.
MOST_OUTSIDE = 3


@dataclass(frozen=True)
class TableEncoder:
    """x = (features of column 1, of column 2, ...), as `widegp.data.kinds` defines them per kind.

    Fields
    ------
    columns : what was learnt about each input column, used or not, in the order of the table.
    target_name : the column to predict, or None.
    missing : "impute" fills a missing value with the training median, "refuse" raises.
    n_rows : training rows.
    """

    columns: tuple[Column, ...]
    target_name: str | None
    missing: str
    n_rows: int

    @classmethod
    def fit(
        cls, table: pa.Table, target: str | None, drop: Sequence[str] = (), missing: str = "impute"
    ) -> Self:
        """Learn kinds, levels, ranges and medians from training rows; ``drop`` names columns to leave out."""
        from widegp.data.values import learn_values

        if missing not in MISSING:
            raise TableError(f"missing={missing!r} is unknown; choose {' or '.join(map(repr, MISSING))}.")
        _check_names(table)
        _check_chosen(table.schema.names, target, drop)
        if table.num_rows < 2:
            raise TableError(f"The table has {_count(table.num_rows, 'row')}; a fit needs at least 2.")
        columns: list[Column] = []
        seen: dict[bytes, str] = {}
        for i, field in enumerate(table.schema):
            if field.name == target:
                continue
            if field.name in drop:
                n_missing = table.column(i).null_count
                columns.append(Column(field.name, str(field.type), n_missing, "left out by choice"))
                continue
            values = learn_values(field, _chunked(table.column(i)))
            if missing == "refuse":
                _refuse_missing(field.name, values, 0)
            columns.append(_learnt(field.name, values, seen))
        fitted = cls(tuple(columns), target, missing, table.num_rows)
        if not fitted.feature_names:
            why = "; ".join(f"{quoted(c.name)}: {c.note}" for c in columns[:5]) or "it is the target alone"
            raise TableError(f"No column of the table can be used ({why}); add a column that varies.")
        return fitted

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The I features, in the order of the columns of ``transform``."""
        return unique_names([name for column in self.columns for name in _features(column)])

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """The columns that a table must have for ``transform``."""
        return tuple(column.name for column in self.columns if _features(column))

    def summary(self) -> list[dict[str, Any]]:
        """Per input column: name, kind, used, missing, levels, min, max, note."""
        return [
            {"name": c.name, "kind": c.kind, "used": bool(_features(c)), "missing": c.missing}
            | c.describe()
            | {"note": c.note}
            for c in self.columns
        ]

    def like_identifiers(self) -> list[str]:
        """Columns that look like row numbers; not one that is the only input, as of a series."""
        found = [column.name for column in self.columns if LIKE_AN_ID in column.note and _features(column)]
        return found if len(self.input_names) > 1 else []

    def transform(self, batch: pa.RecordBatch | pa.Table) -> tuple[np.ndarray, Counter[str]]:
        """X (n, I) float64, all finite, and what was odd, counted: see `in_words`."""
        from widegp.data.values import read_values

        self._check_columns(batch)
        said: Counter[str] = Counter()
        self._count_extra(batch, said)
        X = np.empty((batch.num_rows, len(self.feature_names)))
        first_row, at = _first_row(batch), 0
        for column in self.columns:
            width = len(_features(column))
            if width == 0:
                continue
            place = batch.schema.get_field_index(column.name)
            values = read_values(
                batch.schema.field(place), _chunked(batch.column(place)), column.kind, first_row
            )
            self._encode(column, values, first_row, said, X[:, at : at + width])
            at += width
        return X, +said

    def target(self, batch: pa.RecordBatch | pa.Table) -> np.ndarray:
        """y (n,) float64, all finite."""
        from widegp.data.values import read_target

        if self.target_name is None:
            raise TableError("No target was named when fitting; fit the encoder with one.")
        _check_names(batch)
        place = batch.schema.get_field_index(self.target_name)
        if place < 0:
            raise TableError(
                f"The table has no target {quoted(self.target_name)};"
                f" {similar(self.target_name, batch.schema.names)}"
            )
        return read_target(batch.schema.field(place), _chunked(batch.column(place)), _first_row(batch))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which keeps them exactly."""
        return {
            "format": FORMAT, "target": self.target_name, "missing": self.missing, "n_rows": self.n_rows,
            "columns": [column_to_dict(column) for column in self.columns],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """The encoder that ``to_dict`` described."""
        try:
            if state["format"] != FORMAT:
                raise TableError(f"its format is {quoted(state['format'])}, and this version reads {FORMAT}")
            target, missing, n_rows = state["target"], state["missing"], state["n_rows"]
            columns = tuple(column_from_dict(column) for column in state["columns"])
            if not (isinstance(target, str | None) and missing in MISSING and type(n_rows) is int):
                raise TableError("target, missing or n_rows is not what fitting leaves")
        # A description can be edited by hand in any way: all that fails says the same.
        except Exception as error:
            raise TableError(f"This describes no fitted table ({error}); save the model again.") from error
        return cls(columns, target, missing, n_rows)

    def _encode(
        self, column: Column, values: Values, first_row: int, said: Counter[str], out: np.ndarray
    ) -> None:
        if self.missing == "refuse":
            _refuse_missing(column.name, values, first_row)
        elif column.missing == 0:
            filled = (
                "taken as no level" if isinstance(column, CategoricalColumn) else "filled with the median"
            )
            words = f"values of {quoted(column.name)} missing, as none was when fitting, and {filled}"
            said[words] += int(values.missing.sum())
        block = column.encode(values, said)
        out[:, : block.shape[1]] = block
        if column.indicator:
            out[:, -1] = values.missing

    def _check_columns(self, batch: pa.RecordBatch | pa.Table) -> None:
        _check_names(batch)
        names = set(batch.schema.names)
        lacking = [name for name in self.input_names if name not in names]
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            others = [name for name in batch.schema.names if name not in self.input_names]
            near = similar(lacking[0], others, "not used so far:")
            cure = f"rename or add it: {near}" if others else "add it."
            raise TableError(
                f"The table lacks the column {quoted(lacking[0])}{more} of the fitted model; {cure}"
            )

    def _count_extra(self, batch: pa.RecordBatch | pa.Table, said: Counter[str]) -> None:
        known = {column.name for column in self.columns} | {self.target_name}
        for name in batch.schema.names:
            if name not in known:
                words = f"rows with the column {quoted(name)}, unknown when fitting and ignored"
                said[words] += batch.num_rows


def in_words(said: Counter[str]) -> list[str]:
    """The counts of ``transform``, the largest first: "3 values of 'color' not seen when fitting"."""
    phrases = []
    for words, n in _together(said).most_common():
        noun, rest = words.split(" ", 1)
        phrases.append(f"{_count(n, noun.removesuffix('s'))} {rest}")
    return phrases


def _together(said: Counter[str]) -> Counter[str]:
    """The counts, those of many columns with values out of range summed into one that names the first."""
    outside = [words for words, _ in said.most_common() if OUTSIDE in words]
    if len(outside) <= MOST_OUTSIDE:
        return said
    names = [words.removeprefix("values of ").split(f" {OUTSIDE}")[0] for words in outside]
    rest = f"{', '.join(names[:MOST_OUTSIDE])} and {len(names) - MOST_OUTSIDE} more columns"
    merged = Counter({words: n for words, n in said.items() if OUTSIDE not in words})
    merged[f"values of {rest} {OUTSIDE}"] = sum(said[words] for words in outside)
    return merged


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _features(column: Column) -> tuple[str, ...]:
    extra = (f"{column.name} (missing)",) if column.indicator else ()
    return column.value_features() + extra


def _learnt(name: str, values: Values, seen: dict[bytes, str]) -> Column:
    """The fitted column; ``seen`` maps digests of earlier columns and of their gaps to names."""
    n_missing = int(values.missing.sum())
    if values.kind == "unusable":
        return Column(name, values.remark, n_missing, f"left out: {values.remark} values are no inputs")
    if n_missing == values.data.size:
        return Column(name, values.kind, n_missing, "left out: no values")
    first = seen.setdefault(_digest(values), name)
    if first != name:
        return Column(name, values.kind, n_missing, f"left out: the same as {quoted(first)}")
    present = values.data.size - n_missing
    if values.kind == "categorical" and len(values.labels) == present > 1:
        note = f"left out: {present} texts, all different, as of an identifier"
        return Column(name, values.kind, n_missing, "; ".join(filter(None, (note, values.remark))))
    column = FITTED[values.kind].fit(name, values)
    varies = bool(column.value_features())
    if n_missing == 0 and not varies:
        return Column(name, values.kind, 0, "left out: constant")
    if n_missing == 0:
        return _noted(column, LIKE_AN_ID) if _counts_up(values) else column
    if varies and n_missing < RARE_GAPS * values.data.size:
        return _noted(column, "gaps too rare for an input of their own")
    first = seen.setdefault(hashlib.sha256(values.missing.tobytes()).digest(), name)
    if first != name and not varies:
        note = f"left out: constant, and missing where {quoted(first)} is"
        return Column(name, values.kind, n_missing, note)
    gaps = f"missing where {quoted(first)} is" if first != name else ""
    constant = "" if varies else "constant: used for where it is missing"
    return replace(_noted(column, gaps, constant), indicator=first == name)


def _noted(column: Column, *notes: str) -> Column:
    return replace(column, note="; ".join(filter(None, (column.note, *notes))))


def _counts_up(values: Values) -> bool:
    """Whether the values are whole numbers that rise, or fall, from each row to the next, as row numbers."""
    if values.kind != "numeric" or values.data.size < LEAST_ID_ROWS:
        return False
    steps = np.diff(values.data)
    whole = bool(np.all(values.data == np.floor(values.data)))
    return whole and bool(np.all(steps > 0) or np.all(steps < 0))


def _digest(values: Values) -> bytes:
    """Equal for columns that hold the same values in the same rows, and for booleans and their 0 and 1."""
    kind = "numeric" if values.kind == "boolean" else values.kind
    # -0.0 and 0.0 are equal, and all NaN mean missing.
    data = np.where(values.missing, 0, values.data) + 0 if kind == "numeric" else values.data
    digest = hashlib.sha256(repr((kind, values.labels)).encode("utf-8", "surrogatepass"))
    digest.update(np.ascontiguousarray(data).tobytes())
    digest.update(values.missing.tobytes())
    return digest.digest()


def _refuse_missing(name: str, values: Values, first_row: int) -> None:
    absent = np.flatnonzero(values.missing)
    if absent.size:
        raise TableError(
            f"Column {quoted(name)} is missing in row {first_row + int(absent[0]) + 1}"
            f" ({absent.size} of {values.data.size} rows); fill it in, drop the column, or choose 'impute'."
        )


def _check_names(table: Any) -> None:
    import pyarrow as pa

    if not isinstance(table, pa.RecordBatch | pa.Table):
        raise TableError(f"A pyarrow table is needed, not {type(table).__name__}; open_table reads one.")
    twice = [name for name, n in Counter(table.schema.names).items() if n > 1]
    if twice:
        raise TableError(f"The table has several columns named {quoted(twice[0])}; give each its own name.")


def _check_chosen(names: list[str], target: str | None, drop: Sequence[str]) -> None:
    if isinstance(drop, str):
        raise TableError(f"drop={drop!r} is one text; pass a list of names.")
    if target is not None and target not in names:
        raise TableError(f"The table has no target {quoted(target)}; {similar(target, names)}")
    for name in drop:
        if name not in names:
            raise TableError(f"The table has no column {quoted(name)} to drop; {similar(name, names)}")
    if target is not None and target in drop:
        raise TableError(f"{quoted(target)} is the target and cannot be dropped; choose one of the two.")


def _chunked(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _first_row(batch: pa.RecordBatch | pa.Table) -> int:
    """Rows of the table before this batch, where its source wrote them down."""
    from widegp.data.tables import FIRST_ROW

    written = (batch.schema.metadata or {}).get(FIRST_ROW, b"0")
    return int(written) if written.isdigit() else 0
