"""Parquet and Arrow files: their columns, their number of rows, and a scan of their batches.

Each ``open_*`` returns (schema, n_rows, scan), with ``scan(columns, rows)`` an iterator of record batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import dataset

from widegp.data.errors import TableError, in_file, quoted

Opened = tuple[pa.Schema, int | None, Callable[[list[str], int], Iterator[pa.RecordBatch]]]

# Columns of a row group are each read through a buffer of this size, so that a file with one huge row group
# still streams, and one of many columns does too.
BUFFER = 1 << 17
# Metadata of a field that held categories.
LEVELS = {b"widegp": b"levels"}


def open_parquet(files: Sequence[Path]) -> Opened:
    """One Parquet file, or several that hold the same columns, with types that hold the values of all."""
    common, n_rows = pa.schema([]), 0
    for path in files:
        with in_file(path), _parquet(path) as file:
            schema = without_dictionaries(file.schema_arrow)
            n_rows += file.metadata.num_rows
        common = _common(common or schema, schema, files[0], path)
    return common, n_rows, partial(_scan_parquet, files, common)


def _parquet(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(
        str(path), memory_map=False, buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True
    )


def _common(common: pa.Schema, schema: pa.Schema, first: Path, path: Path) -> pa.Schema:
    """The types for both, such as double for int32 and double."""
    for one, other, place in ((common, schema, path), (schema, common, first)):
        if lacking := {*one.names} - {*other.names}:
            raise TableError(
                f"{place} lacks the column {quoted(min(lacking))} that other files of its folder have;"
                " write all files with the same columns."
            )
    fields = []
    for field in common:
        here = schema.field(field.name)
        try:
            both = [pa.schema([field]), pa.schema([here])]
            fields.append(pa.unify_schemas(both, promote_options="permissive").field(0))
        except pa.ArrowException as error:
            raise TableError(
                f"Column {quoted(field.name)} is {here.type} in {path} and {field.type} in {first.name};"
                " write all files with the same types."
            ) from error
    return pa.schema(fields)


def without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries replaced by what they hold: files and batches have different ones.

    Those of text and whole numbers hold levels: numbers become text, and the fields are marked.
    """
    return pa.schema([_without_dictionary(field).with_nullable(True) for field in schema])


def _without_dictionary(field: pa.Field) -> pa.Field:
    is_, kind, plain = pa.types, field.type, field.remove_metadata()
    levels = is_.is_dictionary(kind)
    kind = kind.value_type if levels else kind
    counted = levels and (is_.is_integer(kind) or is_.is_boolean(kind))
    # Rows of string views, which polars hands out, cannot be filtered.
    kind = pa.large_string() if counted or is_.is_string_view(kind) else kind
    levels = levels and (is_.is_string(kind) or is_.is_large_string(kind))
    return plain.with_type(kind).with_metadata(LEVELS if levels else None)


def holds_levels(field: pa.Field) -> bool:
    """Whether a column was a category, whatever its levels look like."""
    return field.metadata == LEVELS


def _scan_parquet(
    files: Sequence[Path], schema: pa.Schema, columns: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    for path in files:
        with in_file(path), _parquet(path) as file:
            for batch in file.iter_batches(batch_size=rows, columns=columns, use_threads=False):
                yield as_typed(batch, schema, columns)


def open_arrow(path: Path) -> Opened:
    """An Arrow IPC file (Feather version 2) or stream."""
    with pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        schema = without_dictionaries((pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).schema)
    # The dataset counts from the metadata of the batches, without their values.
    n_rows = dataset.dataset(str(path), format="ipc").count_rows(use_threads=False) if is_file else None
    return schema, n_rows, partial(_scan_arrow, path, is_file, schema)


def _scan_arrow(
    path: Path, is_file: bool, schema: pa.Schema, columns: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    options = pa.ipc.IpcReadOptions(use_threads=False)
    # Mapped, a file of one huge batch takes memory only for the pages in use.
    with pa.memory_map(str(path)) as source:
        reader = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source, options=options)
        for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
            yield as_typed(batch, schema, columns)


def as_typed(batch: pa.RecordBatch, schema: pa.Schema, columns: list[str]) -> pa.RecordBatch:
    """The columns with the types of ``schema``, once nothing in them points outside its buffers."""
    arrays = []
    for name in columns:
        array, kind = batch.column(name), schema.field(name).type
        # A damaged file can hold offsets and indices that lead anywhere; reading on would crash.
        array.validate(full=True)
        if pa.types.is_dictionary(array.type) and pa.types.is_string_view(array.type.value_type):
            # Indices into views, which polars hands out for its categories, are not followed.
            words = array.dictionary.cast(pa.large_string())
            array = pa.DictionaryArray.from_arrays(array.indices.cast(pa.int64()), words)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary.take(array.indices)
        if pa.types.is_large_string(kind):
            array = as_text(array)
        arrays.append(array if array.type == kind else array.cast(kind, safe=False))
    return pa.RecordBatch.from_arrays(arrays, columns)


def as_text(array: Any) -> Any:
    """Cells of an array as text; booleans as Python writes them."""
    if pa.types.is_boolean(array.type):
        return pc.if_else(array, pa.scalar("True", pa.large_string()), pa.scalar("False", pa.large_string()))
    return array.cast(pa.large_string())
