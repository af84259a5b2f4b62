"""Permutation importances beside scikit-learn's: ``python benchmarks/importance.py hotel_rates diamonds``.

Both shuffle the same held-out rows of the same model, column by column of the table: ours by
`widegp.importance.rank_columns` on encoded rows, theirs by `sklearn.inspection.permutation_importance` on the
frame, whose rows are encoded and predicted anew. Printed for each column: the rise of the mean squared error
by either, their standard errors (ours over rows and shuffles, theirs over shuffles), and the difference in
units of both together. ``--rows`` of each table are taken at random, half of them held out; ``--fit`` "quick"
is a plain fit with 200 anchors, "default" `WideGPRegressor()`. ``--out`` appends JSON lines.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from mixed_tables import TARGETS
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.inspection import permutation_importance
from tables import FOLDER

from widegp import WideGPRegressor
from widegp.data.columns import TableEncoding
from widegp.data.tables import open_table
from widegp.importance import Sample, rank_columns
from widegp.sources import source_columns
from widegp.table_split import TableSettings, split_table


class OfFrames(RegressorMixin, BaseEstimator):
    """The model behind its encoding, as scikit-learn would have it."""

    def __init__(self, encoder: TableEncoding, model: WideGPRegressor) -> None:
        self.encoder, self.model, self.fitted_ = encoder, model, True

    def fit(self, X: Any, y: Any) -> OfFrames:
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        encoded = [self.encoder.transform(batch)[0] for batch in open_table(X).batches()]
        return self.model.predict(np.concatenate(encoded))


def compared(table: str, rows: int, repeats: int, fit: str, seed: int) -> list[dict[str, Any]]:
    """One entry for each column that gives inputs."""
    target = TARGETS[table]
    frame = pd.read_parquet(FOLDER / f"{table}.parquet").sample(rows, random_state=seed, ignore_index=True)
    train, held_out = frame[: rows // 2], frame[rows // 2 :]
    split = split_table(train, TableSettings(target, test_fraction=0.0))
    model = WideGPRegressor(random_state=seed)
    if fit == "quick":
        model = WideGPRegressor.plain(approximation="vfe", rank=200, max_iter=20, random_state=seed)
    model.fit(split.X, split.y)
    X = np.concatenate([split.encoder.transform(batch)[0] for batch in open_table(held_out).batches()])
    y = held_out[target].to_numpy(float)
    began = time.perf_counter()
    own = rank_columns(model.fitted_, X, y, source_columns(split.encoder), Sample(seed))
    mine, began = time.perf_counter() - began, time.perf_counter()
    theirs = permutation_importance(
        OfFrames(split.encoder, model), held_out.drop(columns=target), y, n_repeats=repeats,
        scoring="neg_mean_squared_error", random_state=seed,
    )  # fmt: skip
    seconds = {"own_s": mine, "sklearn_s": time.perf_counter() - began}
    names = [name for name in frame.columns if name != target]
    out = []
    for entry in own["inputs"]:
        k = names.index(entry["name"])
        se = float(theirs.importances_std[k]) / np.sqrt(repeats)
        difference = entry["error_rise"] - float(theirs.importances_mean[k])
        both = float(np.hypot(se, entry["error_rise_se"]))
        out.append(
            {
                "table": table, "column": entry["name"], "own": entry["error_rise"],
                "own_se": entry["error_rise_se"], "sklearn": float(theirs.importances_mean[k]),
                "sklearn_se": se, "apart": difference / both if both > 0 else 0.0,
                "variance": float(np.var(y)), **seconds,
            }
        )  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", choices=sorted(TARGETS))
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--fit", choices=("quick", "default"), default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for table in asked.tables:
        found = compared(table, asked.rows, asked.repeats, asked.fit, asked.seed)
        print(f"{table}: {'column':28} {'own':>12} {'±':>9} {'sklearn':>12} {'±':>9} {'apart':>6}")
        for e in sorted(found, key=lambda e: -e["own"]):
            numbers = f"{e['own']:12.5g} {e['own_se']:9.2g} {e['sklearn']:12.5g} {e['sklearn_se']:9.2g}"
            print(f"{table}: {e['column']:28} {numbers} {e['apart']:6.2f}")
        within = sum(abs(e["apart"]) <= 2 for e in found)
        spent = f"{found[0]['own_s']:.1f} s and {found[0]['sklearn_s']:.1f} s"
        print(f"{table}: {within} of {len(found)} columns within two standard errors; {spent}", flush=True)
        if asked.out:
            with open(asked.out, "a") as file:
                file.writelines(json.dumps(e) + "\n" for e in found)


if __name__ == "__main__":
    main()
