"""Peak memory of a fit above its data: ``python benchmarks/memory.py 400000 20 300 vfe``."""

from __future__ import annotations

import resource
import sys
import time
import warnings

import numpy as np

from widegp import WideGPRegressor, metrics


def main() -> None:
    n, n_inputs, rank = (int(a) for a in sys.argv[1:4])
    approximation = sys.argv[4] if len(sys.argv) > 4 else "vfe"
    budget = float(sys.argv[5]) if len(sys.argv) > 5 else None
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n + 10_000, n_inputs))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=len(X))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = WideGPRegressor.plain(approximation=approximation, rank=rank, random_state=0, budget=budget)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model.fit(X[:n], y[:n])
        fitted = time.perf_counter()
    mean, sd = model.predict(X[n:], return_std=True)
    predicted = time.perf_counter()
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    print(
        f"n {n}  I {n_inputs}  r {rank}  {approximation}: {peak:.2f} GiB above the data"
        f" ({before / 2**20:.2f} GiB), fit {fitted - began:.0f} s, predict 10,000 rows"
        f" {predicted - fitted:.0f} s, rmse {metrics.rmse(y[n:], mean):.4f} (noise 0.3),"
        f" nlpd {metrics.nlpd(y[n:], mean, sd):.4f}, {model.result_.reason},"
        f" {model.n_iter_} iterations, {model.result_.seconds}"
    )


if __name__ == "__main__":
    main()
