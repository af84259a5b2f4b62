"""What a column to predict holds: classes, counts, or numbers of any kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from widegp.data.errors import TableError, quoted
from widegp.data.tables import TableSource

if TYPE_CHECKING:
    import pyarrow as pa

# Fewer rows of two numbers may be any numbers.
LEAST_ROWS = 10
# Values of a column of words that are named in an error, and values up to which it is one of classes.
NAMED, MOST_CLASSES = 5, 50
NUMBER_LIKE = re.compile(r"[^\w]*\d[\d.,'\s]*[^\w]*")


class TargetKind(NamedTuple):
    """``likelihood`` that suits the column, the two ``classes`` where it holds such, the second being that
    whose probability is predicted, and ``words``, one sentence for the user, or none.
    """

    likelihood: str = "gaussian"
    classes: tuple[str, str] | None = None
    words: str = ""


def target_kind(source: TableSource, target: str) -> TargetKind:
    """Two values, whatever they are, are classes; whole numbers from 0 on may be counts, which is said."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if target not in source.names:
        return TargetKind()
    column = source.read([target]).column(target).drop_null()
    if isinstance(column.type, pa.DictionaryType):
        column = column.cast(column.type.value_type)
    values = pc.unique(column)
    words = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    named = pa.types.is_boolean(column.type)
    if words:
        # Numbers in a notation that is still open are for whoever reads them.
        named = not all(NUMBER_LIKE.fullmatch(str(value)) for value in values.to_pylist())
    if len(values) == 2 and (named or (_is_number(column.type) and len(column) >= LEAST_ROWS)):
        first, second = (_name(value) for value in sorted(values.to_pylist()))
        told = f"Target {quoted(target)} has two values, {first} and {second}: classes."
        return TargetKind("logit", (first, second), f"{told} The model predicts the probability of {second}.")
    if words and 2 < len(values) <= MOST_CLASSES:
        _refuse_many(target, [str(value) for value in values.to_pylist()])
    if _is_number(column.type) and len(values) > 2 and _are_counts(column):
        return TargetKind(words=_hint(target, int(pc.max(column).as_py())))
    return TargetKind()


def coded(source: TableSource, target: str, classes: tuple[str, str]) -> TableSource:
    """The same table with 0 and 1 for the classes of its target, and nothing where that is missing."""
    import pyarrow as pa

    place = source.names.index(target)
    typed = source.read([target]).column(target)
    schema = source.schema.set(place, pa.field(target, pa.float64()))
    if isinstance(typed.type, pa.DictionaryType):
        typed = typed.cast(typed.type.value_type)
    code = {classes[0]: 0.0, classes[1]: 1.0}
    codes = pa.array([None if v is None else code[_name(v)] for v in typed.to_pylist()], pa.float64())

    def scan(columns: list[str], rows: int) -> Iterable[pa.RecordBatch]:
        first = 0
        for batch in source._scan(columns, rows):
            part = batch
            if target in columns:
                own = codes.slice(first, batch.num_rows)
                part = batch.set_column(columns.index(target), pa.field(target, pa.float64()), own)
            first += batch.num_rows
            yield part

    return replace(source, schema=schema, _scan=scan)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _are_counts(column: pa.ChunkedArray) -> bool:
    """Whole numbers from 0 on, with 0 among them or a variance above the mean: what else has neither."""
    import numpy as np

    values = np.asarray(column.to_numpy(), float)
    whole = bool(np.all((values >= 0) & (values == np.floor(values))))
    return whole and bool(values.min() == 0 or (values.min() <= 1 and values.var() > values.mean()))


def _hint(target: str, most: int) -> str:
    return (
        f"Target {quoted(target)} holds whole numbers from 0 on, up to {most:,}; if they are counts, pass"
        " --likelihood negative-binomial."
    )


def _refuse_many(target: str, values: list[str]) -> None:
    if any(NUMBER_LIKE.fullmatch(value) for value in values):
        return
    named = ", ".join(sorted(values)[:NAMED]) + (", ..." if len(values) > NAMED else "")
    raise TableError(
        f"Target {quoted(target)} has {len(values)} classes ({named}), and tables of two are fitted here; use"
        " WideGPClassifier in Python, or a column that says whether a row is of one of them."
    )


def _name(value: object) -> str:
    """A class as it is written: 1, not 1.0."""
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)
