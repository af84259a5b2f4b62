"""Tables of mixed types beside LightGBM: ``python benchmarks/mixed_tables.py diamonds --seeds 0``.

The split of the shared folder: the first tenth of NumPy's default_rng(0).permutation(n) tests. ``--kind
widegp`` is `WideGPRegressor()` behind the encoding of `TableModel`, ``lightgbm`` LightGBM on the same rows,
text as its categories and dates as days, its leaves and rate chosen by early stopping on a tenth of the
training rows, and two more of its fits at the quantiles 0.025 and 0.975. Printed: RMSE, interval score and
coverage at 95%, the coverage in each tenth of the predictions, and seconds. ``--inside K`` leaves the test
rows alone: the Kth fifth of the training rows is predicted from the others. ``--out`` appends JSON lines.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tables import FOLDER, Split, held_inside, inside

from widegp import WideGPRegressor, metrics
from widegp.table_split import TableSettings, split_table

TARGETS = {"diamonds": "price", "hotel_rates": "avg_price_per_room"}
LEVEL = 0.95
LEAVES, RATES, ROUNDS = (15, 31, 63, 127), (0.03, 0.1), 3000


class Found(NamedTuple):
    """Test targets, predictions and the ends of their intervals, (q,) each; further numbers by name."""

    y: np.ndarray
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    more: dict[str, Any]


def of_widegp(table: str, seed: int, fold: int | None) -> Found:
    read = split_table(FOLDER / f"{table}.parquet", TableSettings(TARGETS[table], test_fraction=0.1))
    split = Split(read.X, read.y, read.X_test, read.y_test)
    split = split if fold is None else inside(split, fold)
    began = time.perf_counter()
    model = WideGPRegressor(random_state=seed).fit(split.X, split.y)
    fitted = time.perf_counter()
    own = model.predict_distribution(split.X_test)
    seconds = {"fit_s": fitted - began, "predict_s": time.perf_counter() - fitted}
    nll = float(-np.mean(own.log_density(split.y_test)) - np.log(np.std(split.y)))
    more = {"inputs": split.X.shape[1], "nll_z": nll, **seconds, "notes": list(model.result_.notes)}
    return Found(split.y_test, own.mean, *own.interval(LEVEL), more)


def of_lightgbm(table: str, seed: int, fold: int | None) -> Found:
    import lightgbm

    frame = pd.read_parquet(FOLDER / f"{table}.parquet")
    y = frame.pop(TARGETS[table]).to_numpy(float)
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column):
            continue
        # Dates are kept as objects in some files.
        dates = pd.to_datetime(column, errors="coerce", format="ISO8601")
        days = (dates - pd.Timestamp("2000-01-01")).dt.days
        frame[name] = days if dates.notna().all() else column.astype("category")
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[: len(y) // 10], order[len(y) // 10 :]
    if fold is not None:
        out = held_inside(len(train), fold)
        test, train = train[out], train[~out]
    began = time.perf_counter()
    shuffled = np.random.default_rng(seed).permutation(train)
    held, kept = shuffled[: len(train) // 10], shuffled[len(train) // 10 :]
    common = {"min_child_samples": 10, "subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.8}
    common |= {"random_state": seed, "verbose": -1}

    def grown(trial: dict[str, Any]) -> tuple[float, int, dict[str, Any]]:
        model = lightgbm.LGBMRegressor(n_estimators=ROUNDS, **common, **trial)
        stop = lightgbm.early_stopping(50, verbose=False)
        model.fit(
            frame.iloc[kept], y[kept], eval_set=[(frame.iloc[held], y[held])], callbacks=[stop]
        )
        return next(iter(model.best_score_["valid_0"].values())), int(model.best_iteration_), trial

    def predicted(found: tuple[float, int, dict[str, Any]]) -> np.ndarray:
        model = lightgbm.LGBMRegressor(n_estimators=found[1], **common, **found[2])
        return np.asarray(model.fit(frame.iloc[train], y[train]).predict(frame.iloc[test]))

    trials = [{"num_leaves": leaves, "learning_rate": rate} for leaves in LEAVES for rate in RATES]
    best = min((grown(trial) for trial in trials), key=lambda found: found[0])
    mean, ends = predicted(best), []
    for level in ((1 - LEVEL) / 2, (1 + LEVEL) / 2):
        ends.append(predicted(grown({**best[2], "objective": "quantile", "alpha": level})))
    more = {"chosen": {**best[2], "rounds": best[1]}, "fit_s": time.perf_counter() - began}
    return Found(y[test], mean, np.minimum(*ends), np.maximum(*ends), more)


def scores(found: Found) -> dict[str, Any]:
    inside = (found.lower <= found.y) & (found.y <= found.upper)
    tenths = np.array_split(np.argsort(found.mean), 10)
    return {
        "rmse": metrics.rmse(found.y, found.mean),
        "interval_score": metrics.interval_score(found.y, found.lower, found.upper, LEVEL),
        "coverage": float(inside.mean()),
        "by_tenth": [round(float(inside[rows].mean()), 3) for rows in tenths],
        **found.more,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="+", choices=[*TARGETS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kind", nargs="+", choices=("widegp", "lightgbm"), default=["widegp", "lightgbm"])
    parser.add_argument("--inside", type=int, choices=range(5), metavar="K")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    for table in asked.tables:
        for kind in asked.kind:
            for seed in asked.seeds:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = (of_widegp if kind == "widegp" else of_lightgbm)(table, seed, asked.inside)
                told = {"table": table, "kind": kind, "seed": seed, **scores(found)}
                print(json.dumps(told), flush=True)
                if asked.out is not None:
                    with asked.out.open("a") as file:
                        file.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
