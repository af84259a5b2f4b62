"""Batches to one CSV or Parquet file that appears whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

if TYPE_CHECKING:
    import pyarrow as pa

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = (".parquet", ".pq")


class Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def check_suffix(out: Path) -> None:
    """Only the ending of the name says what to write."""
    if out.suffix.lower() not in (*DELIMITERS, *PARQUET):
        endings = ", ".join((*DELIMITERS, *PARQUET))
        raise typer.BadParameter(
            f"{out} ends in none of {endings}; name the format by its ending.", param_hint="'--out'"
        )


def is_typed(out: Path) -> bool:
    """Whether columns have types there, not only text."""
    return out.suffix.lower() in PARQUET


@contextmanager
def table_writer(out: Path) -> Iterator[Writer]:
    """A writer of batches of one schema, in the format that ``out`` ends in."""
    from widegp.files import replacing

    suffix = out.suffix.lower()
    with replacing(out) as temporary:
        writer: Writer = (
            ParquetFile(temporary) if suffix in PARQUET else TextFile(temporary, DELIMITERS[suffix])
        )
        try:
            yield writer
        finally:
            writer.close()


class ParquetFile:
    """A row group per batch; the schema is that of the first one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: Any = None

    def write_batch(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            import pyarrow as pa
            import pyarrow.parquet as pq

            # Fractions seldom repeat: lists of their values would take memory for each column, in vain.
            listed = [f.name for f in batch.schema if not pa.types.is_floating(f.type)]
            self._writer = pq.ParquetWriter(str(self.path), batch.schema, use_dictionary=listed)
        self._writer.write_batch(batch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class TextFile:
    """Lines of cells, RFC 4180: in quotes only where a cell needs them, so that text passes unchanged.

    (pyarrow's own writer puts every cell of a text column in quotes, and all columns of a CSV are text.)
    """

    def __init__(self, path: Path, delimiter: str) -> None:
        self.delimiter = delimiter
        self._file = open(path, "xb")  # noqa: SIM115 closed by `close`
        self._begun = False

    def write_batch(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        if not self._begun:
            self._write([pa.array([name]) for name in batch.schema.names])
            self._begun = True
        if batch.num_rows:
            self._write(
                [
                    _as_text(column, name)
                    for column, name in zip(batch.columns, batch.schema.names, strict=True)
                ]
            )

    def _write(self, columns: list[pa.Array]) -> None:
        import pyarrow.compute as pc

        lines = pc.binary_join_element_wise(*(_quoted(c, self.delimiter) for c in columns), self.delimiter)
        self._file.write(("\n".join(lines.to_pylist()) + "\n").encode())

    def close(self) -> None:
        self._file.close()


def _as_text(column: pa.Array, name: str) -> pa.Array:
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except pa.ArrowException as error:
        raise ValueError(
            f"Column {name!r} holds {column.type} values, which CSV cannot; write to a .parquet file instead."
        ) from error


def _quoted(column: pa.Array, delimiter: str) -> pa.Array:
    """Cells that hold a quote, a delimiter or a line end in quotes; no value is an empty cell."""
    import pyarrow.compute as pc

    column = pc.fill_null(column, "")
    special = pc.match_substring_regex(column, f'["{delimiter}\r\n]')
    if not pc.any(special).as_py():
        return column
    doubled = pc.replace_substring(column, '"', '""')
    return pc.if_else(special, pc.binary_join_element_wise('"', doubled, '"', ""), column)
