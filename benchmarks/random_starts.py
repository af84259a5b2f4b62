"""Does a fit end as high as the best of twenty random starts?

``python benchmarks/random_starts.py --workers 16`` (``--show`` prints what is in ``--out``)

26 small tables, each a function, a number of rows and inputs, a noise and a kernel, are fitted plainly
(`WideGPRegressor.plain`), and by L-BFGS, to convergence, from 20 starts drawn over many decades of every
parameter; the same likelihood and priors. Printed per table: how far the log posterior of the fit lies below
the best of these ends, in nats (negative where it is above), how many of the starts end within 0.1 of the
best of all, and the seconds of the fit and of all starts together, on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jobs import read, run

from widegp import WideGPRegressor
from widegp.identifiability import map_objective
from widegp.inference.optimizers import Task, lbfgs
from widegp.kernels.registry import named

STARTS, ITERATIONS = 20, 500
WITHIN = 0.1
# Powers of ten between which starts are drawn; alpha and w between 0.02 and 0.98.
POWERS = {"sigma_a2": (-2, 3), "sigma_u2": (-2, 4), "sigma_b2": (-2, 1), "sigma_v2": (-2, 2),
          "sigma_eps2": (-4, 0)}  # fmt: skip

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "line": lambda X: X[:, 0],
    "waves": lambda X: np.sin(X).sum(1),
    "fast": lambda X: np.sin(6 * X[:, 0]),
    "step": lambda X: np.sign(X[:, 0]),
    "kink": lambda X: np.maximum(X[:, 0], 0) + 0.3 * X.sum(1),
    "product": lambda X: X[:, 0] * X[:, -1],
    "bump": lambda X: np.exp(-2 * np.sum(X**2, 1)),
    "nothing": lambda X: 0 * X[:, 0],
}


class Fit(NamedTuple):
    function: str
    n_rows: int
    n_inputs: int
    noise: float
    kernel: str = "mixed"


FITS = (
    Fit("line", 15, 1, 0.3), Fit("line", 40, 5, 1.0), Fit("line", 120, 3, 0.1),
    Fit("line", 30, 8, 0.5, "relu"),
    Fit("waves", 15, 1, 0.1), Fit("waves", 30, 2, 0.2), Fit("waves", 60, 3, 0.5), Fit("waves", 150, 4, 0.1),
    Fit("waves", 80, 2, 0.3, "tanh"), Fit("waves", 80, 2, 0.3, "matern52"),
    Fit("fast", 60, 1, 0.1), Fit("fast", 150, 1, 0.1), Fit("fast", 200, 1, 0.5),
    Fit("fast", 100, 1, 0.1, "rbf"),
    Fit("step", 15, 1, 0.2), Fit("step", 60, 1, 0.05), Fit("step", 200, 2, 0.2),
    Fit("kink", 30, 2, 0.1), Fit("kink", 100, 6, 0.3), Fit("kink", 60, 2, 0.2, "leaky_relu"),
    Fit("product", 40, 2, 0.1), Fit("product", 150, 3, 0.5),
    Fit("bump", 50, 2, 0.05), Fit("bump", 200, 3, 0.02, "sigmoid"),
    Fit("nothing", 30, 2, 1.0), Fit("nothing", 100, 4, 1.0),
)  # fmt: skip


class Job(NamedTuple):
    fit: int
    seed: int


COLUMNS = [*Job._fields, "table", "behind", "near", "seconds", "starts_seconds"]


def table(fit: Fit, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs uniform on [-3, 3], both as a fit scales them."""
    rng = np.random.default_rng([seed, fit.n_rows, fit.n_inputs])
    X = rng.uniform(-3, 3, (fit.n_rows, fit.n_inputs))
    y = FUNCTIONS[fit.function](X) + fit.noise * rng.standard_normal(fit.n_rows)
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


def ends(fit: Fit, X: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    """Log posteriors at which the random starts end, (STARTS,)."""
    rng, found = np.random.default_rng([seed, 1]), []
    objective, _ = map_objective(named(fit.kernel), 0.1, X, y)
    space = objective.space
    for _ in range(STARTS):
        drawn = {name: np.asarray(rng.uniform(0.02, 0.98)) for name in space.shapes}
        drawn |= {k: np.asarray(10 ** rng.uniform(*ends)) for k, ends in POWERS.items() if k in drawn}
        task = Task(objective, space.bounds(), len(X), ITERATIONS)
        found.append(-lbfgs(task, space.pack(drawn)).value)
    return np.array(found)


def compared(job: Job) -> dict[str, Any]:
    fit = FITS[job.fit]
    X, y = table(fit, job.seed)
    began = time.process_time()
    model = WideGPRegressor.plain(kernel=fit.kernel, approximation="exact", random_state=job.seed).fit(X, y)
    fitted = time.process_time()
    others = ends(fit, X, y, job.seed)
    best = max(others.max(), model.log_posterior_)
    name = f"{fit.function}, {fit.n_rows} x {fit.n_inputs}, noise {fit.noise:g}, {fit.kernel}"
    return {
        **job._asdict(), "table": name, "behind": float(others.max() - model.log_posterior_),
        "near": int(np.sum(others > best - WITHIN)), "seconds": fitted - began,
        "starts_seconds": time.process_time() - fitted,
    }  # fmt: skip


def show(found: pd.DataFrame) -> str:
    lines = [found.sort_values(["fit", "seed"]).drop(columns="fit").round(3).to_string(index=False)]
    near = found.behind <= WITHIN
    lines.append(
        f"{near.sum()} of {len(found)} fits end within {WITHIN} nats of the best of {STARTS} random starts,"
        f" the others {found.behind[~near].round(2).tolist()} nats below it."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fits", type=int, nargs="+", default=list(range(len(FITS))))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--workers", type=int, default=1, help="processes, one core each")
    parser.add_argument("--out", type=Path, default=Path("random_starts.csv"))
    parser.add_argument("--show", action="store_true", help="print what is in --out and stop")
    args = parser.parse_args()
    if not args.show:
        todo = [Job(fit, seed) for seed in args.seeds for fit in args.fits]
        run(compared, todo, args.out, COLUMNS, args.workers)
    print(show(read(args.out, COLUMNS)))


if __name__ == "__main__":
    main()
