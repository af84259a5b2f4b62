"""CSV and TSV files, plain or packed (gzip, bzip2, xz, zip): the header, and a scan of the cells as text.

Cells stay text here. pyarrow infers types block by block, so a column of whole numbers that meets a fraction
or a word in a later block would fail; `widegp.data.text` decides over all rows instead. Blank lines are no
rows, names and cells lose blanks around them, and a mark of Unicode at the start is skipped, as is the line
"sep=;" of Excel. A last column without a name or any value, of rows that end in a delimiter, is none.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from widegp.data.arrow_files import Opened
from widegp.data.errors import TableError, quoted
from widegp.data.tables import NO_NAME
from widegp.data.text import NUMBER

# pyarrow reads some thirty blocks ahead.
SMALLEST_BLOCK, LARGEST_BLOCK = 1 << 20, 64 << 20
DELIMITERS = (",", ";", "\t", "|")
# With this line Excel is told what parts the values.
SEPARATOR = r'"?sep=(.)"?'
# The longer mark first: that of UTF-32 begins with that of UTF-16.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip


@dataclass(frozen=True)
class TextFile:
    """Where the bytes are, how they are to be decoded and parted, and how many are parsed at once.

    skipped : lines before the header.
    """

    path: Path
    encoding: str
    delimiter: str
    block: int
    skipped: int = 0

    def reader(self, **convert: Any) -> pacsv.CSVStreamingReader:
        return pacsv.open_csv(
            pa.PythonFile(_unpacked(self.path), "r"),
            read_options=pacsv.ReadOptions(
                use_threads=False, block_size=self.block, encoding=self.encoding, skip_rows=self.skipped
            ),
            parse_options=pacsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(**convert),
        )

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows that are not blank, each with the line it begins on; [] for one whose quote stays open."""
        encoding = "utf-8-sig" if self.encoding == "utf8" else self.encoding
        with _unpacked(self.path) as raw, io.TextIOWrapper(raw, encoding, "replace", newline="") as file:
            reader = csv.reader(file, delimiter=self.delimiter, strict=True)
            line = 1
            try:
                for row in reader:
                    if row and line > self.skipped:
                        yield line, row
                    line = reader.line_num + 1
            except csv.Error as error:
                if "end of data" in str(error):
                    yield line, []


def open_csv(path: Path, encoding: str | None) -> Opened:
    """(schema, None, scan): names from the first line; the first block is parsed as a check."""
    encoding, first, second = _first_lines(path, encoding)
    said = re.fullmatch(SEPARATOR, first)
    header = second if said else first
    # A row must fit into a block; rows of a wide table are as long as its header, or some times that.
    block = min(max(SMALLEST_BLOCK, 16 * len(header)), LARGEST_BLOCK)
    delimiter = said[1] if said else _delimiter(header, path.name.lower())
    file = TextFile(path, encoding, delimiter, block, 1 if said else 0)
    with _parsing(file), file.reader() as reader:
        names = reader.schema.names
        n_rows = next((batch.num_rows for batch in reader if batch.num_rows), 0)
    stripped = [name.strip() for name in names]
    counted = any(stripped == [str(i + start) for i in range(len(names))] for start in (0, 1))
    if not counted and pc.all(pc.match_substring_regex(pa.array(stripped), NUMBER)).as_py():
        raise TableError(
            f"The first line of {path} holds numbers, not names; put a line with the columns' names first."
        )
    if n_rows == 0:
        raise TableError(f"{path} has a header but no rows; pass a table with at least one row.")
    if not stripped[0] and NO_NAME not in stripped:
        stripped[0] = NO_NAME
    if len(stripped) > 1 and not stripped[-1] and names.count(names[-1]) == 1:
        stripped.pop()
    return pa.schema([(name, pa.string()) for name in stripped]), None, partial(_scan, file, names, stripped)


def _unpacked(path: Path) -> IO[Any]:
    """The bytes of the file, unpacked where it is packed."""
    file = open(path, "rb")  # noqa: SIM115
    head = file.peek(8)
    for mark, unpack in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ", lzma.open)):
        if head.startswith(mark):
            return unpack(file)  # type: ignore[return-value]
    if not head.startswith(b"PK\x03\x04"):
        return file
    archive = zipfile.ZipFile(file)
    tables = [name for name in archive.namelist() if not name.endswith("/") and name[:8] != "__MACOSX"]
    if len(tables) != 1:
        raise TableError(f"{path} holds {len(tables)} files; pack the table alone, or unpack it first.")
    return archive.open(tables[0])


