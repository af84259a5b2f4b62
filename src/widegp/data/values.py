"""Arrow columns as NumPy values of one of four kinds: numeric, boolean, categorical, date.

The type of a column decides its kind when a model is fitted. Afterwards the kind is known, and a column is
read as that kind or refused; text cells of a CSV file are parsed as that kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widegp.data.errors import TableError, in_column, quoted
from widegp.data.text import RAW, REFUSED, REMARK, are_times, as_numbers, as_times, clean, settle_column

# Kinds of columns that can be read as the kind that was fitted; "empty" is a column without any value.
READ_AS = {
    "numeric": ("numeric", "boolean", "empty"),
    "boolean": ("boolean", "numeric", "empty"),
    "categorical": ("categorical", "empty"),
    "date": ("date", "empty"),
}
HELD = {"numeric": "numbers", "boolean": "booleans", "categorical": "text", "date": "dates"}
EXAMPLE = {"numeric": "12.5", "boolean": "true or false", "date": "2024-12-31 or 2024-12-31T08:00:00Z"}

# Beyond this the square of a value, and so the kernel, overflows.
LARGEST = 1e150
LARGEST_EXACT = 2**53
# Microseconds of the first and the last moment of the years 1 to 9999.
EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Values:
    """One column of n rows.

    Fields
    ------
    kind : one of ``READ_AS``, or "empty", or "unusable" (lists, structures, bytes; no values then).
    data : (n,) numbers (NaN where missing), 0/1/NaN, codes into ``labels`` (-1 where missing), or
        microseconds since 1970 (0 where missing).
    missing : (n,) booleans.
    labels : the different texts of a categorical column.
    zoned : whether dates name a time zone.
    remark : what a reader of the summary should know.
    """

    kind: str
    data: np.ndarray
    missing: np.ndarray
    labels: tuple[str, ...] = ()
    zoned: bool = False
    remark: str = ""


def learn_values(field: pa.Field, column: pa.ChunkedArray) -> Values:
    """The values of a training column, of the kind that its type, or all its cells, show."""
    with in_column(field.name):
        said = field.metadata or {}
        remark = said.get(REMARK, b"").decode()
        if RAW in said:
            settled = settle_column(column)
            column, remark = settled.column, settled.remark
            said = {REFUSED: settled.refused.encode()}
        if said.get(REFUSED):
            raise TableError(
                f"Column {quoted(field.name)} {said[REFUSED].decode()}; correct that, leave cells empty that"
                " are missing, or drop the column."
            )
        column, kind = _plain(column)
        return _values(field.name, column, kind, kind, 0, remark)


def read_values(field: pa.Field, column: pa.ChunkedArray, kind: str, first_row: int) -> Values:
    """The values of a column that had ``kind`` when fitting; ``first_row`` rows stand before it."""
    with in_column(field.name):
        if RAW in (field.metadata or {}):
            column = _parsed(field.name, clean(column), kind, first_row)
        column, found = _plain(column)
        if found not in READ_AS[kind]:
            raise TableError(
                f"Column {quoted(field.name)} held {HELD[kind]} when fitting and is {_short(column.type)}"
                f" now; write it as {HELD[kind]} again."
            )
        return _values(field.name, column, found, kind, first_row)


def _plain(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, str]:
    """The column without dictionaries and wrappers, and its kind."""
    while True:
        kind = column.type
        if isinstance(kind, pa.BaseExtensionType):
            column = pa.chunked_array([c.storage for c in column.chunks], kind.storage_type)
        elif pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        elif pa.types.is_run_end_encoded(kind):
            column = pa.chunked_array([pc.run_end_decode(c) for c in column.chunks], kind.value_type)
        else:
            break
    is_ = pa.types
    if is_.is_null(kind):
        return column, "empty"
    if is_.is_boolean(kind):
        return column, "boolean"
    if is_.is_date(kind) or is_.is_timestamp(kind):
        return column, "date"
    if any(f(kind) for f in (is_.is_integer, is_.is_floating, is_.is_decimal, is_.is_time, is_.is_duration)):
        return column, "numeric"
    if any(f(kind) for f in (is_.is_string, is_.is_large_string, is_.is_string_view)):
        return column, "categorical"
    if any(f(kind) for f in (is_.is_binary, is_.is_large_binary, is_.is_binary_view)):
        return _bytes_as_text(column)
    return column, "unusable"


def _bytes_as_text(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, str]:
    # Older writers of Parquet leave text unmarked.
    try:
        return column.cast(pa.large_string()), "categorical"
    except pa.ArrowInvalid:
        return column, "unusable"


def _parsed(name: str, cells: pa.ChunkedArray, kind: str, first_row: int) -> pa.ChunkedArray:
    """Text cells as the kind that was fitted."""
    if kind == "categorical":
        return cells
    if kind == "boolean":
        # The other spelling of a boolean, 0 and 1, is told apart from other numbers later.
        lower = pc.utf8_lower(cells)
        cells = pc.if_else(pc.equal(lower, "true"), "1", pc.if_else(pc.equal(lower, "false"), "0", cells))
    if kind == "date":
        wrong = pc.index(pc.fill_null(_are_times(cells), True), False).as_py()
        if wrong < 0:
            return as_times(cells)
    else:
        parsed = as_numbers(cells)
        if isinstance(parsed, pa.ChunkedArray):
            return parsed
        wrong = parsed
    raise TableError(
        f"Column {quoted(name)} held {HELD[kind]} when fitting, and row {first_row + wrong + 1} holds"
        f" {quoted(cells[wrong])}; write it like {EXAMPLE[kind]}, or leave it empty if it is missing."
    )


def _are_times(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which cells are times, null where missing; each different text is looked at once."""
    words = pc.unique(cells).drop_null()
    return pc.if_else(pc.is_valid(cells), pc.is_in(cells, value_set=words.filter(are_times(words))), None)


