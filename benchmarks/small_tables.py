"""Small tables, synthetic and real: do 95% intervals cover, and how do NLL and RMSE compare?

``python benchmarks/small_tables.py --workers 16`` (all; ``--tasks sin2d:15 yacht --posterior auto map``)

A task is a function and a number of rows, or a table of the shared folder, whose ten folds are its seeds.
Methods: ``default`` (`WideGPRegressor()`), ``plain`` (its ``plain``), ``ard`` (plain, one variance per
input), each with every ``--posterior``, and ``sklearn`` (Matern 5/2 with one length per input and white
noise, five restarts; above 300 rows these look at 300 of them, and a last descent of 40 iterations at all).
Each fit is one line of ``--out``; what is there already is not done again. Synthetic
seeds begin at ``--first-seed``: the priors were chosen with seeds below 50 and the folds of the real tables
in view, so that seeds from 1000 on are the ones that confirm. ``--show`` prints the table of what is there.

RMSE is in units of the training target's sd, NLL that of the target divided by it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jobs import read, run
from scipy import optimize, stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from tables import FOLDER, Split

from widegp import LogNormal, WideGPRegressor

TEST_ROWS = 300
SIZES = (15, 30, 60, 120)
REAL = ("autompg", "machine", "servo", "yacht", "energy", "stock", "solar", "pendulum")
FOLDS = 10
RESTARTS, RESTART_ROWS, LAST_ITERATIONS = 5, 300, 40
COVERS, LARGEST_LOSS = (0.92, 0.97), 0.1
KEYS = ["task", "method", "posterior", "seed"]
SCORES = ["coverage", "nll", "rmse", "width", "seconds"]


class Job(NamedTuple):
    """One fit; ``posterior`` is empty for scikit-learn."""

    task: str
    method: str
    posterior: str
    seed: int


def _friedman(X: np.ndarray) -> np.ndarray:
    """Of X in [-3, 3]^I: 10 sin(pi u1 u2) + 20 (u3 - 1/2)^2 + 10 u4 + 5 u5 with u = (x + 3) / 6."""
    u = (X + 3) / 6
    waves = 10 * np.sin(np.pi * u[:, 0] * u[:, 1]) + 20 * (u[:, 2] - 0.5) ** 2
    return waves + 10 * u[:, 3] + 5 * u[:, 4]


# Inputs, noise sd, function. ``many`` is a task for one variance per input, whatever the method.
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


def widegp(rows: Split, job: Job, priors: Any) -> dict[str, float]:
    settings = {"priors": priors, "posterior": job.posterior, "random_state": 0}
    ard = job.method == "ard" or job.task.startswith("many")
    make = WideGPRegressor if job.method == "default" and not ard else WideGPRegressor.plain
    model = make(ard=ard, **settings).fit(rows.X, rows.y)
    predictive = model.predict_distribution(rows.X_test)
    ends = predictive.interval(0.95)
    return scores(rows, predictive.mean, ends, predictive.log_density(rows.y_test))


def sklearn(rows: Split) -> dict[str, float]:
    centre, scale = rows.X.mean(0), np.where(rows.X.std(0) > 0, rows.X.std(0), 1.0)
    X, X_test = (rows.X - centre) / scale, (rows.X_test - centre) / scale
    lengths = np.full(X.shape[1], np.sqrt(X.shape[1]))
    kernel = ConstantKernel() * Matern(lengths, (1e-2, 1e4), nu=2.5) + WhiteKernel(0.1, (1e-7, 1e2))
    few = np.random.default_rng(0).permutation(len(X))[:RESTART_ROWS]
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=RESTARTS, random_state=0)
    model.fit(X[few], rows.y[few])
    if len(few) < len(X):
        model = GaussianProcessRegressor(model.kernel_, optimizer=_last_descent, normalize_y=True)
        model.fit(X, rows.y)
    mean, sd = model.predict(X_test, return_std=True)
    half = stats.norm.ppf(0.975) * sd
    return scores(rows, mean, (mean - half, mean + half), stats.norm.logpdf(rows.y_test, mean, sd))


def _last_descent(
    loss: Callable[[np.ndarray], Any], start: np.ndarray, bounds: np.ndarray
) -> tuple[np.ndarray, float]:
    """What scikit-learn does by default, for LAST_ITERATIONS at most."""
    options = {"maxiter": LAST_ITERATIONS}
    found = optimize.minimize(loss, start, method="L-BFGS-B", jac=True, bounds=bounds, options=options)
    return found.x, found.fun


def scores(
    rows: Split, mean: np.ndarray, ends: tuple[np.ndarray, np.ndarray], log_density: np.ndarray
) -> dict[str, float]:
    unit, (lower, upper) = float(np.std(rows.y)), ends
    return {
        "coverage": float(np.mean((lower <= rows.y_test) & (rows.y_test <= upper))),
        "nll": float(-log_density.mean() - np.log(unit)),
        "rmse": float(np.sqrt(np.mean((rows.y_test - mean) ** 2)) / unit),
        "width": float(np.mean(upper - lower) / unit),
    }


def fit(job: Job, priors: Any) -> dict[str, Any]:
    """One fit and its scores; the seconds are those of one core, from rows to scores."""
    rows, began = split(job.task, job.seed), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = sklearn(rows) if job.method == "sklearn" else widegp(rows, job, priors)
    return {**job._asdict(), **found, "seconds": time.process_time() - began}


def jobs(args: argparse.Namespace) -> Iterator[Job]:
    """All that is asked for, seed by seed, so that every task soon has some."""
    for seed in range(args.seeds):
        for task in args.tasks:
            if ":" not in task and seed >= FOLDS:
                continue
            own = seed + args.first_seed if ":" in task else seed
            for method in args.methods:
                for posterior in [""] if method == "sklearn" else args.posterior:
                    yield Job(task, method, posterior, own)


def show(found: pd.DataFrame) -> str:
    """Means over seeds with the standard error of the coverage, then how the aims are met."""
    names = ["task", "method", "posterior"]
    groups = found.groupby(names, sort=False)
    table = groups[SCORES].mean().round(3)
    table.insert(1, "+-", groups["coverage"].sem().round(3))
    table["seeds"] = groups.size()
    return "\n".join([str(table.to_string()), *aims(found)])


def aims(found: pd.DataFrame) -> list[str]:
    """Tasks whose mean coverage lies in COVERS; tables and functions whose NLL is no worse than sklearn's.

    The NLL is compared on the seeds that both have, and averaged over the sizes of a function.
    """
    lines = []
    found = found.assign(group=found.task.str.split(":").str[0])
    other = found[found.method == "sklearn"].set_index(["task", "seed"])["nll"]
    for (method, posterior), own in found.groupby(["method", "posterior"], sort=False):
        covered = own.groupby("task")["coverage"].mean()
        inside = covered.between(*COVERS)
        outside = ", ".join(f"{task} {value:.3f}" for task, value in covered[~inside].items())
        lines.append(
            f"{method} {posterior}: coverage in {COVERS} for {inside.sum()} of {len(covered)} tasks"
            + (f"; outside: {outside}" if outside else "")
        )
        paired = own.set_index(["task", "seed"]).join(other.rename("sklearn"), how="inner")
        if method != "sklearn" and len(paired):
            by_task = (paired.nll - paired.sklearn).groupby(level="task").mean()
            loss = by_task.groupby(by_task.index.str.split(":").str[0]).mean()
            told = ", ".join(f"{group} {value:+.3f}" for group, value in loss.items())
            lines.append(
                f"    NLL no worse than scikit-learn's on {(loss <= 0).sum()} of {len(loss)},"
                f" worse by more than {LARGEST_LOSS} on {(loss > LARGEST_LOSS).sum()}: {told}"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", type=int, default=50, help="of synthetic tasks; real ones have ten folds")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--methods", nargs="+", default=["default", "sklearn"],
                        choices=["default", "plain", "ard", "sklearn"])  # fmt: skip
    parser.add_argument("--posterior", nargs="+", default=["auto"], choices=["auto", "map", "laplace"])
    parser.add_argument("--noise-prior", nargs=2, type=float, metavar=("MEDIAN", "SPREAD"))
    parser.add_argument("--workers", type=int, default=1, help="processes, one core each")
    parser.add_argument("--out", type=Path, default=Path("small_tables.csv"))
    parser.add_argument("--show", action="store_true", help="print what is in --out and stop")
    args = parser.parse_args()
    if not args.show:
        priors = {"sigma_eps2": LogNormal(*args.noise_prior)} if args.noise_prior else "default"
        run(partial(fit, priors=priors), jobs(args), args.out, [*KEYS, *SCORES], args.workers)
    print(show(read(args.out, [*KEYS, *SCORES])))


if __name__ == "__main__":
    main()
