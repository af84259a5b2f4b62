"""Tables in files and in memory as one source of batches: CSV, TSV, Excel, Parquet, Arrow, and frames.

What a file is follows from its first bytes; its name only breaks ties. Cells of CSV and TSV come as text:
what a column holds is decided over all rows when a model is fitted, never by those of one batch.
Errors count rows from 1, below the header.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widegp.data.errors import Problems, TableError, in_file, quoted, similar

if TYPE_CHECKING:
    import pyarrow as pa

    from widegp.data.text import Reading

__all__ = ["FIRST_ROW", "TableError", "TableSource", "open_table"]

# Metadata of each batch: how many rows of the table stand before it, so that errors can number rows.
FIRST_ROW = b"widegp.first_row"
# A first column without a name, often the index of a frame, gets the name that pandas gives it.
NO_NAME = "Unnamed: 0"

# Lines are counted in these to estimate the rows of a text.
COUNTED_BYTES = 16 << 20
TEXT_SUFFIXES = {".csv", ".tsv", ".tab", ".txt"}
PARQUET_SUFFIXES = {".parquet", ".pq", ".parq"}
ARROW_SUFFIXES = {".arrow", ".arrows", ".feather", ".ipc"}
OTHERS = {
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it first",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the table as .xlsx, CSV or Parquet",
    b"\x89HDF": "an HDF5 file; write the table as CSV or Parquet",
    b"SQLite format 3": "an SQLite database; write the table as CSV or Parquet",
    b"PARE": "an encrypted Parquet file; write it without encryption",
    b"FEA1": "a Feather file of version 1; write it again with a current version of pyarrow",
}
PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"PK\x03\x04")
UNICODE = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")

Scan = Callable[[list[str], int], "Iterable[pa.RecordBatch]"]


@dataclass(frozen=True)
class TableSource:
    """A table that can be read again and again.

    Fields
    ------
    path : the file or folder; None for a table in memory.
    files : the files that hold the bytes.
    schema : its columns and their types, text for all of a CSV; names are unique and not empty.
    n_rows : None for CSV, Arrow streams and Dask, whose rows must be read to be counted.
    scan : some columns, in batches of about so many rows.
    is_text : whether every cell is text whose meaning is still open.
    """

    path: Path | None
    files: tuple[Path, ...]
    schema: pa.Schema
    n_rows: int | None
    scan: Scan = field(repr=False, compare=False)
    is_text: bool = False

    def __post_init__(self) -> None:
        problems = Problems()
        if not self.names:
            problems.add(f"{self} has no columns; write a table with at least one.")
        for position, name in enumerate(self.names, start=1):
            places = [str(i) for i, other in enumerate(self.names, start=1) if other == name]
            if not name.strip():
                problems.add(f"Column {position} of {self} has no name; name it.")
            elif len(places) > 1:
                both = " and ".join(places)
                told = f"{self} names its columns {both} alike, {quoted(name)}; give each its own name."
                problems.add(told)
        if self.n_rows == 0:
            problems.add(f"{self} has columns but no rows; pass a table with at least one row.")
        problems.raise_all()

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def __str__(self) -> str:
        return "The table" if self.path is None else str(self.path)

    def batches(self, rows: int = 65536, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The table in batches of exactly ``rows`` rows (the last may be shorter), in bounded memory."""
        if rows < 1:
            raise TableError(f"Batches of {rows} rows cannot be made; ask for at least 1.")
        columns = self._chosen(columns)

        def numbered() -> Iterator[pa.RecordBatch]:
            first = 0
            with in_file(self):
                for batch in _of_size(self.scan(columns, rows), rows):
                    yield batch.replace_schema_metadata({FIRST_ROW: str(first).encode()})
                    first += batch.num_rows
                if first == 0:
                    raise TableError(f"{self} has no rows; pass a table with at least one row.")

        return numbered()

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole table; cells of a text file as what all rows show, text where that leaves doubt."""
        import pyarrow as pa

        from widegp.data.text import typed

        with in_file(self):
            table = pa.Table.from_batches(list(self.batches(columns=columns))).replace_schema_metadata()
            return typed(table) if self.is_text else table

    def rows_about(self) -> int | None:
        """The rows, for text estimated from the lines that the first bytes hold; None where unknown."""
        if not self.is_text or _format(self.files[0]) != "text":
            return self.n_rows
        with in_file(self), open(self.files[0], "rb") as file:
            first = file.read(COUNTED_BYTES)
            lines = first.count(b"\n") + (not first.endswith(b"\n"))
            # The header is no row.
            return max(1, round(lines * self.files[0].stat().st_size / len(first)) - 1)

    def sha256(self) -> str | None:
        """Digest of the file's bytes; of a folder, digest of the digests of its files in order of name."""
        digests = []
        for path in self.files:
            with in_file(path), open(path, "rb") as file:
                digests.append(hashlib.file_digest(file, "sha256"))
        if len(digests) < 2:
            return digests[0].hexdigest() if digests else None
        return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()

    def _chosen(self, columns: Sequence[str] | None) -> list[str]:
        chosen = self.names if columns is None else list(dict.fromkeys(columns))
        for name in {*chosen} - {*self.names}:
            raise TableError(f"{self} has no column {quoted(name)}; {similar(name, self.names)}")
        if not chosen:
            raise TableError(f"No column of {self} was asked for; name at least one.")
        return chosen


