"""Four models of boosted trees side by side: ``python benchmarks/boosting.py pol superconductivity``.

What cross-fitted trees wait for: folds grown in as many threads as there are cores, by `widegp.boosting` and
by scikit-learn's histogram gradient boosting with one OpenMP thread each, and by the latter one after another
with all of its threads. Seconds, and the RMSE of each on a tenth of the training rows, by sd of the target.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tables import load

from widegp import boosting
from widegp.boosting import Model, Rows, Size
from widegp.threads import in_threads
from widegp.trees import LARGE, SMALL, TreesInput, _alone

MODELS = 4


def rmse(model: Model, X: np.ndarray, y: np.ndarray) -> float:
    none = np.zeros(0, np.int64)
    trees = TreesInput._of([model], none, none)
    return float(np.sqrt(np.mean((y - trees.by_model(X)[:, 0]) ** 2)) / y.std())


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def told(part: Rows, X: np.ndarray, y: np.ndarray, size: Size, count: int) -> str:
    """One line: seconds of each way, and the RMSE of rows X (n, I), y (n,) that no tree has seen."""

    def compiled(_: int = 0) -> Model:
        return boosting.grow(part, count, "squared_error", 0, size)

    def plain(_: int = 0) -> Model:
        return boosting.grown_plainly(part, count, "squared_error", 0, size)

    errors = [rmse(make(), X, y) for make in (compiled, plain)]
    jobs = range(MODELS)
    took = {
        "compiled, in threads": seconds(lambda: in_threads(compiled, jobs)),
        "scikit-learn, in threads": seconds(lambda: in_threads(plain, jobs, _alone)),
        "scikit-learn, in turns": seconds(lambda: [plain() for _ in jobs]),
    }
    times = "  ".join(f"{name} {value:.2f} s" for name, value in took.items())
    return f"{tuple(size)}  {times}  RMSE {errors[0]:.4f} {errors[1]:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--trees", type=int, default=300)
    asked = parser.parse_args()
    for table in asked.tables:
        split = load(table, 0)
        order = np.random.default_rng(0).permutation(len(split.y))
        held, kept = np.split(order, [len(order) // 10])
        part = Rows(np.ascontiguousarray(split.X[kept]), split.y[kept], np.ones(len(kept)))
        for size in (SMALL, LARGE):
            print(table, told(part, split.X[held], split.y[held], size, asked.trees), flush=True)


if __name__ == "__main__":
    main()
