"""The shared tables, read and split the way every figure here is made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

FOLDER = Path(os.environ.get("WIDEGP_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


class Split(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def load(name: str) -> Split:
    """``superconductivity``, ``yearpredictionmsd_8162``: a random tenth is test; others: column ``test``."""
    frame = pd.read_parquet(FOLDER / f"{name}.parquet")
    if "test" in frame:
        test = frame.pop("test").to_numpy(bool)
        target = "y"
    else:
        target = "critical_temp" if name == "superconductivity" else "year"
        order = np.random.default_rng(0).permutation(len(frame))
        test = np.zeros(len(frame), bool)
        test[order[: len(frame) // 10]] = True
    y = frame.pop(target).to_numpy(float)
    X = frame.to_numpy(float)
    return Split(X[~test], y[~test], X[test], y[test])