def open_table(source: Any, reading: Reading | None = None) -> TableSource:
    """The table in a path or in memory, its header or schema checked; the rows of files are read later."""
    if isinstance(source, TableSource):
        return source
    # Reading a header needs no pyarrow until here, and importing it takes a while.
    from widegp.data import arrow_files, csv_files, frames

    if not isinstance(source, str | os.PathLike):
        return TableSource(None, (), *frames.open_frame(source))
    path = Path(source)
    with in_file(path):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            files = _in_folder(path)
            return TableSource(path, files, *arrow_files.open_parquet(files))
        # Opening a pipe would wait for a writer, and a device may never end.
        if not stat.S_ISREG(mode):
            raise TableError(f"{path} is not a file; pass a file or a folder of Parquet files.")
        kind = _format(path)
        if kind == "parquet":
            return TableSource(path, (path,), *arrow_files.open_parquet((path,)))
        if kind in ("arrow", "excel"):
            opened = arrow_files.open_arrow if kind == "arrow" else frames.open_excel
            return TableSource(path, (path,), *opened(path))
        encoding = None if reading is None else reading.encoding
        return TableSource(path, (path,), *csv_files.open_csv(path, encoding), is_text=True)


def first_batch(source: TableSource, batch: pa.RecordBatch) -> TableSource:
    """A batch of a source as a table of its own, its text as open as it was."""
    import pyarrow as pa

    return replace(open_table(pa.Table.from_batches([batch])), is_text=source.is_text)


def _in_folder(path: Path) -> tuple[Path, ...]:
    entries = sorted(entry for entry in path.iterdir() if entry.name[0] not in "._")
    files = tuple(entry for entry in entries if entry.suffix.lower() in PARQUET_SUFFIXES and entry.is_file())
    folders = [entry for entry in entries if entry.is_dir()]
    if folders and (not files or any("=" in entry.name for entry in folders)):
        raise TableError(
            f"{path} holds the folder {quoted(folders[0].name)}, and folders within a folder are not read;"
            " put all Parquet files, with all their columns, into one folder."
        )
    if not files:
        raise TableError(f"{path} is a folder without Parquet files; pass a file, or a folder of *.parquet.")
    for file in files:
        if _format(file) != "parquet":
            raise TableError(f"{file} is not a Parquet file; take it out of the folder or write it again.")
    return files


def _format(path: Path) -> str:
    """One of "parquet", "arrow", "excel", "packed", "text", by the first and last bytes, then by the name."""
    with open(path, "rb") as file:
        head = file.read(4096)
        file.seek(-min(8, file.seek(0, os.SEEK_END)), os.SEEK_END)
        tail = file.read(8)
    suffix = path.suffix.lower()
    if not head:
        raise TableError(f"{path} is empty; write or copy the table again.")
    if head.startswith(b"PAR1") and (suffix not in TEXT_SUFFIXES or tail.endswith(b"PAR1")):
        if not tail.endswith(b"PAR1") or len(tail) < 8:
            raise TableError(f"{path} is cut off: a Parquet file ends in PAR1; copy or write it again.")
        return "parquet"
    if head.startswith((b"ARROW1\x00\x00", b"\xff\xff\xff\xff")):
        return "arrow"
    for mark, name in OTHERS.items():
        if head.startswith(mark) and not (mark.isalnum() and suffix in TEXT_SUFFIXES):
            raise TableError(f"{path} is {name}.")
    if head.startswith(PACKED):
        excel = head.startswith(b"PK") and "xl/workbook.xml" in zipfile.ZipFile(path).namelist()
        return "excel" if excel else "packed"
    if suffix in PARQUET_SUFFIXES | ARROW_SUFFIXES:
        raise TableError(
            f"{path} is named {suffix} but does not begin like one; check what wrote it, or name text .csv."
        )
    if b"\0" in head and not head.startswith(UNICODE):
        raise TableError(
            f"{path} is neither text nor Parquet nor Arrow; pass a CSV, TSV, Excel, Parquet or Arrow file."
        )
    return "text"


def _of_size(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of ``rows``: files bring batches of whatever size suits their blocks."""
    import pyarrow as pa

    def joined() -> list[pa.RecordBatch]:
        """One batch; more than one only where text outgrows Arrow's 32-bit offsets."""
        return pa.Table.from_batches(held).combine_chunks().to_batches() if held else []

    held: list[pa.RecordBatch] = []
    for batch in batches:
        while batch.num_rows:
            part = batch.slice(0, rows - sum(held_part.num_rows for held_part in held))
            held, batch = [*held, part], batch.slice(part.num_rows)
            if sum(held_part.num_rows for held_part in held) == rows:
                yield from joined()
                held = []
    yield from joined()
