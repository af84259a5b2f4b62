"""CSV and TSV files: the header, and a scan of the cells as text.

Cells stay text here. pyarrow infers types block by block, so a column of whole numbers that meets a fraction
or a word in a later block would fail; `widegp.data.text` decides over all rows instead. Blank lines are no
rows, names and cells lose blanks around them, and a mark of UTF-8 at the start is skipped.
"""

from __future__ import annotations

import codecs
import csv
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from widegp.data.errors import TableError, quoted
from widegp.data.text import RAW, is_number

# pyarrow reads some thirty blocks ahead.
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 20, 64 << 20
DELIMITERS = (",", ";", "\t", "|")
# What Windows-1252 has and Latin-1 has not.
WINDOWS = range(0x80, 0xA0)

Opened = tuple[list[str], int | None, Callable[[list[str], int], Iterator[pa.RecordBatch]]]


def open_csv(path: Path) -> Opened:
    """(names, None, scan): names from the first line; the first block is parsed as a check."""
    header = _first_line(path)
    delimiter = _delimiter(header, path.suffix.lower())
    # A row must fit into a block; rows of a wide table are as long as its header, or some times that.
    block = min(max(SMALLEST_BLOCK, 16 * len(header)), LARGEST_BLOCK)
    with _parsing(path, delimiter, block):
        names, n_rows = _first_block(path, _options(delimiter, block))
    stripped = [name.strip() for name in names]
    if _is_data(stripped):
        raise TableError(
            f"The first line of {path} holds numbers, not names; put a line with the columns' names first."
        )
    if n_rows == 0:
        raise TableError(f"{path} has a header but no rows; pass a table with at least one row.")
    return stripped, None, partial(_scan, path, delimiter, block, names)


def _first_line(path: Path) -> bytes:
    with open(path, "rb") as file:
        for line in iter(lambda: file.readline(LARGEST_BLOCK), b""):
            if parts := line.strip(b"\xef\xbb\xbf\r\n").splitlines():
                return parts[0]
    return b""


def _delimiter(header: bytes, suffix: str) -> str:
    """The first of comma, semicolon, tab and bar that parts the header; in a TSV the tab goes first."""
    outside = "".join(header.decode("utf-8", "replace").split('"')[::2])
    first = ("\t",) if suffix in (".tsv", ".tab") else ()
    return next((mark for mark in first + DELIMITERS if mark in outside), ",")


def _options(delimiter: str, block: int) -> dict[str, Any]:
    return {
        "read_options": pacsv.ReadOptions(use_threads=False, block_size=block),
        "parse_options": pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
    }


def _first_block(path: Path, options: dict[str, Any]) -> tuple[list[str], int]:
    """The names, and the number of rows in the first block that has any."""
    with pacsv.open_csv(str(path), **options) as reader:
        return reader.schema.names, next((batch.num_rows for batch in reader if batch.num_rows), 0)


def _is_data(names: list[str]) -> bool:
    """Whether the supposed names are numbers, other than the 0, 1, 2, ... of a frame without names."""
    counted = any(names == [str(i + start) for i in range(len(names))] for start in (0, 1))
    return not counted and all(is_number(name) for name in names)


def _scan(
    path: Path, delimiter: str, block: int, raw_names: list[str], columns: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    raw = {name.strip(): name for name in raw_names}
    # The last column is read in any case: it shows whether a quotation mark was left open.
    wanted = [raw[name] for name in columns]
    read = list(dict.fromkeys([*wanted, raw_names[-1]]))
    convert = pacsv.ConvertOptions(
        column_types=dict.fromkeys(read, pa.string()), include_columns=read, strings_can_be_null=False
    )
    schema = pa.schema([pa.field(name, pa.string(), metadata={RAW: b"1"}) for name in columns])
    last = ""
    with (
        _parsing(path, delimiter, block),
        pacsv.open_csv(str(path), convert_options=convert, **_options(delimiter, block)) as reader,
    ):
        for batch in reader:
            if batch.num_rows:
                last = batch.column(raw_names[-1])[-1].as_py()
                yield pa.RecordBatch.from_arrays(batch.columns[: len(wanted)], schema=schema)
    if "\n" in last or "\r" in last:
        _check_end(path, delimiter)


@contextmanager
def _parsing(path: Path, delimiter: str, block: int) -> Iterator[None]:
    """Say what pyarrow could not parse with the line of the file; it knows blocks."""
    try:
        yield
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        sentence = _not_utf8(path) or _unparsed(path, delimiter, block, str(error))
        if sentence is None:
            raise
        raise TableError(sentence) from error


def _not_utf8(path: Path) -> str | None:
    """Which line holds a byte that is not UTF-8, and the likely encoding."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            held = decoder.getstate()[0]
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                line += error.object[: error.start].count(b"\n") - held.count(b"\n")
                likely = "WINDOWS-1252" if byte in WINDOWS else "ISO-8859-1"
                return (
                    f"{path}, line {line}, holds the byte 0x{byte:02x}, which is not UTF-8; convert the file,"
                    f" most likely with iconv -f {likely} -t UTF-8."
                )
            line += chunk.count(b"\n")
    return None


def _unparsed(path: Path, delimiter: str, block: int, reason: str) -> str | None:
    if "straddl" in reason:
        return f"{path} has a row beyond {block >> 20} MiB; close the quotation mark left open, or cut it."
    if "Empty CSV" in reason:
        return f"{path} has no rows; pass a table with a header line and at least one row."
    if "Expected" not in reason:
        return None
    header = None
    for line, row in _rows(path, delimiter):
        if header is None:
            header = row
        elif len(row) != len(header):
            values = "1 value" if len(row) == 1 else f"{len(row)} values"
            return (
                f"{path}, line {line}, has {values} where the header names {len(header)} columns; correct it"
                f" (a value that holds {quoted(delimiter)} needs quotation marks, and each mark its partner)."
            )
    return None


def _rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the line it begins on; ends where Python's parser gives up."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        line = 1
        try:
            for row in reader:
                if row:
                    yield line, row
                line = reader.line_num + 1
        except csv.Error:
            return


def _check_end(path: Path, delimiter: str) -> None:
    """Refuse a file whose last value took in the rest of the file for want of a closing mark."""
    with open(path, "rb") as file:
        file.seek(-min(1 << 12, path.stat().st_size), 2)
        if file.read().rstrip(b"\r\n").endswith(b'"'):
            return
    ((line, _),) = deque(_rows(path, delimiter), maxlen=1)
    raise TableError(f'{path}, line {line}, leaves a quotation mark open; close it, or write "" to mean one.')
