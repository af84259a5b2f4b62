"""Accuracy on the shared tables: ``python benchmarks/accuracy.py superconductivity --seeds 0 1 2 [--ard]``.

Prints a line per seed and their mean: RMSE, RMSE and CRPS in units of the training sd, NLL of the
standardised target (Jacobian of a warp included), coverage of 95% intervals, seconds.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from tables import Split, load

from widegp import WideGPRegressor, metrics


def scores(model: WideGPRegressor, split: Split) -> dict[str, float]:
    sd = float(np.std(split.y))
    mean = model.predict(split.X_test)
    lower, upper = model.predict_interval(split.X_test)
    levels = np.linspace(0.005, 0.995, 100)
    quantiles = model.predict_quantiles(split.X_test, levels)
    return {
        "rmse": metrics.rmse(split.y_test, mean),
        "rmse/sd": metrics.rmse(split.y_test, mean) / sd,
        "nll": float(-model.log_density(split.X_test, split.y_test).mean() - np.log(sd)),
        "crps/sd": metrics.crps_from_quantiles(split.y_test, quantiles, levels) / sd,
        "coverage": metrics.coverage(split.y_test, lower, upper),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("--approximation", default="full-scale")
    parser.add_argument("--rank", type=int, default=200)
    parser.add_argument("--ard", action="store_true")
    parser.add_argument("--warp", default=None)
    parser.add_argument("--paper", action="store_true", help="the paper's protocol, subset of data")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    asked = parser.parse_args()
    split = load(asked.table)
    rows = []
    for seed in asked.seeds:
        if asked.paper:
            model = WideGPRegressor.paper_protocol(noise_start=0.02**2, random_state=seed)
        else:
            model = WideGPRegressor(
                approximation=asked.approximation, rank=asked.rank, ard=asked.ard,
                target_transform=asked.warp, random_state=seed,
            )  # fmt: skip
        began = time.perf_counter()
        model.fit(split.X, split.y)
        fitted = time.perf_counter()
        row = scores(model, split) | {"fit s": fitted - began, "predict s": time.perf_counter() - fitted}
        rows.append(row)
        print(asked.table, "seed", seed, _line(row), model.result_.reason, f"{model.n_iter_} it", flush=True)
    print(asked.table, "mean  ", _line({k: float(np.mean([r[k] for r in rows])) for k in rows[0]}))


def _line(row: dict[str, float]) -> str:
    return "  ".join(f"{k} {v:.4f}" if v < 1e3 else f"{k} {v:.0f}" for k, v in row.items())


if __name__ == "__main__":
    main()
