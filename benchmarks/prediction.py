"""Prediction in cells beside a conditioning set for every row: ``python -m benchmarks.prediction TABLE``.

Full-scale at rank 200. The parameters are fitted to ``--fit`` of the training rows; the posterior, the cells
and the neighbours are those of all of them. NLL is that of standardised targets on test rows, and its
difference has the standard error of paired rows. ``--rows`` new rows are test rows with a little noise added,
so that a cell is asked for as many rows as a large table would ask of it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.tables import load
from widegp import WideGPRegressor
from widegp.fitted import FittedGP


def fitted(X: np.ndarray, y: np.ndarray, few: int) -> FittedGP:
    rows = np.random.default_rng(1).permutation(len(y))[:few]
    settings = {"approximation": "full-scale", "rank": 200, "random_state": 0}
    start = WideGPRegressor.plain(**settings, max_iter=60).fit(X[rows], y[rows]).params_
    return WideGPRegressor.plain(**settings, start=start, max_iter=0, predict_cells=True).fit(X, y).fitted_


def nll(model: FittedGP, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """-log N(z; mean, sd^2) of each row, of standardised targets."""
    found = model.predictive(X)
    return 0.5 * np.log(2 * np.pi * found.sd_z**2) + 0.5 * found.normal_score(y) ** 2


def seconds(work: Callable[..., Any], *args: Any) -> tuple[float, float]:
    """Of the clock, and of all cores together, which tells more on a machine that others use too."""
    began, spent = time.perf_counter(), time.process_time()
    work(*args)
    return time.perf_counter() - began, time.process_time() - spent


def speeds(model: FittedGP, X: np.ndarray) -> None:
    """Rows per second with nothing kept, with what is kept, of means alone; one row at a time."""
    X, predictor = model.inputs.transform(X), model.predictor
    print(f"  finding the cells: {seconds(predictor.rows.groups, X)[1]:.1f} s of a core", flush=True)
    predictor.mean(X[:1])
    for label, work in (
        ("cells found, none factorised", predictor.predict), ("again", predictor.predict),
        ("means alone", predictor.mean),
    ):  # fmt: skip
        clock, core = seconds(work, X)
        told = f"{len(X) / clock:,.0f} rows/s, {len(X) / core:,.0f} for each second of a core"
        print(f"  {label}: {told}, of {len(X):,}", flush=True)
    single = [seconds(predictor.predict, X[i : i + 1])[0] for i in range(0, len(X), max(1, len(X) // 500))]
    kept = predictor.factors.bytes / 2**20
    print(f"  one row at a time: median {1e3 * np.median(single):.2f} ms; {kept:.0f} MiB kept", flush=True)


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("table", nargs="?", default="superconductivity")
    parser.add_argument("--fit", type=int, default=4000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--compared", type=int, default=500, help="test rows that are predicted both ways")
    asked = parser.parse_args()
    split = load(asked.table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fitted(split.X, split.y, asked.fit)
    X, y = split.X_test[: asked.compared], split.y_test[: asked.compared]
    alone = replace(model, rows=replace(model.rows, cells=False))
    began = time.perf_counter()
    expected = nll(alone, X, y)
    speed = len(X) / (time.perf_counter() - began)
    print(f"{asked.table}, {len(split.y):,} rows; a set for every row: {speed:,.0f} rows/s")
    apart = nll(model, X, y) - expected
    print(f"  NLL {expected.mean():.4f}; in cells {apart.mean():+.4f} +- {apart.std() / np.sqrt(len(y)):.4f}")
    rng = np.random.default_rng(0)
    picked = rng.integers(0, len(split.X_test), asked.rows)
    moved = 0.01 * split.X.std(0) * rng.normal(size=(asked.rows, split.X.shape[1]))
    speeds(model, split.X_test[picked] + moved)


if __name__ == "__main__":
    main()
