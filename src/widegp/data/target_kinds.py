"""What a column to predict holds: classes, counts, or numbers of any kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from widegp.data.errors import TableError, quoted
from widegp.data.tables import TableSource

if TYPE_CHECKING:
    import pyarrow as pa

# Fewer rows of two numbers may be any numbers.
LEAST_ROWS = 10
# Values of a column that are named in words, and values up to which words are classes.
NAMED, MOST_CLASSES = 5, 50
NUMBER_LIKE = re.compile(r"[^\w]*\d[\d.,'\s]*[^\w]*")
# What classes are asked for by: how their probability depends on the latent f.
LINKS = ("logit", "probit")
# Metadata of the field of a target that holds the numbers of classes.
CLASSES = {b"widegp": b"classes"}


class TargetKind(NamedTuple):
    """``likelihood`` that suits the column, its ``classes`` in order where it holds such, and ``words``, one
    sentence for the user, or none.
    """

    likelihood: str = "gaussian"
    classes: tuple[str, ...] | None = None
    words: str = ""


def target_kind(source: TableSource, target: str, asked: str | None = None) -> TargetKind:
    """Two values, whatever they are, are classes, and so are words and levels of a category, up to
    MOST_CLASSES; whole numbers from 0 on may be counts, which is said. ``asked`` is the likelihood that the
    user named.
    """
    import pyarrow.compute as pc

    from widegp.data.arrow_files import holds_levels

    if target not in source.names:
        return TargetKind()
    category = holds_levels(source.schema.field(target))
    column = _read(source, target).drop_null()
    values = pc.unique(column)
    if asked in LINKS or (asked is None and _are_classes(column, values, category)):
        return _classes(target, values, asked or "logit")
    if asked is not None:
        return TargetKind(asked)
    if _is_number(column.type) and len(values) > 2 and _are_counts(column):
        return TargetKind(words=_hint(target, int(pc.max(column).as_py())))
    return TargetKind()


def _are_classes(column: pa.ChunkedArray, values: pa.Array, category: bool) -> bool:
    import pyarrow as pa

    # Words that hardly repeat are names, not classes.
    if not 2 <= len(values) <= min(MOST_CLASSES, max(2, len(column) // 2)):
        return False
    if category or pa.types.is_boolean(column.type):
        return True
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        # Numbers in a notation that is still open are for whoever reads them.
        like = [bool(NUMBER_LIKE.fullmatch(str(value))) for value in values.to_pylist()]
        return not (all(like) if len(values) == 2 else any(like))
    return len(values) == 2 and _is_number(column.type) and len(column) >= LEAST_ROWS


def _classes(target: str, values: pa.Array, link: str) -> TargetKind:
    """The kind of a column of classes, said in a line."""
    names = [_name(value) for value in sorted(values.to_pylist(), key=_rank)]
    if not 2 <= len(names) <= MOST_CLASSES:
        raise TableError(
            f"likelihood={link!r} needs 2 to {MOST_CLASSES} classes; target {quoted(target)} has"
            f" {len(names)} value{'s' if len(names) != 1 else ''}: choose another likelihood or column."
        )
    told = f"two values, {names[0]} and {names[1]}: classes"
    if len(names) > 2:
        shown = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        told = f"{len(names)} classes: {shown}"
    words = f"Target {quoted(target)} has {told}. The model predicts the probability of each."
    return TargetKind(link, tuple(names), f"{words}{_twins(names)}")


def _twins(names: Sequence[str]) -> str:
    """A sentence about names that are the same but for capitals, where there are such."""
    first: dict[str, str] = {}
    for name in names:
        twin = first.setdefault(name.casefold(), name)
        if twin != name:
            return f" {twin} and {name} differ in capitals alone: if they are one class, write them alike."
    return ""


def coded(source: TableSource, target: str, classes: Sequence[str]) -> TableSource:
    """The same table with 0, 1, ... for the classes of its target, and nothing where that is missing.

    A value that is none of the classes is refused by name and row.
    """
    import pyarrow as pa

    place = source.names.index(target)
    schema = source.schema.set(place, pa.field(target, pa.float64(), metadata=CLASSES))
    typed = _read(source, target)
    code = {name: float(k) for k, name in enumerate(classes)}
    names = [None if value is None else _name(value) for value in typed.to_pylist()]
    for row, name in enumerate(names, start=1):
        if name is not None and name not in code:
            raise TableError(
                f"Target {quoted(target)} is {quoted(name)} in row {row}, which the model does not know; its"
                f" classes are {', '.join(classes[:NAMED])}{', ...' if len(classes) > NAMED else ''}."
            )
    codes = pa.array([None if name is None else code[name] for name in names], pa.float64())

    def scan(columns: list[str], rows: int) -> Iterable[pa.RecordBatch]:
        first = 0
        for batch in source.scan(columns, rows):
            part = batch
            if target in columns:
                own = codes.slice(first, batch.num_rows)
                part = batch.set_column(columns.index(target), pa.field(target, pa.float64()), own)
            first += batch.num_rows
            yield part

    return replace(source, schema=schema, scan=scan)


def holds_classes(field: pa.Field) -> bool:
    """Whether the numbers of a target stand for classes."""
    return field.metadata == CLASSES


def _read(source: TableSource, target: str) -> pa.ChunkedArray:
    """The column of a target; null where its text is one of `MISSING`, or its number NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from widegp.data.text import clean

    column = source.read([target]).column(target)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return clean(column)
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return column


def _rank(value: object) -> tuple[int, float, str]:
    """Numbers by size, written as text or not, before words."""
    try:
        return 0, float(str(value)), ""
    except ValueError:
        return 1, 0.0, str(value)


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _are_counts(column: pa.ChunkedArray) -> bool:
    """Whole numbers >= 0 that include 0, or that include 1 and have a variance above their mean. Others are
    not taken for counts."""
    import numpy as np

    values = np.asarray(column.to_numpy(), float)
    whole = bool(np.all(np.isfinite(values) & (values >= 0) & (values == np.floor(values))))
    return whole and bool(values.min() == 0 or (values.min() <= 1 and values.var() > values.mean()))


def _hint(target: str, most: int) -> str:
    return (
        f"Target {quoted(target)} holds whole numbers from 0 on, up to {most:,}; if they are counts, pass"
        " --likelihood negative-binomial."
    )


def _name(value: object) -> str:
    """A class as it is written: 1, not 1.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
