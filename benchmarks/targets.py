"""Classes, counts and several outputs: ``python benchmarks/targets.py magic --seeds 0 1 2 --jobs 2``.

Every line is one fit of one table with one seed. Test rows are the first tenth of the permutation of seed 0.

    magic, adult        log loss, AUC, Brier score, ECE with its 95% range of chance
    bike_counts         Poisson deviance, log score (nats), RMSE, coverage of 95% intervals, dispersion
    enb, jura           RMSE and NLL of each output, in units of its training sd

Columns V2, V4, V6 to V10 and V14 of adult are codes of categories. ``--kind lightgbm`` is LightGBM with the
loss of the target, its rounds and leaves chosen on a tenth of the training rows. Outputs of enb and jura are
fitted together, with ``--kind each`` one by one. ``--set`` gives settings, such as ``--set rank=200``;
``--inside K`` leaves the test rows alone: the Kth fifth of the training rows is predicted from the others.
``--out`` appends each line to a file as JSON. The tables are in ``WIDEGP_DATA``, or in ``shared/data`` beside
the checkout.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from accuracy import _line, _value
from tables import FOLDER, Split, inside, load

from widegp import WideGPClassifier, WideGPRegressor, metrics

CODES = ("V2", "V4", "V6", "V7", "V8", "V9", "V10", "V14")
OUTPUTS = {"enb": 2, "jura": 3}
CLASSES, COUNTS = ("magic", "adult"), ("bike_counts",)


def split_of(table: str) -> Split:
    """Numbers; categories of adult encoded by what the training rows show."""
    if table in OUTPUTS:
        frame = pd.read_parquet(FOLDER / f"{table}.parquet").to_numpy(float)
        order, count = np.random.default_rng(0).permutation(len(frame)), len(frame) // 10
        X, y = np.split(frame, [frame.shape[1] - OUTPUTS[table]], axis=1)
        test, train = order[:count], np.sort(order[count:])
        return Split(X[train], y[train], X[test], y[test])
    if table != "adult":
        return load(table)
    from widegp.table_split import TableSettings, split_table

    frame = pd.read_parquet(FOLDER / "adult.parquet")
    frame = frame.assign(**{name: "c" + frame[name].astype(int).astype(str) for name in CODES})
    found = split_table(frame, TableSettings("y", test_fraction=0.1, seed=0))
    return Split(found.X, found.y, found.X_test, found.y_test)


def of_classes(split: Split, p: np.ndarray) -> dict[str, float]:
    low, high = metrics.ece_by_chance(p)
    y = split.y_test
    return {
        "log_loss": metrics.log_loss(y, p), "auc": metrics.auc(y, p), "brier": metrics.brier(y, p),
        "ece": metrics.ece(y, p), "ece_low": low, "ece_high": high,
    }  # fmt: skip


def of_counts(split: Split, mean: np.ndarray) -> dict[str, float]:
    y = split.y_test
    return {"deviance": metrics.poisson_deviance(y, mean), "rmse": metrics.rmse(y, mean)}


def classifier(split: Split, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    began = time.perf_counter()
    model = WideGPClassifier(random_state=seed, **settings).fit(split.X, split.y)
    fitted = time.perf_counter()
    found = of_classes(split, model.predict_proba(split.X_test)[:, 1])
    seconds = {"fit_s": fitted - began, "predict_s": time.perf_counter() - fitted}
    result = model.fitted_[0].result
    return found | seconds | {"reason": str(result.reason), "notes": list(result.notes)}


def counts(split: Split, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    began = time.perf_counter()
    settings = {"likelihood": "negative-binomial"} | settings
    model = WideGPRegressor(random_state=seed, **settings).fit(split.X, split.y)
    fitted = time.perf_counter()
    predictive = model.predict_distribution(split.X_test)
    lower, upper = predictive.interval(0.95)
    found = of_counts(split, predictive.mean) | {
        "log_score": float(-np.mean(predictive.log_density(split.y_test))),
        "cover95": metrics.coverage(split.y_test, lower, upper),
    }  # fmt: skip
    seconds = {"fit_s": fitted - began, "predict_s": time.perf_counter() - fitted}
    psi = {name: float(model.params_[name]) for name in ("dispersion",) if name in model.params_}
    return found | psi | seconds | {"reason": str(model.result_.reason), "notes": list(model.result_.notes)}


def outputs(split: Split, seed: int, settings: dict[str, Any], each: bool = False) -> dict[str, Any]:
    began = time.perf_counter()
    make = partial(WideGPRegressor, random_state=seed, **settings)
    if each:
        models = [make().fit(split.X, y) for y in split.y.T]
        found = [model.predict_distribution(split.X_test) for model in models]
    else:
        found = make().fit(split.X, split.y).predict_distribution(split.X_test)
    row: dict[str, Any] = {"fit_s": time.perf_counter() - began}
    for k, predictive in enumerate(found):
        sd, y = float(np.std(split.y[:, k])), split.y_test[:, k]
        row[f"rmse_{k}"] = metrics.rmse(y, predictive.mean) / sd
        row[f"nll_{k}"] = float(-np.mean(predictive.log_density(y)) - np.log(sd))
    return row


def boosting(split: Split, seed: int, table: str) -> dict[str, Any]:
    """LightGBM with the best of a few sizes of trees by early stopping on a tenth of the training rows."""
    import lightgbm

    began = time.perf_counter()
    order = np.random.default_rng(seed).permutation(len(split.y))
    held, kept = order[: len(order) // 10], order[len(order) // 10 :]
    objective = "binary" if table in CLASSES else "poisson"
    best: tuple[float, dict, int] | None = None
    for leaves in (15, 31, 63, 127):
        for rate in (0.03, 0.1):
            trial = {"num_leaves": leaves, "learning_rate": rate, "min_child_samples": 10, "subsample": 0.8}
            trial |= {"subsample_freq": 1, "colsample_bytree": 0.8, "seed": seed, "verbose": -1}
            trial |= {"objective": objective}
            data = lightgbm.Dataset(split.X[kept], split.y[kept])
            judged = lightgbm.Dataset(split.X[held], split.y[held])
            stop = lightgbm.early_stopping(50, verbose=False)
            model = lightgbm.train(trial, data, 3000, valid_sets=[judged], callbacks=[stop])
            score = next(iter(model.best_score["valid_0"].values()))
            if best is None or score < best[0]:
                best = float(score), trial, int(model.best_iteration)
    assert best is not None
    model = lightgbm.train(best[1], lightgbm.Dataset(split.X, split.y), best[2])
    predicted = np.asarray(model.predict(split.X_test))
    scores = of_classes(split, predicted) if table in CLASSES else of_counts(split, predicted)
    return scores | {"fit_s": time.perf_counter() - began}


def run(table: str, kind: str, settings: dict[str, Any], fold: int | None, seed: int) -> dict[str, Any]:
    """One line: a fit of ``table`` with ``seed``, and its scores."""
    warnings.simplefilter("ignore")
    split = split_of(table)
    split = split if fold is None else inside(split, fold)
    if kind == "lightgbm":
        return boosting(split, seed, table)
    if table in OUTPUTS:
        return outputs(split, seed, settings, kind == "each")
    return (classifier if table in CLASSES else counts)(split, seed, settings)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+", choices=(*CLASSES, *COUNTS, *OUTPUTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time, each in a process of its own")
    parser.add_argument("--set", nargs="*", default=[], dest="settings", metavar="NAME=VALUE")
    parser.add_argument("--kind", choices=("default", "lightgbm", "each"), default="default")
    parser.add_argument("--inside", type=int, choices=range(5), metavar="K")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    settings = {name: _value(text) for name, text in (item.split("=", 1) for item in asked.settings)}
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        for table in asked.tables:
            rows = []
            made = pool.map(partial(run, table, asked.kind, settings, asked.inside), asked.seeds)
            for seed, row in zip(asked.seeds, made, strict=True):
                rows.append(row)
                told = {"table": table, "kind": asked.kind, "seed": seed, "inside": asked.inside, **row}
                print(_line(told), flush=True)
                if asked.out is not None:
                    with asked.out.open("a") as file:
                        file.write(json.dumps(told | {"settings": settings}) + "\n")
            numbers = [name for name, value in rows[0].items() if isinstance(value, float)]
            means = {name: float(np.mean([row[name] for row in rows])) for name in numbers}
            print(_line({"table": table, "mean of": len(rows)} | means), flush=True)


if __name__ == "__main__":
    main()
