"""The shared tables, read and split the way every figure here is made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

FOLDER = Path(os.environ.get("WIDEGP_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TARGETS = {
    "superconductivity": "critical_temp", "yearpredictionmsd_8162": "year", "bike_counts": "count",
    "diamonds": "price", "hotel_rates": "avg_price_per_room", "mcycle": "accel",
}  # fmt: skip


class Split(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def frame_and_test(name: str, fold: int = 0) -> tuple[pd.DataFrame, str, np.ndarray]:
    """A table, its target's name and which rows are test rows (n,).

    Test rows are those of column ``test``, or of ``fold``; else the first tenth of the permutation of seed 0.
    """
    frame = pd.read_parquet(FOLDER / f"{name}.parquet")
    if "test" in frame:
        test = frame.pop("test").to_numpy(bool)
    elif "fold" in frame:
        test = frame.pop("fold").to_numpy() == fold
    else:
        order = np.random.default_rng(0).permutation(len(frame))
        test = np.zeros(len(frame), bool)
        test[order[: len(frame) // 10]] = True
    return frame, TARGETS.get(name, "y"), test


def load(name: str, fold: int = 0) -> Split:
    """A table of numbers, split by `frame_and_test`."""
    frame, target, test = frame_and_test(name, fold)
    y = frame.pop(target).to_numpy(float)
    X = frame.to_numpy(float)
    return Split(X[~test], y[~test], X[test], y[test])


def grouped(name: str, seed: int = 0) -> Split:
    """A tenth of the distinct rows of inputs held out, so that equal inputs stay together."""
    frame, target, _ = frame_and_test(name)
    y = frame.pop(target).to_numpy(float)
    X = frame.to_numpy(float)
    group = np.unique(X, axis=0, return_inverse=True)[1].ravel()
    order = np.random.default_rng(seed).permutation(group.max() + 1)
    test = np.isin(group, order[: len(order) // 10])
    return Split(X[~test], y[~test], X[test], y[test])


def held_inside(n_rows: int, k: int) -> np.ndarray:
    """Whether each training row is in the Kth fifth, which is predicted from the others, (n,)."""
    return np.random.default_rng(99).permutation(n_rows) % 5 == k


def inside(split: Split, k: int) -> Split:
    """The training rows alone, a fifth of them held out."""
    out = held_inside(len(split.y), k)
    return split._replace(X=split.X[~out], y=split.y[~out], X_test=split.X[out], y_test=split.y[out])
