"""Accuracy on the shared tables: ``python benchmarks/accuracy.py superconductivity --seeds 0 1 2``.

Every line is one fit of one table with one seed: RMSE in units of y and of the training sd, NLL of the
standardised target (Jacobian of a warp included), CRPS, coverage of 95% and 50% intervals, seconds, and what
the fit chose. Tables with a column ``fold`` are run for each of ``--folds``. ``--set`` gives settings, such
as ``--set metric=ard noise=constant``. ``--kind plain`` is `WideGPRegressor.plain`, ``paper`` the paper's
protocol, ``lightgbm`` LightGBM, its rounds and leaves chosen on a tenth of the training rows. ``--grouped``
keeps rows of equal inputs on one side of the split. ``common`` is the share of rows whose target is
that of many training rows. ``--inside K`` leaves the test rows alone: the Kth fifth of the training rows is
predicted from the others, which is what rules are changed by. ``--out`` appends each line to a file as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tables import Split, grouped, inside, load

from widegp import WideGPRegressor

# Share of the training rows from which on a value of the target is common. Intervals of 50% that hold such a
# value hold more than half where the model is right.
COMMON = 0.05


def scores(model: WideGPRegressor, split: Split) -> dict[str, float]:
    sd, found = float(np.std(split.y)), model.predict_distribution(split.X_test)
    y = split.y_test
    held = {level: (lower <= y) & (y <= upper) for level in (0.95, 0.5)
            for lower, upper in [found.interval(level)]}  # fmt: skip
    rmse = float(np.sqrt(np.mean((y - found.mean) ** 2)))
    told = {
        "rmse": rmse, "rmse_z": rmse / sd, "nll_z": float(-np.mean(found.log_density(y)) - np.log(sd)),
        "crps_z": float(np.mean(found.crps(y)) / sd), "cover95": float(held[0.95].mean()),
        "cover50": float(held[0.5].mean()),
    }  # fmt: skip
    values, counts = np.unique(split.y, return_counts=True)
    told["common"] = float(np.isin(y, values[counts > COMMON * len(split.y)]).mean())
    return told


def of_widegp(split: Split, seed: int, settings: dict[str, Any], kind: str) -> dict[str, Any]:
    if kind == "paper":
        model = WideGPRegressor.paper_protocol(noise_start=0.02**2, random_state=seed, **settings)
    else:
        make = WideGPRegressor.plain if kind == "plain" else WideGPRegressor
        model = make(random_state=seed, **settings)
    began = time.perf_counter()
    model.fit(split.X, split.y)
    fitted = time.perf_counter()
    found = scores(model, split)
    seconds = {"fit_s": fitted - began, "predict_s": time.perf_counter() - fitted}
    return found | seconds | {"reason": str(model.result_.reason), "notes": list(model.result_.notes)}


def of_boosting(split: Split, seed: int) -> dict[str, Any]:
    """LightGBM with the best of a few sizes of trees by early stopping on a tenth of the training rows."""
    import lightgbm

    began = time.perf_counter()
    order = np.random.default_rng(seed).permutation(len(split.y))
    held, kept = order[: len(order) // 10], order[len(order) // 10 :]
    best: tuple[float, dict, int] | None = None
    for leaves in (15, 31, 63, 127):
        for rate in (0.03, 0.1):
            trial = {"num_leaves": leaves, "learning_rate": rate, "min_child_samples": 10, "subsample": 0.8}
            trial |= {"subsample_freq": 1, "colsample_bytree": 0.8, "random_state": seed, "verbose": -1}
            model = lightgbm.LGBMRegressor(n_estimators=3000, **trial)
            stop = lightgbm.early_stopping(50, verbose=False)
            judged = [(split.X[held], split.y[held])]
            model.fit(split.X[kept], split.y[kept], eval_set=judged, callbacks=[stop])
            score = float(model.best_score_["valid_0"]["l2"])
            if best is None or score < best[0]:
                best = score, trial, int(model.best_iteration_)
    assert best is not None
    model = lightgbm.LGBMRegressor(n_estimators=best[2], **best[1]).fit(split.X, split.y)
    rmse = float(np.sqrt(np.mean((split.y_test - model.predict(split.X_test)) ** 2)))
    return {"rmse": rmse, "rmse_z": rmse / float(np.std(split.y)), "fit_s": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", nargs="*", default=[], dest="settings", metavar="NAME=VALUE")
    parser.add_argument("--kind", choices=("default", "plain", "paper", "lightgbm"), default="default")
    parser.add_argument("--grouped", action="store_true")
    parser.add_argument("--inside", type=int, choices=range(5), metavar="K")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    settings = {name: _value(text) for name, text in (item.split("=", 1) for item in asked.settings)}
    for table in asked.tables:
        rows = []
        for fold in asked.folds:
            split = grouped(table) if asked.grouped else load(table, fold)
            split = split if asked.inside is None else inside(split, asked.inside)
            for seed in asked.seeds:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    boosted = asked.kind == "lightgbm"
                    kind = asked.kind
                    row = of_boosting(split, seed) if boosted else of_widegp(split, seed, settings, kind)
                rows.append(row)
                told = {"table": table, "kind": asked.kind, "fold": fold, "seed": seed, **row}
                print(_line(told), flush=True)
                if asked.out is not None:
                    with asked.out.open("a") as file:
                        file.write(json.dumps(told | {"settings": settings}) + "\n")
        numbers = [name for name, value in rows[0].items() if isinstance(value, float)]
        means = {k: float(np.mean([r[k] for r in rows])) for k in numbers}
        print(_line({"table": table, "mean of": len(rows)} | means))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"None": None, "True": True, "False": False}.get(text, text)


def _line(row: dict[str, Any]) -> str:
    return "  ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())


if __name__ == "__main__":
    main()
