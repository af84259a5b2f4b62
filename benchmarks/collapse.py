"""Functions that vary fast, and a row far out: is the mean predictor ever called an optimum?

``python benchmarks/collapse.py --seeds 20 --workers 16`` (``--show`` prints what is in ``--out``)

Every fit is one line of ``--out``; what is there already is not done again. Methods: ``default``
(`WideGPRegressor()`), ``plain`` (its ``plain``), and scikit-learn's Matern 5/2 with white noise and five
restarts: ``matern`` with one length for all inputs, beside ``plain``, and ``matern-ard`` with one for each,
beside ``default``. From 600 rows on its restarts look at 400 of them, and a last descent at all. It sees the
inputs as they are: standardised, a row far out would leave it nothing of the others.

RMSE is that of the noiseless function at 500 new rows, in units of its sd.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jobs import read, run
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from widegp import WideGPRegressor

NOISE, TEST_ROWS = 0.1, 500
RESTARTS, RESTART_ROWS = 5, 400
WITHIN = 1.2
# The rival of each method.
BESIDE = {"default": "matern-ard", "plain": "matern"}


class Case(NamedTuple):
    """Inputs uniform on [-side, side]^I, a function of them, and what is odd about the table."""

    n_rows: int
    function: Callable[[np.ndarray], np.ndarray]
    inputs: int = 1
    side: float = 3.0
    far_row: bool = False
    approximation: str = "auto"


def _wave(frequency: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda X: np.sin(frequency * X[:, 0])


CASES = {
    "sin 6x": Case(150, _wave(6)),
    "sin 8x": Case(150, _wave(8)),
    "sin 15x": Case(600, _wave(15)),
    "sin 15x full-scale": Case(1500, _wave(15), approximation="full-scale"),
    "sin 20x1 + x2": Case(300, lambda X: np.sin(20 * X[:, 0]) + X[:, 1], inputs=2, side=1.0),
    "sin 2x, row at 1e4": Case(150, _wave(2), far_row=True),
    "sin 6x, row at 1e4": Case(150, _wave(6), far_row=True),
}


class Job(NamedTuple):
    case: str
    method: str
    seed: int


COLUMNS = [*Job._fields, "rmse", "log_posterior", "seconds"]


def table(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and targets, new rows and the function there."""
    case, rng = CASES[name], np.random.default_rng([seed, list(CASES).index(name)])
    X = rng.uniform(-case.side, case.side, (case.n_rows + TEST_ROWS, case.inputs))
    f = case.function(X)
    y, n = f + NOISE * rng.standard_normal(len(X)), case.n_rows
    if case.far_row:
        X[0] = 1e4
    return X[:n], y[:n], X[n:], f[n:]


def matern(X: np.ndarray, y: np.ndarray, ard: bool) -> GaussianProcessRegressor:
    lengths = np.ones(X.shape[1]) if ard else 1.0
    kernel = ConstantKernel() * Matern(lengths, (1e-3, 1e3), nu=2.5) + WhiteKernel(0.1, (1e-6, 1e1))
    few = slice(RESTART_ROWS if len(X) >= 600 else None)
    first = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=RESTARTS, random_state=0)
    first.fit(X[few], y[few])
    if few.stop is None:
        return first
    return GaussianProcessRegressor(first.kernel_, normalize_y=True).fit(X, y)


def fit(job: Job) -> dict[str, Any]:
    """One fit and its error; the seconds are those of one core."""
    (X, y, new, f), began = table(job.case, job.seed), time.process_time()
    posterior: float | str = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if job.method in BESIDE.values():
            mean = matern(X, y, job.method == "matern-ard").predict(new)
        else:
            make = WideGPRegressor if job.method == "default" else WideGPRegressor.plain
            model = make(approximation=CASES[job.case].approximation, random_state=job.seed).fit(X, y)
            mean, posterior = model.predict(new), float(model.log_posterior_)
    rmse = float(np.sqrt(np.mean((mean - f) ** 2)) / np.std(f))
    return {**job._asdict(), "rmse": rmse, "log_posterior": posterior, "seconds": time.process_time() - began}


def show(found: pd.DataFrame) -> str:
    """RMSE beside that of the rival, seed by seed: mean, and how many are within WITHIN."""
    wide = found.pivot_table(index=["case", "seed"], columns="method", values="rmse")
    lines = []
    for method, rival in BESIDE.items():
        if not {method, rival} <= set(wide):
            continue
        both = wide[[method, rival]].dropna()
        ratio = both[method] / both[rival]
        by_case = pd.DataFrame({
            method: both[method].groupby(level="case", sort=False).mean(),
            rival: both[rival].groupby(level="case", sort=False).mean(),
            "largest ratio": ratio.groupby(level="case", sort=False).max(),
            "within": (ratio <= WITHIN).groupby(level="case", sort=False).sum(),
            "seeds": ratio.groupby(level="case", sort=False).size(),
        })  # fmt: skip
        lines.append(by_case.round(4).to_string())
        beyond = ratio[ratio > WITHIN]
        lines += [f"    {case}, seed {seed}: {value:.2f}" for (case, seed), value in beyond.items()]
    lines.append(found.groupby(["case", "method"], sort=False)["seconds"].mean().round(1).to_string())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--methods", nargs="+", default=[*BESIDE, *BESIDE.values()])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes, one core each")
    parser.add_argument("--out", type=Path, default=Path("collapse.csv"))
    parser.add_argument("--show", action="store_true", help="print what is in --out and stop")
    args = parser.parse_args()
    if not args.show:
        seeds = range(args.first_seed, args.first_seed + args.seeds)
        # Seed by seed, so that every case soon has some.
        todo = [Job(case, method, seed) for seed in seeds for case in args.cases for method in args.methods]
        run(fit, todo, args.out, COLUMNS, args.workers)
    print(show(read(args.out, COLUMNS)))


if __name__ == "__main__":
    main()