def _values(
    name: str, column: pa.ChunkedArray, found: str, kind: str, first_row: int, remark: str = ""
) -> Values:
    n_rows = len(column)
    if found == "unusable":
        return Values(found, np.zeros(n_rows), np.zeros(n_rows, bool), remark=_short(column.type))
    if found == "empty":
        data = np.full(n_rows, np.nan) if kind in ("numeric", "boolean", "empty") else np.full(n_rows, -1)
        return Values(kind, data, np.ones(n_rows, bool))
    if kind == "categorical":
        return _texts(column, remark)
    if kind == "date":
        return _times(name, column, first_row, remark)
    data = _numbers(column)
    check_size(name, data, first_row)
    if kind == "boolean" and found == "numeric":
        _check_boolean(name, data, first_row)
    if pa.types.is_integer(column.type) and np.any(np.abs(data) > LARGEST_EXACT):
        remark = "whole numbers beyond 2^53 lose their last digits"
    return Values(kind, data, np.isnan(data), remark=remark)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """(n,) float64, NaN where missing; times of day and durations in seconds."""
    kind = column.type
    per = 1
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        per = PER_SECOND[kind.unit]
        column = column.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    data = column.cast(pa.float64(), safe=False).to_numpy()
    return data / per if per > 1 else data


def check_size(name: str, data: np.ndarray, first_row: int, word: str = "Column") -> None:
    """Refuse infinite and enormous numbers, naming the first."""
    wrong = np.flatnonzero(np.abs(data) > LARGEST)
    if wrong.size:
        value = data[wrong[0]]
        what = "an infinite value" if np.isinf(value) else f"{value:g}, beyond {LARGEST:g},"
        cure = "leave it empty if it is missing" if word == "Column" else "drop the row"
        raise TableError(
            f"{word} {quoted(name)} holds {what} in row {first_row + int(wrong[0]) + 1};"
            f" correct it, or {cure}."
        )


def _check_boolean(name: str, data: np.ndarray, first_row: int) -> None:
    wrong = np.flatnonzero(~np.isnan(data) & (data != 0) & (data != 1))
    if wrong.size:
        raise TableError(
            f"Column {quoted(name)} held booleans when fitting, and row {first_row + int(wrong[0]) + 1} holds"
            f" {data[wrong[0]]:g}; write it like {EXAMPLE['boolean']}, or leave it empty if it is missing."
        )


def _texts(column: pa.ChunkedArray, remark: str) -> Values:
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Values("categorical", codes, codes < 0, tuple(encoded.dictionary.to_pylist()), remark=remark)


def _times(name: str, column: pa.ChunkedArray, first_row: int, remark: str) -> Values:
    kind = column.type
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    # Nanoseconds lose digits that no model sees; from any other unit a loss would be an overflow.
    safe = not (pa.types.is_timestamp(kind) and kind.unit == "ns")
    moments = column.cast(pa.timestamp("us", "UTC" if zoned else None), safe=safe).cast(pa.int64())
    missing, data = moments.is_null().to_numpy(), moments.fill_null(0).to_numpy()
    wrong = np.flatnonzero((data < EARLIEST) | (data > LATEST))
    if wrong.size:
        raise TableError(
            f"Column {quoted(name)} holds a date outside the years 1 to 9999 in row"
            f" {first_row + int(wrong[0]) + 1}; correct it, or leave it empty if it is missing."
        )
    return Values("date", data, missing, zoned=zoned, remark=remark)


def read_target(field: pa.Field, column: pa.ChunkedArray, first_row: int) -> np.ndarray:
    """(n,) float64, every one finite; text, booleans, dates and missing values are refused."""
    name = quoted(field.name)
    with in_column(field.name):
        said = field.metadata or {}
        if said.get(REFUSED):
            raise TableError(f"Target {name} {said[REFUSED].decode()}; correct that, or drop such rows.")
        if RAW in said:
            cells = clean(column)
            parsed = as_numbers(cells)
            if isinstance(parsed, int):
                raise TableError(
                    f"Target {name} holds {quoted(cells[parsed])} in row {first_row + parsed + 1}, which is"
                    " no number; correct it, drop the row, or choose another target."
                )
            column = parsed
        column, kind = _plain(column)
        if kind == "boolean":
            raise TableError(f"Target {name} holds booleans; write them as 0 and 1.")
        if kind not in ("numeric", "empty"):
            raise TableError(
                f"Target {name} is no number but {_short(column.type)};"
                " write it as numbers, or choose another target."
            )
        data = np.full(len(column), np.nan) if kind == "empty" else _numbers(column)
        absent = np.flatnonzero(np.isnan(data))
        if absent.size:
            raise TableError(
                f"Target {name} is missing in row {first_row + int(absent[0]) + 1}"
                f" ({absent.size} of {data.size} rows); drop such rows."
            )
        check_size(field.name, data, first_row, "Target")
        return data


def _short(kind: pa.DataType) -> str:
    return str(kind).split("<")[0]
