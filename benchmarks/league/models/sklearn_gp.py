"""scikit-learn's Gaussian processes, on a subset of the rows."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.league.distributions import Gaussian
from benchmarks.league.models import Limits, Predict
from benchmarks.league.tables import Task

MOST_ROWS, CLASS_ROWS = 2_000, 500
# Its gradient is an array of rows x rows x inputs.
GRADIENT_BYTES = 5e8


def _subset(task: Task, limits: Limits, most: int) -> np.ndarray:
    inputs = task.numbers[0].shape[1]
    count = min(len(task.y), most, int(np.sqrt(GRADIENT_BYTES / (8 * inputs))))
    return np.random.default_rng(limits.seed).permutation(len(task.y))[:count]


def numbers(task: Task, limits: Limits) -> Predict:
    X, X_test = task.numbers
    rows = _subset(task, limits, MOST_ROWS)
    scaler = StandardScaler().fit(X)
    kernel = ConstantKernel() * Matern(np.ones(X.shape[1]), (1e-2, 1e4), nu=2.5) + WhiteKernel(0.1)
    restarts = 1 if len(rows) <= 500 else 0
    model = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=restarts, random_state=limits.seed
    )
    with warnings.catch_warnings():
        # Lengths at their bounds are inputs that do not matter.
        warnings.simplefilter("ignore")
        model.fit(scaler.transform(X[rows]), task.y[rows])
    return lambda: Gaussian(*model.predict(scaler.transform(X_test), return_std=True))


def classes(task: Task, limits: Limits) -> Predict:
    X, X_test = task.numbers
    rows = _subset(task, limits, CLASS_ROWS)
    kernel = ConstantKernel() * Matern(np.ones(X.shape[1]), (1e-2, 1e4), nu=2.5)
    model = make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=limits.seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[rows], task.y[rows])
    return lambda: model.predict_proba(X_test)[:, 1]
