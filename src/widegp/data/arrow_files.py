"""Parquet and Arrow files: their columns, their number of rows, and a scan of their batches.

Each ``open_*`` returns (names, n_rows, scan), with ``scan(columns, rows)`` an iterator of record batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import dataset

from widegp.data.errors import TableError, in_file, quoted

Opened = tuple[list[str], int | None, Callable[[list[str], int], Iterator[pa.RecordBatch]]]

# Columns of a row group are read through a buffer of this size, so that a file with one huge row group
# still streams.
BUFFER = 1 << 20


def open_parquet(files: Sequence[Path]) -> Opened:
    """One Parquet file, or several that hold the same columns."""
    schemas, n_rows = [], 0
    for path in files:
        with in_file(path), _parquet(path) as file:
            schemas.append(file.schema_arrow.remove_metadata())
            n_rows += file.metadata.num_rows
            _check_names(path, schemas[-1], files[0], schemas[0])
    schema = _common(files, schemas)
    return schema.names, n_rows, partial(_scan_parquet, files, schema)


def _parquet(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(
        str(path), memory_map=False, buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True
    )


def _check_names(path: Path, schema: pa.Schema, first_path: Path, first: pa.Schema) -> None:
    for here, there, other in ((first, schema, path), (schema, first, first_path)):
        names = set(there.names)
        lacking = [name for name in here.names if name not in names]
        if lacking:
            raise TableError(
                f"{other} lacks the column {quoted(lacking[0])} that other files of its folder have;"
                " write all files with the same columns."
            )


def _common(files: Sequence[Path], schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The types that hold the values of all files, such as double for int32 and double."""
    common = _decoded(schemas[0])
    for path, schema in zip(files[1:], schemas[1:], strict=True):
        try:
            common = pa.unify_schemas([common, _decoded(schema)], promote_options="permissive")
        except pa.ArrowException as error:
            name = next(n for n in common.names if not _mergeable(common.field(n), _decoded(schema).field(n)))
            raise TableError(
                f"Column {quoted(name)} is {schema.field(name).type} in {path} and"
                f" {common.field(name).type} in {files[0].name}; write all files with the same types."
            ) from error
    return common


def _mergeable(a: pa.Field, b: pa.Field) -> bool:
    try:
        pa.unify_schemas([pa.schema([a]), pa.schema([b])], promote_options="permissive")
    except pa.ArrowException:
        return False
    return True


def _decoded(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries replaced by what they hold: files and batches have different ones."""
    fields = (f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema)
    return pa.schema([field.remove_metadata().with_nullable(True) for field in fields])


def _scan_parquet(
    files: Sequence[Path], schema: pa.Schema, columns: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    wanted = pa.schema([schema.field(name) for name in columns])
    for path in files:
        with in_file(path), _parquet(path) as file:
            for batch in file.iter_batches(batch_size=rows, columns=columns, use_threads=False):
                yield _as(batch, wanted)


def open_arrow(path: Path) -> Opened:
    """An Arrow IPC file (Feather version 2) or stream."""
    with pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        names = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).schema.names
    # The dataset counts from the metadata of the batches, without their values.
    n_rows = dataset.dataset(str(path), format="ipc").count_rows(use_threads=False) if is_file else None
    return names, n_rows, partial(_scan_arrow, path, is_file)


def _scan_arrow(path: Path, is_file: bool, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    options = pa.ipc.IpcReadOptions(use_threads=False)
    # Mapped, a file of one huge batch takes memory only for the pages in use.
    with pa.memory_map(str(path)) as source:
        reader = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source, options=options)
        schema = _decoded(reader.schema)
        wanted = pa.schema([schema.field(name) for name in columns])
        batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
        for batch in batches:
            yield _as(batch, wanted)


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema``, in its order and types, once nothing in them points outside its buffers."""
    columns = []
    for field in schema:
        column = batch.column(field.name)
        # A damaged file can hold offsets and indices that lead anywhere; reading on would crash.
        column.validate(full=True)
        columns.append(column if column.type == field.type else column.cast(field.type, safe=False))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
