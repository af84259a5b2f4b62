"""The tables of the league, as every model gets them: columns of their own types, or numbers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.tables import frame_and_test

FOLDS = 10


class Table(NamedTuple):
    """rows : in all.    kind : of the target.    folds : ways to split it.    outputs : columns of y."""

    rows: int
    kind: str = "regression"
    folds: int = 1
    outputs: int = 1


TABLES = {
    "mcycle": Table(133),
    "servo": Table(167, folds=FOLDS),
    "machine": Table(209, folds=FOLDS),
    "yacht": Table(308, folds=FOLDS),
    "jura": Table(359, outputs=3),
    "autompg": Table(392, folds=FOLDS),
    "stock": Table(536, folds=FOLDS),
    "pendulum": Table(630, folds=FOLDS),
    "enb": Table(768, outputs=2),
    "energy": Table(768, folds=FOLDS),
    "solar": Table(1066, folds=FOLDS),
    "airfoil": Table(1503, folds=FOLDS),
    "skillcraft": Table(3338, folds=FOLDS),
    "parkinsons": Table(5875, folds=FOLDS),
    "yearpredictionmsd_8162": Table(8162),
    "pumadyn32nm": Table(8192, folds=FOLDS),
    "pol": Table(15000),
    "hotel_rates": Table(15402),
    "elevators": Table(16599),
    "bike_counts": Table(17379, "counts"),
    "magic": Table(19020, "classes"),
    "superconductivity": Table(21263),
    "adult": Table(45222, "classes"),
    "diamonds": Table(53940),
}
# Columns of adult that are codes of categories, not numbers.
CODES = {"adult": ("V2", "V4", "V6", "V7", "V8", "V9", "V10", "V14")}


@dataclass(frozen=True, eq=False)
class Task:
    """One split of one table.

    X, X_test : frames of n and q rows as they were written.    kind : of the target.
    y, y_test : (n,), (q,), or (n, T), (q, T) for T outputs.
    """

    table: str
    kind: str
    X: pd.DataFrame
    y: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray

    @property
    def outputs(self) -> int:
        return self.y.shape[1] if self.y.ndim == 2 else 1

    def output(self, t: int) -> Task:
        """The same rows with output ``t`` alone."""
        return replace(self, y=self.y[:, t], y_test=self.y_test[:, t])

    @cached_property
    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """X (n, I) and X_test (q, I) of float64.

        A table with text or gaps goes through `widegp.TableEncoder`, which learns from the training rows
        alone; this is what every model gets that does not take categories itself.
        """
        if all(pd.api.types.is_numeric_dtype(column) for _, column in self.X.items()):
            parts = self.X.to_numpy(float), self.X_test.to_numpy(float)
            if not any(np.isnan(part).any() for part in parts):
                return parts
        from widegp import TableEncoder

        encoder = TableEncoder()
        with warnings.catch_warnings():
            # Levels that only test rows have are encoded as such, which needs no saying here.
            warnings.simplefilter("ignore")
            return encoder.fit_transform(self.X, self.y), encoder.transform(self.X_test)

    @cached_property
    def typed(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Frames of numbers and pandas categories: dates as days, other text as categories."""
        whole = pd.concat([self.X, self.X_test], ignore_index=True)
        for name, column in whole.items():
            if pd.api.types.is_numeric_dtype(column):
                continue
            dates = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
            days = (dates - pd.Timestamp("2000-01-01", tz="UTC")).dt.days
            whole[name] = days.astype(float) if dates.notna().all() else column.astype("category")
        return whole.iloc[: len(self.X)], whole.iloc[len(self.X) :]


def task(name: str, fold: int = 0) -> Task:
    """The split of `benchmarks.tables`: by column ``test`` or ``fold``, else a tenth of the rows."""
    known = TABLES[name]
    frame, target, test = frame_and_test(name, fold)
    targets = list(frame.columns[-known.outputs :]) if known.outputs > 1 else [target]
    y = frame[targets].to_numpy(float)
    frame = frame.drop(columns=targets)
    for column in CODES.get(name, ()):
        frame[column] = "c" + frame[column].astype(int).astype(str)
    y = y if known.outputs > 1 else y[:, 0]
    parts = frame[~test].reset_index(drop=True), frame[test].reset_index(drop=True)
    return Task(name, known.kind, parts[0], y[~test], parts[1], y[test])
