"""Tables in memory, Dask frames and Excel workbooks: their schemas, numbers of rows, and scans of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from widegp.data.arrow_files import Opened, as_typed, without_dictionaries
from widegp.data.errors import TableError

# What pyarrow raises where values of one column have no common type.
MIXED = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


def open_frame(frame: Any) -> Opened:
    """A frame of pandas, polars or Dask, or anything with Arrow's stream protocol."""
    n_rows, parts = None, list[Callable[[], Any]]()
    if hasattr(frame, "npartitions") and hasattr(frame, "columns"):
        parts = [frame.partitions[k].compute for k in range(frame.npartitions)]
        first = _arrow(parts[0]())
    else:
        first = _arrow(frame.collect() if hasattr(frame, "collect") else frame)
        n_rows, parts = first.num_rows, [lambda: first]
    schema = without_dictionaries(first.schema)
    return schema, n_rows, partial(_scan, parts, schema)


def open_excel(path: Path) -> Opened:
    """The first sheet of a workbook."""
    try:
        import openpyxl  # noqa: F401
        import pandas as pd
    except ImportError as error:
        raise TableError(f"{path} needs openpyxl; pip install 'widegp[excel]', or save it as CSV.") from error
    return open_frame(pd.read_excel(path, dtype=object).infer_objects())


def _arrow(frame: Any) -> pa.Table:
    """A pyarrow table of any frame; columns of mixed objects become text."""
    if isinstance(frame, pa.Table | pa.RecordBatch):
        return pa.table(frame)
    if not hasattr(frame, "__arrow_c_stream__") or getattr(frame, "ndim", 2) != 2:
        taken = "a path, a frame of pandas, polars or Dask, or an Arrow table"
        raise TableError(f"A table is needed, not {type(frame).__name__}; pass {taken}.")
    if not hasattr(frame, "iloc"):
        return pa.table(frame)
    arrays = [_of_series(frame.iloc[:, i]) for i in range(frame.shape[1])]
    return pa.Table.from_arrays(arrays, [str(name) for name in frame.columns])


def _of_series(column: Any) -> pa.Array:
    try:
        return pa.array(column, from_pandas=True)
    except MIXED:
        return of_objects(column.astype(object).where(column.notna(), None).tolist())


def of_objects(values: list[Any]) -> pa.Array:
    """Values that Python holds, None or NaN where there is none; text if they are of several kinds."""
    values = [None if _is_gap(value) else value for value in values]
    try:
        return pa.array(values)
    except MIXED:
        return pa.array([None if value is None else str(value) for value in values])


def _is_gap(value: Any) -> bool:
    """None, or what does not equal itself: NaN, NaT and NA."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        # NA equals nothing and differs from nothing; of an array no one thing can be said.
        return type(value).__name__ == "NAType"


def _scan(
    parts: list[Callable[[], Any]], schema: pa.Schema, columns: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    for part in parts:
        for batch in _arrow(part()).select(columns).to_batches(max_chunksize=rows):
            yield as_typed(batch, schema, columns)
