"""Tables that are not in memory: memory-mapped arrays, Parquet files, Dask arrays and frames.

They are read once, part by part, into a memory-mapped file of the temporary folder (TMPDIR), which everything
after works from. A part is some ten thousand rows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from widegp.data.arrays import chunks
from widegp.data.preprocessing import InputScaler

Part = tuple[np.ndarray, np.ndarray]

BATCH_ROWS = 16_384


@dataclass(frozen=True)
class StoredTable:
    """Scaled rows X (n, I) in a file, y (n,) in memory, the scaler of the inputs, column names if any."""

    X: np.ndarray
    y: np.ndarray
    scaler: InputScaler
    names: list[str] | None


def is_stored(X: Any) -> bool:
    """Whether X is a path, a memory-mapped array, or a Dask array or frame."""
    return isinstance(X, str | os.PathLike | np.memmap) or _is_dask(X)


def read_stored(X: Any, y: Any, kind: str | None) -> StoredTable:
    """Read X and y part by part and scale the inputs by the rule ``kind`` of `InputScaler`.

    X : a folder or file of Parquet, a ``.npy`` file, an ``np.memmap``, a Dask array or frame.
    y : one number per row; for Parquet and frames the name of the target's column, all others being inputs.
    """
    names, parts = _open(X, y)
    targets: list[np.ndarray] = []
    with tempfile.TemporaryFile(prefix="widegp-") as file:

        def written() -> Iterator[np.ndarray]:
            row = 0
            for inputs, target in parts:
                inputs = np.ascontiguousarray(inputs, np.float64)
                _check(inputs, target, row, names)
                inputs.tofile(file)
                targets.append(np.asarray(target, np.float64))
                row += len(inputs)
                yield inputs

        scaler = InputScaler.fit_stream(written(), kind)
        file.flush()
        shape = sum(map(len, targets)), len(scaler.shift)
        rows = np.memmap(file, np.float64, "r+", shape=shape)
    for part in chunks(len(rows), 8 * shape[1]):
        rows[part] = scaler.transform(rows[part])
    return StoredTable(rows, np.concatenate(targets), scaler, names)


def _open(X: Any, y: Any) -> tuple[list[str] | None, Iterator[Part]]:
    """Column names, and the parts of X and y."""
    if isinstance(X, str | os.PathLike):
        path = Path(X)
        if not path.exists():
            raise ValueError(f"There is nothing at {path}; pass a folder of Parquet files or a .npy file.")
        if path.suffix != ".npy":
            return _parquet(path, y)
        X = np.load(path, mmap_mode="r")
    if hasattr(X, "columns"):
        return _frame(X, y)
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}; pass a table of shape (n, I).")
    return None, _dask_array(X, y) if _is_dask(X) else _array(X, y)


def _array(X: np.ndarray, y: Any) -> Iterator[Part]:
    y = _target_of(len(X), y)
    for part in chunks(len(X), 8 * X.shape[1]):
        yield X[part], y[part]


def _dask_array(X: Any, y: Any) -> Iterator[Part]:
    X = X.rechunk({1: -1})
    y = np.asarray(y)
    row = 0
    for k in range(X.numblocks[0]):
        block = X.blocks[k].compute()
        yield block, y[row : row + len(block)]
        row += len(block)
    _target_of(row, y)


def _parquet(path: Path, y: Any) -> tuple[list[str], Iterator[Part]]:
    try:
        import pyarrow.dataset as datasets
    except ImportError as error:
        raise ImportError("Reading Parquet needs pyarrow: pip install pyarrow.") from error
    data = datasets.dataset(path, format="parquet")
    names = _inputs(data.schema.names, y)

    def parts() -> Iterator[Part]:
        for batch in data.to_batches(batch_size=BATCH_ROWS, columns=[*names, y]):
            if len(batch):
                table = np.column_stack([_numbers(batch.column(name), name) for name in [*names, y]])
                yield table[:, :-1], table[:, -1]

    return names, parts()


def _frame(X: Any, y: Any) -> tuple[list[str], Iterator[Part]]:
    names = _inputs(list(map(str, X.columns)), y)

    def parts() -> Iterator[Part]:
        for k in range(X.npartitions):
            frame = X.partitions[k].compute()
            table = np.column_stack([_numbers(frame[name], name) for name in [*names, y]])
            yield table[:, :-1], table[:, -1]

    return names, parts()


def _inputs(columns: list[str], y: Any) -> list[str]:
    if not isinstance(y, str) or y not in columns:
        some = ", ".join(columns[:8]) + ", ..." * (len(columns) > 8)
        got = repr(y) if isinstance(y, str) else f"a {type(y).__name__}"
        raise ValueError(f"y must name the target's column, one of {some}; got {got}.")
    return [name for name in columns if name != y]


def _numbers(column: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(column, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Column {name!r} does not hold numbers; encode or drop it.") from error


def _target_of(n_rows: int, y: Any) -> np.ndarray:
    y = np.asarray(y)
    if y.shape != (n_rows,):
        raise ValueError(f"y has shape {y.shape} but X has {n_rows} rows; pass one number per row.")
    return y


def _check(X: np.ndarray, y: np.ndarray, first: int, names: list[str] | None) -> None:
    """Refuse what is not finite, naming the row and the column."""
    # The sum is finite only if all entries are, and needs no table of truth values.
    if not np.isfinite(X.sum()) and not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        name = names[column] if names else int(column)
        raise ValueError(
            f"Column {name!r} is {X[row, column]} in row {first + row}; drop or impute such values."
        )
    if not np.isfinite(y).all():
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise ValueError(f"The target is {y[row]} in row {first + row}; drop such rows.")


def _is_dask(X: Any) -> bool:
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")
