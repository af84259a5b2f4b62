"""Arrow columns as NumPy values of one of four kinds: numeric, boolean, categorical, date.

The type of a column decides its kind when a model is fitted, and for text the notation of all its cells
(`widegp.data.text`). Afterwards kind and notation are known, and a column is read so or refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widegp.data.arrow_files import as_text
from widegp.data.errors import TableError, in_column, quoted
from widegp.data.text import KINDS, clean, parse

if TYPE_CHECKING:
    from widegp.data.kinds import Column

# Kinds of columns that can be read as the kind that was fitted; "empty" is a column without any value.
READ_AS = {
    "numeric": ("numeric", "boolean", "empty"),
    "boolean": ("boolean", "numeric", "empty"),
    "categorical": ("categorical", "empty"),
    "date": ("date", "empty"),
}
HELD = {"numeric": "numbers", "boolean": "booleans", "categorical": "text", "date": "dates"}
EXAMPLE = {"numeric": "12.5", "boolean": "true or false", "date": "2024-12-31 or 2024-12-31T08:00:00Z"}
# How text is written where the column had another type when fitting.
USUAL = {"numeric": "plain", "boolean": "truth", "date": "iso", "categorical": "text"}

# Whether a level is a whole number, as which it may come later.
WHOLE = re.compile(r"-?\d+").fullmatch

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
    kind : one of ``READ_AS``, or "unusable" (lists, structures, bytes; no values then).
    data : (n,) numbers (NaN where missing), 0/1/NaN, codes into ``labels`` (-1 where missing), or
        microseconds since 1970 (0 where missing).
    missing : (n,) booleans.
    labels : the different texts of a categorical column.
    zoned : whether dates name a time zone; None where text leaves it to each cell.
    """

    kind: str
    data: np.ndarray
    missing: np.ndarray
    labels: tuple[str, ...] = ()
    zoned: bool | None = None

    def at(self, rows: np.ndarray | slice) -> Values:
        return replace(self, data=self.data[rows], missing=self.missing[rows])


def decoded(column: pa.Array | pa.ChunkedArray) -> tuple[pa.ChunkedArray, str]:
    """The column without dictionaries and wrappers, and the kind that its type says."""
    if not isinstance(column, pa.ChunkedArray):
        column = pa.chunked_array([column])
    is_, kind = pa.types, column.type
    if isinstance(kind, pa.BaseExtensionType):
        return decoded(pa.chunked_array([c.storage for c in column.chunks], kind.storage_type))
    if is_.is_dictionary(kind):
        return decoded(column.cast(kind.value_type))
    if is_.is_run_end_encoded(kind):
        return decoded(pa.chunked_array([pc.run_end_decode(c) for c in column.chunks], kind.value_type))
    texts = (is_.is_string, is_.is_large_string, is_.is_string_view)
    # Older writers of Parquet leave text unmarked.
    bytes_ = (is_.is_binary, is_.is_large_binary, is_.is_binary_view)
    if any(f(kind) for f in texts + bytes_):
        try:
            # Offsets of 32 bits end at 2 GiB of text, and few functions know views.
            return column.cast(pa.large_string()), "categorical"
        except pa.ArrowInvalid:
            return column, "unusable"
    numeric = (is_.is_integer, is_.is_floating, is_.is_decimal, is_.is_time, is_.is_duration)
    kinds = {"empty": (is_.is_null,), "boolean": (is_.is_boolean,), "numeric": numeric}
    kinds["date"] = (is_.is_date, is_.is_timestamp)
    return column, next((name for name, fs in kinds.items() if any(f(kind) for f in fs)), "unusable")


