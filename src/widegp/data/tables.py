"""Tables in files: CSV, TSV, Parquet, Arrow (Feather, IPC), a folder of Parquet; read whole or in batches.

What a file is follows from its first bytes; its name only breaks ties. Cells of CSV and TSV come out of
``batches`` as text: what a column holds is decided by ``read`` over all rows, or was decided when a model was
fitted, never by the rows that happen to stand in one block. Errors count rows from 1, below the header.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from widegp.data.errors import TableError, in_file, quoted, similar

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FIRST_ROW", "TableError", "TableSource", "open_table"]

# Metadata of each batch: how many rows of the table stand before it, so that errors can number rows.
FIRST_ROW = b"widegp.first_row"

HEAD = 4096
# Lines are counted in these to estimate the rows of a text.
COUNTED_BYTES = 16 << 20
TEXT_SUFFIXES = {".csv", ".tsv", ".tab", ".txt"}
PARQUET_SUFFIXES = {".parquet", ".pq", ".parq"}
ARROW_SUFFIXES = {".arrow", ".arrows", ".feather", ".ipc"}
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh91AY&SY": "bzip2",
    b"\xfd7zXZ\x00": "xz",
}
# The longer mark first: that of UTF-32 begins with that of UTF-16.
UNICODE = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
OTHERS = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; save the table as CSV or Parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the table as CSV or Parquet",
    b"\x89HDF": "an HDF5 file; write the table as CSV or Parquet",
    b"SQLite format 3": "an SQLite database; write the table as CSV or Parquet",
    b"PARE": "an encrypted Parquet file; write it without encryption",
    b"FEA1": "a Feather file of version 1; write it again with a current version of pyarrow",
}


@dataclass(frozen=True)
class TableSource:
    """A table that can be read again and again.

    Fields
    ------
    path : the file or folder.
    names : its columns, in order; unique and not empty.
    n_rows : known for Parquet and Arrow files, None for CSV and Arrow streams, whose rows must be read.
    files : the files that hold the bytes.
    """

    path: Path
    names: list[str]
    n_rows: int | None
    files: tuple[Path, ...]
    _scan: Callable[[list[str], int], Iterable[pa.RecordBatch]] = field(repr=False, compare=False)

    def batches(self, rows: int = 65536, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The table in batches of exactly ``rows`` rows (the last may be shorter), in bounded memory."""
        if rows < 1:
            raise TableError(f"Batches of {rows} rows cannot be made; ask for at least 1.")
        columns = self._chosen(columns)

        def numbered() -> Iterator[pa.RecordBatch]:
            first = 0
            with in_file(self.path):
                for batch in _of_size(self._scan(columns, rows), rows):
                    yield batch.replace_schema_metadata({FIRST_ROW: str(first).encode()})
                    first += batch.num_rows
                if first == 0:
                    raise TableError(f"{self.path} has no rows; pass a table with at least one row.")

        return numbered()

    def read(self, columns: Sequence[str] | None = None, raw: bool = False) -> pa.Table:
        """The whole table; CSV with the types that all rows show, or as ``raw`` text for a fitted encoder."""
        import pyarrow as pa

        from widegp.data.text import settle

        with in_file(self.path):
            if raw:
                return pa.Table.from_batches(list(self.batches(columns=columns)))
            table = settle(pa.Table.from_batches(list(self.batches(columns=columns))))
        return table.replace_schema_metadata()

    def rows_about(self) -> int | None:
        """The rows, for text estimated from the lines that the first bytes hold; None where unknown."""
        if self.n_rows is not None or _format(self.path) != "text":
            return self.n_rows
        with in_file(self.path), open(self.path, "rb") as file:
            first = file.read(COUNTED_BYTES)
            lines = first.count(b"\n") + (not first.endswith(b"\n"))
            # The header is no row.
            return max(1, round(lines * self.path.stat().st_size / len(first)) - 1)

    def sha256(self) -> str:
        """Digest of the file's bytes; of a folder, digest of the digests of its files in order of name."""
        digests = []
        for path in self.files:
            with in_file(path), open(path, "rb") as file:
                digests.append(hashlib.file_digest(file, "sha256"))
        if self.files == (self.path,):
            return digests[0].hexdigest()
        return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()

    def _chosen(self, columns: Sequence[str] | None) -> list[str]:
        chosen = self.names if columns is None else list(dict.fromkeys(columns))
        known = set(self.names)
        for name in chosen:
            if name not in known:
                raise TableError(f"{self.path} has no column {quoted(name)}; {similar(name, self.names)}")
        if not chosen:
            raise TableError(f"No column of {self.path} was asked for; name at least one.")
        return list(chosen)


