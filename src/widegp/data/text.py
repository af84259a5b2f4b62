"""What a column of text cells holds: numbers, booleans, dates, or words; decided over all rows.

    cell -> blanks trimmed -> missing if spelt like ``MISSING`` -> value

A column is what all its cells are. Where most are numbers or dates, or all are in a notation that cannot be
read safely, the column stays text and carries the reason (``REFUSED``) why it should not be used as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widegp.data.errors import quoted

# Metadata of fields: text whose type is still open, a reason to refuse the column, and a remark on it.
RAW, REFUSED, REMARK = b"widegp.raw", b"widegp.refused", b"widegp.remark"

# "Na" is sodium and "None" a level of many tables, so the spellings are exact.
MISSING = (
    "", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-nan", "-NaN", "NULL", "null", "?",
)  # fmt: skip
NUMBER = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:inf|infinity|nan))$"
DAY = r"[1-9]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?"
ZONE = r"(?:Z|[+-](?:0\d|1[0-4]):?[0-5]\d)"
TIME = f"^{DAY}(?:[T ]{CLOCK}{ZONE}?)?$"
ZONED = f":.*{ZONE}$"
OTHER_DATE = r"^(?:\d{1,2}[/.]\d{1,2}[/.]\d{2,4}|\d{4}[/.]\d{1,2}[/.]\d{1,2})(?:[ T].*)?$"
DECORATION = r"[,$€£¥₹%'()\s\x{a0}]"

# More different numbers than this, or a fraction among them, and a column of numbers and words is a column of
# numbers with mistakes; else it may be a column of codes.
MANY_CODES = 20


@dataclass(frozen=True)
class Settled:
    """A column with its type; ``refused`` and ``remark`` are empty where there is nothing to say."""

    column: pa.ChunkedArray
    refused: str = ""
    remark: str = ""


def is_number(word: str) -> bool:
    return bool(pc.match_substring_regex(pa.scalar(word), NUMBER).as_py())


def settle(table: pa.Table) -> pa.Table:
    """The table with every column of raw text given the type that its cells show."""
    fields, columns, schema = [], table.columns, table.schema
    # Text takes more room than numbers: each column's goes as soon as its values are there.
    del table
    for i, field in enumerate(schema):
        if RAW not in (field.metadata or {}):
            fields.append(field)
            continue
        settled = settle_column(columns[i])
        said = {REFUSED: settled.refused.encode(), REMARK: settled.remark.encode()}
        metadata = {key: value for key, value in said.items() if value}
        fields.append(pa.field(field.name, settled.column.type, metadata=metadata or None))
        columns[i] = settled.column
    return pa.table(columns, schema=pa.schema(fields))


def settle_column(raw: pa.ChunkedArray) -> Settled:
    """Numbers, booleans, times, or text; a column without values has the null type."""
    cells = clean(raw)
    if cells.null_count == len(cells):
        return Settled(pa.chunked_array([pa.nulls(len(cells))]))
    try:
        return Settled(pc.cast(cells, pa.float64()))
    except pa.ArrowInvalid:
        pass
    words = pc.unique(cells).drop_null()
    if pc.all(pc.is_in(pc.utf8_lower(words), value_set=pa.array(["true", "false"]))).as_py():
        return Settled(pc.equal(pc.utf8_lower(cells), "true"))
    if pc.all(are_times(words)).as_py():
        return Settled(as_times(cells))
    refused = _other_notation(cells, words) or _nearly(cells, words)
    return Settled(cells, refused, "" if refused else _mixed(cells, words))


def clean(raw: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cells without blanks around them, null where missing."""
    cells = pc.utf8_trim_whitespace(raw)
    return pc.if_else(pc.is_in(cells, value_set=pa.array(MISSING)), pa.scalar(None, cells.type), cells)


def as_numbers(cells: pa.ChunkedArray) -> pa.ChunkedArray | int:
    """Cells as float64, or the position of the first that is no number."""
    try:
        return pc.cast(cells, pa.float64())
    except pa.ArrowInvalid:
        return _first(pc.invert(pc.match_substring_regex(cells, NUMBER)))


def are_times(words: pa.Array) -> pa.Array:
    """Which words are ISO 8601 days or times that exist."""
    good = pc.match_substring_regex(words, TIME)
    days = pc.unique(pc.utf8_slice_codeunits(words.filter(good), 0, 10))
    try:
        pc.cast(days, pa.timestamp("us"))
        return good
    except pa.ArrowInvalid:
        absent = [day for day in days.to_pylist() if not _exists(day)]
        return pc.and_(good, pc.invert(pc.is_in(pc.utf8_slice_codeunits(words, 0, 10), pa.array(absent))))


def _exists(day: str) -> bool:
    try:
        np.datetime64(day)
    except ValueError:
        return False
    return True


def as_times(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """ISO 8601 times as microseconds; where some name a zone, the others are read as UTC."""
    cells = pc.replace_substring_regex(cells, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(cells, ZONED)
    if not pc.any(zoned).as_py():
        return pc.cast(cells, pa.timestamp("us"))
    end = pc.if_else(pc.equal(pc.utf8_length(cells), 10), "T00:00Z", "Z")
    cells = pc.if_else(zoned, cells, pc.binary_join_element_wise(cells, end, ""))
    return pc.cast(cells, pa.timestamp("us", "UTC"))


def _nearly(cells: pa.ChunkedArray, words: pa.Array) -> str:
    """Why a column that is mostly numbers or mostly dates is neither."""
    for kind, good in (("numbers", pc.match_substring_regex(words, NUMBER)), ("dates", are_times(words))):
        odd = pc.is_in(cells, value_set=words.filter(pc.invert(good)))
        if 2 * pc.sum(odd).as_py() > len(cells) - cells.null_count:
            continue
        if kind == "numbers" and not _measured(words.filter(good)):
            continue
        row = _first(odd)
        return f"holds {kind} but for {quoted(cells[row])} in row {row + 1}"
    return ""


def _measured(numbers: pa.Array) -> bool:
    values = pc.cast(numbers, pa.float64()).to_numpy(zero_copy_only=False)
    return np.unique(values).size > MANY_CODES or bool(np.any(values != np.rint(values)))


def _other_notation(cells: pa.ChunkedArray, words: pa.Array) -> str:
    """Why numbers with signs and separators, or dates that are not ISO 8601, are not read."""
    plain = pc.match_substring_regex(words, NUMBER)
    bare = pc.match_substring_regex(pc.replace_substring_regex(words, DECORATION, ""), NUMBER)
    if pc.all(bare).as_py():
        row = _first(pc.is_in(cells, value_set=words.filter(pc.invert(plain))))
        return (
            f"holds numbers written with signs or separators, such as {quoted(cells[row])} in row {row + 1},"
            " which must be written plainly, such as 1234.5"
        )
    if pc.all(pc.match_substring_regex(words, OTHER_DATE)).as_py():
        row = _first(pc.is_valid(cells))
        return (
            f"holds dates written like {quoted(cells[row])} in row {row + 1},"
            " where day and month may be mixed up; they must be written like 2024-12-31"
        )
    return ""


def _mixed(cells: pa.ChunkedArray, words: pa.Array) -> str:
    number = pc.match_substring_regex(words, NUMBER)
    if not pc.any(number).as_py():
        return ""
    row = _first(pc.is_in(cells, value_set=words.filter(pc.invert(number))))
    return f"numbers and words, first {quoted(cells[row])} in row {row + 1}, taken as levels"


def _first(mask: pa.ChunkedArray) -> int:
    """Position of the first true; -1 if there is none."""
    return pc.index(mask, True).as_py()
