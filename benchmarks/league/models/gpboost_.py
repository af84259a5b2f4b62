"""GPBoost's Gaussian process: Vecchia's approximation, a length for each input."""

from __future__ import annotations

import gpboost
import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.league.distributions import Gaussian
from benchmarks.league.models import Limits, Predict
from benchmarks.league.tables import Task

NEIGHBORS = 20


def numbers(task: Task, limits: Limits) -> Predict:
    X, X_test = task.numbers
    # A column that does not vary has no length.
    varies = X.std(axis=0) > 0
    scaler = StandardScaler().fit(X[:, varies])
    centre, scale = float(np.mean(task.y)), float(np.std(task.y))
    model = gpboost.GPModel(
        gp_coords=scaler.transform(X[:, varies]), cov_function="matern_ard", cov_fct_shape=1.5,
        gp_approx="vecchia", num_neighbors=NEIGHBORS, likelihood="gaussian", seed=limits.seed,
        num_parallel_threads=limits.threads,
    )  # fmt: skip
    model.fit(y=(task.y - centre) / scale)

    def predict() -> Gaussian:
        new = scaler.transform(X_test[:, varies])
        found = model.predict(gp_coords_pred=new, predict_var=True, predict_response=True)
        return Gaussian(centre + scale * found["mu"], scale * np.sqrt(found["var"]))

    return predict