def open_table(path: str | os.PathLike[str]) -> TableSource:
    """The table in ``path``, its header or schema read and checked; its rows are read later."""
    path = Path(path)
    with in_file(path):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return _folder(path)
        # Opening a pipe would wait for a writer, and a device may never end.
        if not stat.S_ISREG(mode):
            raise TableError(f"{path} is not a file; pass a file or a folder of Parquet files.")
        kind = _format(path)
        if kind == "parquet":
            from widegp.data.arrow_files import open_parquet

            return _source(path, (path,), *open_parquet((path,)))
        if kind == "arrow":
            from widegp.data.arrow_files import open_arrow

            return _source(path, (path,), *open_arrow(path))
        from widegp.data.csv_files import open_csv

        return _source(path, (path,), *open_csv(path))


def _source(
    path: Path, files: tuple[Path, ...], names: list[str], n_rows: int | None, scan: Callable
) -> TableSource:
    """The source, once its columns have names that can be told apart and there is a row."""
    if not names:
        raise TableError(f"{path} has no columns; write a table with at least one.")
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise TableError(
                f"Column {position} of {path} has no name; name it, or write the table without its row index."
            )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        places = [str(i) for i, name in enumerate(names, start=1) if name == twice]
        raise TableError(
            f"{path} names its columns {' and '.join(places)} alike, {quoted(twice)}; give each its own name."
        )
    if n_rows is not None and n_rows < 1:
        raise TableError(f"{path} has columns but no rows; pass a table with at least one row.")
    return TableSource(path, names, n_rows, files, scan)


def _folder(path: Path) -> TableSource:
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
    from widegp.data.arrow_files import open_parquet

    return _source(path, files, *open_parquet(files))


def _format(path: Path) -> str:
    """One of "parquet", "arrow", "text", by the first and last bytes, then by the name."""
    with open(path, "rb") as file:
        head = file.read(HEAD)
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
    for mark, name in COMPRESSED.items():
        if head.startswith(mark):
            raise TableError(f"{path} is compressed with {name}; unpack it first.")
    for mark, name in OTHERS.items():
        if head.startswith(mark) and not (mark.isalnum() and suffix in TEXT_SUFFIXES):
            raise TableError(f"{path} is {name}.")
    for mark, name in UNICODE.items():
        if head.startswith(mark):
            raise TableError(f"{path} is written in {name}; convert it: iconv -f {name} -t UTF-8.")
    if suffix in PARQUET_SUFFIXES | ARROW_SUFFIXES:
        raise TableError(
            f"{path} is named {suffix} but does not begin like one; check what wrote it, or name text .csv."
        )
    if b"\0" in head:
        raise TableError(
            f"{path} is neither text nor Parquet nor Arrow; pass a CSV, TSV, Parquet or Arrow file."
        )
    return "text"


def _of_size(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of ``rows``: files bring batches of whatever size suits their blocks."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while batch.num_rows:
            held.append(batch.slice(0, rows - count))
            count += held[-1].num_rows
            batch = batch.slice(held[-1].num_rows)
            if count == rows:
                yield from _joined(held)
                held, count = [], 0
    if held:
        yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch out of several; more than one only where text outgrows Arrow's 32-bit offsets."""
    import pyarrow as pa

    return batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()