def _first_lines(path: Path, encoding: str | None) -> tuple[str, str, str]:
    """The encoding, by the mark at the start unless it is given, and the first two lines with anything."""
    with _unpacked(path) as file:
        head = file.read(LARGEST_BLOCK)
    encoding = encoding or next((name for mark, name in MARKS.items() if head.startswith(mark)), "utf8")
    lines = io.TextIOWrapper(io.BytesIO(head), encoding, errors="replace")
    told = filter(None, (line.strip("\ufeff\r\n") for line in lines))
    return encoding, next(told, ""), next(told, "")


def _delimiter(header: str, name: str) -> str:
    """The first of comma, semicolon, tab and bar that parts the header; in a TSV the tab goes first."""
    outside = "".join(header.split('"')[::2])
    first = ("\t",) if ".tsv" in name or ".tab" in name else ()
    return next((mark for mark in first + DELIMITERS if mark in outside), ",")


def _scan(
    file: TextFile, raw_names: list[str], names: list[str], columns: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    # Names lack that of a last column that should hold nothing.
    raw = dict(zip(names, raw_names, strict=False))
    # The last column is read in any case: it shows whether a quotation mark was left open.
    wanted = [raw[name] for name in columns]
    read = list(dict.fromkeys([*wanted, raw_names[-1]]))
    convert = {"column_types": dict.fromkeys(read, pa.string()), "include_columns": read}
    last = ""
    with _parsing(file), file.reader(**convert, strings_can_be_null=False) as reader:
        for batch in reader:
            if batch.num_rows:
                final = batch.column(raw_names[-1])
                last = final[-1].as_py()
                if len(names) < len(raw_names) and not _is_blank(final):
                    raise TableError(f"Column {len(raw_names)} of {file.path} has no name; name it.")
                yield pa.RecordBatch.from_arrays(batch.columns[: len(wanted)], columns)
    # A value of several lines may have taken in the rest of the file for want of a closing mark.
    if len(last.splitlines()) > 1 and (sentence := _misshapen(file)):
        raise TableError(sentence)


def _is_blank(cells: pa.Array) -> bool:
    return not pc.any(pc.not_equal(pc.utf8_trim_whitespace(cells), "")).as_py()


@contextmanager
def _parsing(file: TextFile) -> Iterator[None]:
    """Say what pyarrow could not parse with the line of the file; it knows blocks."""
    try:
        yield
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        sentence = _undecoded(file) or _unparsed(file, str(error))
        if sentence is None:
            raise
        raise TableError(sentence) from error


def _undecoded(file: TextFile) -> str | None:
    """Which line cannot be decoded, and the likely encoding."""
    name = "UTF-8" if file.encoding == "utf8" else file.encoding
    with _unpacked(file.path) as raw:
        # Lines of two or four bytes a letter cannot be told apart; pyarrow's own words are kept for them.
        for line, text in enumerate(raw if name[:3].lower() != "utf" or name == "UTF-8" else (), start=1):
            try:
                text.decode(file.encoding)
            except UnicodeDecodeError as error:
                return (
                    f"{file.path}, line {line}, holds the byte 0x{text[error.start]:02x}, not {name};"
                    " most likely it is Windows-1252: pass --encoding cp1252 (encoding= in Python)."
                )
    return None


def _unparsed(file: TextFile, reason: str) -> str | None:
    if "straddl" in reason:
        size = f"{file.block >> 20} MiB"
        return f"{file.path} has a row beyond {size}; close the quotation mark left open, or cut it."
    if "Empty CSV" in reason:
        return f"{file.path} has no rows; pass a table with a header line and at least one row."
    return _misshapen(file) if "Expected" in reason else None


def _misshapen(file: TextFile) -> str | None:
    """The first line with another number of values than the header, or with a quotation mark left open."""
    header = None
    for line, row in file.rows():
        if header is None:
            header = row
        elif not row:
            return (
                f'{file.path}, line {line}, leaves a quotation mark open; close it, or write "" to mean one.'
            )
        elif len(row) != len(header):
            values = "1 value" if len(row) == 1 else f"{len(row)} values"
            return (
                f"{file.path}, line {line}, has {values} where the header has {len(header)} names; correct"
                f" it (a value that holds {quoted(file.delimiter)} needs quotation marks, each its partner)."
            )
    return None