def read_values(column: pa.Array | pa.ChunkedArray, known: Column, first_row: int) -> Values:
    """The values of the column that ``known`` was fitted on; ``first_row`` rows stand before it."""
    name, kind = known.name, known.kind
    if kind == "empty":
        return Values(kind, np.full(len(column), np.nan), np.ones(len(column), bool))
    with in_column(name):
        column, found = decoded(column)
        is_text = found == "categorical"
        if kind == "categorical" and not is_text:
            column, found = _as_levels(column, known, found)
        if is_text:
            column, found = _parsed(clean(column), known, first_row), kind
        if found not in READ_AS[kind]:
            raise TableError(
                f"Column {quoted(name)} held {HELD[kind]} when fitting and is {short_type(column.type)} now;"
                f" write it as {HELD[kind]} again."
            )
        if found == "empty":
            data = np.full(len(column), np.nan if kind in ("numeric", "boolean") else -1)
            return Values(kind, data, np.ones(len(column), bool))
        if kind == "categorical":
            encoded = column.combine_chunks().dictionary_encode()
            codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            return Values(kind, codes, codes < 0, tuple(encoded.dictionary.to_pylist()))
        if kind == "date":
            moments, missing, zoned = _times(name, column, first_row)
            return Values(kind, moments, missing, zoned=None if is_text else zoned)
        data = numbers(column)
        check_size(name, data, first_row)
        if kind == "boolean":
            _check_boolean(name, data, first_row)
        return Values(kind, data, np.isnan(data))


def _as_levels(column: pa.ChunkedArray, known: Column, found: str) -> tuple[pa.ChunkedArray, str]:
    """Whole numbers and booleans as text, where such levels were fitted; a frame has whole numbers beside
    gaps as numbers of any kind.
    """
    is_, levels = pa.types, getattr(known, "levels", ())
    if is_.is_boolean(column.type) and not {"True", "False"}.isdisjoint(levels):
        return as_text(column), "categorical"
    if not any(map(WHOLE, levels)):
        return column, found
    if is_.is_floating(column.type) and all(map(WHOLE, levels)):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        whole = pc.all(pc.equal(pc.floor(column), column)).as_py()
        column = column.cast(pa.int64(), safe=False) if whole in (True, None) else column
    return (as_text(column), "categorical") if is_.is_integer(column.type) else (column, found)


def _parsed(cells: pa.ChunkedArray, known: Column, first_row: int) -> pa.ChunkedArray:
    """Text cells as the kind that was fitted."""
    parsed = parse(cells, known.notation or USUAL[known.kind])
    if isinstance(parsed, int):
        raise TableError(
            f"Column {quoted(known.name)} held {HELD[known.kind]} when fitting, and row"
            f" {first_row + parsed + 1} holds {quoted(cells[parsed])}; write it like {EXAMPLE[known.kind]},"
            " or leave it empty if it is missing."
        )
    return parsed


def numbers(column: pa.ChunkedArray) -> np.ndarray:
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
        place = f"in row {first_row + int(wrong[0]) + 1}"
        raise TableError(f"{word} {quoted(name)} holds {what} {place}; correct it, or {cure}.")


def _check_boolean(name: str, data: np.ndarray, first_row: int) -> None:
    wrong = np.flatnonzero(~np.isnan(data) & (data != 0) & (data != 1))
    if wrong.size:
        raise TableError(
            f"Column {quoted(name)} held booleans when fitting, and row {first_row + int(wrong[0]) + 1} holds"
            f" {data[wrong[0]]:g}; write it like {EXAMPLE['boolean']}, or leave it empty if it is missing."
        )


def _times(name: str, column: pa.ChunkedArray, first_row: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Microseconds since 1970 (0 where missing), where they are missing, and whether a zone is named."""
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
    return data, missing, zoned


def read_target(
    name: str, column: pa.Array | pa.ChunkedArray, notation: str = "", first_row: int = 0
) -> np.ndarray:
    """(n,) float64, NaN where missing, else finite; text without numbers, booleans and dates are refused."""
    with in_column(name):
        column, kind = decoded(column)
        if kind == "categorical":
            cells = clean(column)
            parsed = parse(cells, notation if KINDS.get(notation) == "numeric" else "plain")
            if isinstance(parsed, int):
                raise TableError(
                    f"Target {quoted(name)} holds {quoted(cells[parsed])} in row {first_row + parsed + 1},"
                    " which is no number; correct it, drop the row, or choose another target."
                )
            column, kind = decoded(parsed)
        if kind not in ("numeric", "empty"):
            cure = "write them as 0 and 1" if kind == "boolean" else "write numbers, or choose another target"
            raise TableError(f"Target {quoted(name)} holds {short_type(column.type)} values; {cure}.")
        data = np.full(len(column), np.nan) if kind == "empty" else numbers(column)
        check_size(name, data, first_row, "Target")
        return data


def short_type(kind: pa.DataType) -> str:
    return str(kind).removeprefix("large_").split("<")[0].split("[")[0]
