"""Columns of a table, the inputs that they became, and the values at which to draw their effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from widegp.data.columns import TableEncoding

CURVE_POINTS = 21
FEW_VALUES = 8
DAY = 86_400_000_000
# Levels of a category of many that are drawn, and words for rows without one that is known.
MOST_LEVELS = 12
MISSING, OTHERS = "(missing)", "(others)"


class Source(NamedTuple):
    """A column of a table and the inputs that it became: one per level of a category, parts of a date, ...

    kind : "number" (the first of ``inputs`` is its value), "category" or "date" (the first holds its days).
    levels : of a category, one for each of its inputs but that of gaps.
    codes : of a category of many levels, which became one number, that number for each of its levels.
    start : of a date, its day 0 in microseconds since 1970.
    """

    name: str
    inputs: tuple[int, ...]
    kind: str = "number"
    levels: tuple[str, ...] = ()
    codes: tuple[float, ...] = ()
    start: int = 0


class States(NamedTuple):
    """Values of a column at which its effect is drawn.

    x : (g,), places on an axis: the values, days since 1970, or 0, 1, ... for levels.
    inputs : (g, k), what the k inputs of the column are there.
    labels : (g,) of levels and dates, else None.    discrete : whether nothing lies between them.
    """

    x: np.ndarray
    inputs: np.ndarray
    labels: list[str] | None
    discrete: bool


def source_columns(encoder: TableEncoding) -> list[Source]:
    """The columns that give inputs, with the places of these in the order of ``encoder.feature_names``."""
    found, at = [], 0
    for column in encoder.columns:
        features = column.value_features()
        inputs = tuple(range(at, at + len(features) + column.indicator))
        at += len(inputs)
        if not inputs:
            continue
        codes = getattr(column, "means", ())
        if codes:
            found.append(Source(column.name, inputs, "category", getattr(column, "levels", ()), codes))
        elif column.kind == "categorical" and len(features) > 1:
            levels = tuple(f.removeprefix(column.name).removeprefix("=").strip() for f in features)
            found.append(Source(column.name, inputs, "category", levels))
        elif column.kind == "date" and features:
            found.append(Source(column.name, inputs, "date", start=getattr(column, "low", 0)))
        else:
            found.append(Source(column.name, inputs))
    return found


def single_inputs(names: Sequence[str]) -> list[Source]:
    """Each input as a column of its own."""
    return [Source(name, (j,)) for j, name in enumerate(names)]


def states_of(source: Source, X: np.ndarray) -> States:
    """States that rows X (N, I) show: levels, else values between the 2nd and the 98th percentile.

    Several inputs are set together, to what they are in some row: a row of two levels, or a day with the
    season of another, is no row.
    """
    block = X[:, source.inputs]
    if source.kind == "number":
        return _numbers(block)
    if source.codes:
        return _coded(source, block)
    rows = np.unique(block, axis=0)
    if source.kind == "category":
        order = sorted(range(len(rows)), key=lambda g: _place(source, rows[g]))
        labels = [_level(source, rows[g]) for g in order]
        return States(np.arange(len(rows)), rows[order], labels, True)
    grid = _grid(block[:, 0])
    nearest = np.unique(np.abs(rows[:, :1] - grid).argmin(0))
    chosen = rows[nearest]
    moments = source.start + (chosen[:, 0] * DAY).astype(np.int64)
    return States(moments / DAY, chosen, [str(day)[:10] for day in moments.astype("M8[us]")], False)


def _coded(source: Source, block: np.ndarray) -> States:
    """The most frequent levels of a category of which each row has the code, from the lowest code on."""
    rows, counts = np.unique(block, axis=0, return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_LEVELS])
    named: dict[float, str] = {}
    for level, code in zip(source.levels, source.codes, strict=True):
        named[code] = f"{named[code].removesuffix(', ...')}, ..." if code in named else level
    labels = [named.get(float(row[0]), OTHERS) if not row[1:].any() else MISSING for row in rows[kept]]
    return States(np.arange(len(kept)), rows[kept], labels, True)


def _numbers(block: np.ndarray) -> States:
    """A grid of the first input; a second one says that the value is missing, which no value of a grid is."""
    column = block[block[:, 1] == 0, 0] if block.shape[1] > 1 else block[:, 0]
    column = column if len(column) else block[:, 0]
    grid = np.unique(column)
    discrete = len(grid) <= FEW_VALUES
    if not discrete:
        grid = _grid(column)
    inputs = np.zeros((len(grid), block.shape[1]))
    inputs[:, 0] = grid
    return States(grid, inputs, None, discrete)


def _grid(column: np.ndarray) -> np.ndarray:
    low, high = np.quantile(column, [0.02, 0.98])
    return np.linspace(low, high, CURVE_POINTS)


def _place(source: Source, row: np.ndarray) -> int:
    own = row[: len(source.levels)]
    return int(own.argmax()) if own.any() else len(own)


def _level(source: Source, row: np.ndarray) -> str:
    place = _place(source, row)
    return source.levels[place] if place < len(source.levels) else MISSING
