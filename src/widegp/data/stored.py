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
from widegp.data.tables import TableSource, open_table

Part = tuple[np.ndarray, np.ndarray]

BATCH_ROWS = 16_384
USE_TABLE_MODEL = "fit widegp.TableModel, which encodes it, put widegp.TableEncoder in front, or drop it."


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
    if isinstance(X, str | os.PathLike) and Path(X).suffix == ".npy":
        X = np.load(X, mmap_mode="r")
    if isinstance(X, str | os.PathLike) or hasattr(X, "columns"):
        return _columns(open_table(X), y)
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


def _columns(source: TableSource, y: Any) -> tuple[list[str], Iterator[Part]]:
    if not isinstance(y, str) or y not in source.names:
        some = ", ".join(source.names[:8]) + ", ..." * (len(source.names) > 8)
        got = repr(y) if isinstance(y, str) else f"a {type(y).__name__}"
        raise ValueError(f"y must name the target's column, one of {some}; got {got}.")
    names = [name for name in source.names if name != y]

    def parts() -> Iterator[Part]:
        from widegp.data.values import decoded, numbers

        for batch in source.batches(BATCH_ROWS):
            table = np.empty((batch.num_rows, len(names) + 1))
            for j, name in enumerate([*names, y]):
                column, kind = decoded(batch.column(name))
                if kind not in ("numeric", "boolean"):
                    raise ValueError(f"Column {name!r} does not hold numbers; {USE_TABLE_MODEL}")
                table[:, j] = numbers(column)
            yield table[:, :-1], table[:, -1]

    return names, parts()


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
