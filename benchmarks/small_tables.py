"""Small tables, synthetic and real: do 95% intervals cover, and how do NLL and RMSE compare?

``python benchmarks/small_tables.py --tasks sin2d:15 linear:30 yacht --seeds 50 --methods widegp sklearn``

A task is a function and a number of rows, or a table of the shared folder, whose ten folds are its seeds.
Each fit appends one line of JSON to ``--out``; what is there already is not done again. ``--show`` prints the
table. ``--noise-prior MEDIAN SPREAD`` replaces the default prior of sigma_eps2. Set OMP_NUM_THREADS=1 and
NUMBA_NUM_THREADS=1 to keep to one core.

RMSE is in units of the training target's sd, NLL that of the target divided by it.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from tables import FOLDER, Split

from widegp import LogNormal, WideGPRegressor

TEST_ROWS = 300
SIZES = (15, 30, 60, 120)
REAL = ("autompg", "machine", "servo", "yacht", "energy", "stock", "solar", "pendulum")


def _friedman(X: np.ndarray) -> np.ndarray:
    """Of X in [-3, 3]^I: 10 sin(pi u1 u2) + 20 (u3 - 1/2)^2 + 10 u4 + 5 u5 with u = (x + 3) / 6."""
    u = (X + 3) / 6
    waves = 10 * np.sin(np.pi * u[:, 0] * u[:, 1]) + 20 * (u[:, 2] - 0.5) ** 2
    return waves + 10 * u[:, 3] + 5 * u[:, 4]


# Inputs, noise sd, function.
FUNCTIONS: dict[str, tuple[int, float, Callable[[np.ndarray], np.ndarray]]] = {
    "sin2d": (2, 0.2, lambda X: np.sin(X[:, 0]) + np.cos(X[:, 1])),
    "linear": (3, 0.5, lambda X: X @ np.array([1.0, 0.5, -0.5])),
    "step": (1, 0.2, lambda X: np.sign(X[:, 0])),
    "friedman": (10, 1.0, _friedman),
    "many": (30, 1.0, _friedman),
}
TASKS = [f"{name}:{n}" for name in FUNCTIONS if name != "many" for n in SIZES] + ["many:60", *REAL]


def split(task: str, seed: int) -> Split:
    """Training and test rows; ``seed`` is the fold of a real table."""
    if ":" not in task:
        frame = pd.read_parquet(FOLDER / f"{task}.parquet")
        test = frame.pop("fold").to_numpy() == seed
        y, X = frame.pop("y").to_numpy(float), frame.to_numpy(float)
        return Split(X[~test], y[~test], X[test], y[test])
    name, n_rows = task.split(":")
    n_inputs, noise, function = FUNCTIONS[name]
    rng = np.random.default_rng([seed, int(n_rows), n_inputs])
    X = rng.uniform(-3, 3, (int(n_rows) + TEST_ROWS, n_inputs))
    y = function(X) + noise * rng.standard_normal(len(X))
    n = int(n_rows)
    return Split(X[:n], y[:n], X[n:], y[n:])


def widegp(rows: Split, ard: bool, priors: dict | str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd of the test targets."""
    model = WideGPRegressor.plain(ard=ard, priors=priors, random_state=0).fit(rows.X, rows.y)
    return model.predict(rows.X_test, return_std=True)


def sklearn(rows: Split) -> tuple[np.ndarray, np.ndarray]:
    """The same by a Matern 5/2 with one length per input and noise, five restarts."""
    centre, scale = rows.X.mean(0), np.where(rows.X.std(0) > 0, rows.X.std(0), 1.0)
    lengths = np.full(rows.X.shape[1], np.sqrt(rows.X.shape[1]))
    kernel = ConstantKernel() * Matern(lengths, (1e-2, 1e4), nu=2.5) + WhiteKernel(0.1, (1e-7, 1e2))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=5, random_state=0)
    model.fit((rows.X - centre) / scale, rows.y)
    return model.predict((rows.X_test - centre) / scale, return_std=True)


def scores(rows: Split, mean: np.ndarray, sd: np.ndarray) -> dict[str, float]:
    unit, error = float(np.std(rows.y)), rows.y_test - mean
    return {
        "coverage": float(np.mean(np.abs(error) < stats.norm.ppf(0.975) * sd)),
        "nll": float(-stats.norm.logpdf(error / unit, scale=sd / unit).mean()),
        "rmse": float(np.sqrt(np.mean(error**2)) / unit),
    }


def fit(method: str, task: str, seed: int, priors: dict | str) -> dict[str, float]:
    """One fit and its scores; ``many`` is a task for one variance per input, and so is ``widegp-ard``."""
    rows, began = split(task, seed), time.process_time()
    ard = method == "widegp-ard" or task.startswith("many")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        moments = sklearn(rows) if method == "sklearn" else widegp(rows, ard, priors)
    return {**scores(rows, *moments), "seconds": time.process_time() - began}


def read(out: Path) -> pd.DataFrame:
    lines = out.read_text().splitlines() if out.exists() else []
    return pd.DataFrame([json.loads(line) for line in lines])


def show(found: pd.DataFrame) -> str:
    """Means over seeds, and their standard error for the coverage."""
    groups = found.groupby(["task", "method"], sort=False)
    table = groups[["coverage", "nll", "rmse", "seconds"]].mean().round(3)
    table.insert(1, "+-", groups["coverage"].sem().round(3))
    return str(table.assign(seeds=groups.size()).to_string())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", type=int, default=50, help="of synthetic tasks; real ones have ten folds")
    parser.add_argument("--methods", nargs="+", default=["widegp", "widegp-ard", "sklearn"])
    parser.add_argument("--noise-prior", nargs=2, type=float, metavar=("MEDIAN", "SPREAD"))
    parser.add_argument("--out", type=Path, default=Path("small_tables.jsonl"))
    parser.add_argument("--show", action="store_true", help="print what is in --out and stop")
    args = parser.parse_args()
    priors = {"sigma_eps2": LogNormal(*args.noise_prior)} if args.noise_prior else "default"
    found = read(args.out)
    done = set() if found.empty else set(zip(found.task, found.method, found.seed, strict=True))
    for task in [] if args.show else args.tasks:
        for seed in range(args.seeds if ":" in task else min(args.seeds, 10)):
            for method in args.methods:
                if (task, method, seed) in done:
                    continue
                line = {"task": task, "method": method, "seed": seed, **fit(method, task, seed, priors)}
                with args.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    print(show(read(args.out)))


if __name__ == "__main__":
    main()
