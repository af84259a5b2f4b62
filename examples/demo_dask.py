"""Fit one table twice, here and on a cluster of two worker processes, and compare: ``make demo-dask``."""

from __future__ import annotations

import time
import warnings

import numpy as np
from dask.distributed import Client, LocalCluster
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

from widegp import WideGPRegressor, metrics

TOLERANCE = 1e-8


def seconds(model: WideGPRegressor, X: np.ndarray, y: np.ndarray) -> float:
    began = time.perf_counter()
    with warnings.catch_warnings():
        # Thirty iterations show the point; a convergence warning would be right and beside it.
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return time.perf_counter() - began


def main() -> None:
    X, y = make_friedman1(n_samples=4000, noise=1.0, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    local = WideGPRegressor.plain(
        approximation="full-scale", rank=100, neighbors=20, max_iter=30, block_rows=400, random_state=0
    )
    print(f"here:    {seconds(local, X_train, y_train):5.1f} s, rmse {rmse(local, X_test, y_test):.4f}")

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        remote = clone(local).set_params(engine="dask")
        print(f"cluster: {seconds(remote, X_train, y_train):5.1f} s, rmse {rmse(remote, X_test, y_test):.4f}")

    difference = np.abs(remote.predict(X_test) - local.predict(X_test)).max() / y_test.std()
    value = abs(remote.log_posterior_ / local.log_posterior_ - 1)
    print(f"largest difference of predictions: {difference:.1e} sd; of the log posterior: {value:.1e} of it")
    if max(difference, value) > TOLERANCE:
        raise SystemExit(f"The two fits differ by more than {TOLERANCE:g}.")
    print("The cluster's answer is the local one.")


def rmse(model: WideGPRegressor, X: np.ndarray, y: np.ndarray) -> float:
    return float(metrics.rmse(y, model.predict(X)))


# Worker processes import this file; only the first process may start a cluster.
if __name__ == "__main__":
    main()
