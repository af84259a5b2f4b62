"""GPBoost's Vecchia-inducing-points full-scale approximation on Superconductivity: its nearest to full-scale.

Inputs and target are standardised with the training rows, as the regressor does. Kernels: isotropic Matérn
3/2, nearest in smoothness to K_mix, and exponential.
"""

from __future__ import annotations

import time

import gpboost
import numpy as np
from peers_shared import scores
from tables import load

from widegp.machine import versions

PACKAGES = ("gpboost",)
RANK, NEIGHBORS, PREDICT_NEIGHBORS = 200, 30, (60, 400)
KERNELS = {"Matérn 3/2": ("matern", 1.5), "exponential": ("exponential", 0.5)}


def superconductivity(threads: int, limit: float) -> list[str]:
    """A line for each kernel and number of neighbours at prediction; no new kernel after ``limit`` s."""
    split = load("superconductivity")
    centre, spread = split.X.mean(0), split.X.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    X, X_test = (np.ascontiguousarray((rows - centre) / spread) for rows in (split.X, split.X_test))
    y = (split.y - split.y.mean()) / split.y.std()
    label = " ".join(f"{k} {v}" for k, v in versions(PACKAGES).items())
    lines, began = [], time.perf_counter()
    for name, (function, shape) in KERNELS.items():
        if time.perf_counter() - began > limit:
            break
        tick = time.perf_counter()
        model = gpboost.GPModel(
            gp_coords=X, cov_function=function, cov_fct_shape=shape, gp_approx="full_scale_vecchia",
            num_ind_points=RANK, num_neighbors=NEIGHBORS, num_parallel_threads=threads, seed=0,
        )  # fmt: skip
        model.fit(y=y)
        fitted = time.perf_counter() - tick
        for count in PREDICT_NEIGHBORS:
            tick = time.perf_counter()
            model.set_prediction_data(num_neighbors_pred=count)
            out = model.predict(gp_coords_pred=X_test, predict_var=True, predict_response=True)
            predicted = time.perf_counter() - tick
            mean, sd = out["mu"] * split.y.std() + split.y.mean(), np.sqrt(out["var"]) * split.y.std()
            found = scores(split.y_test, mean, sd, split.y.std())
            lines.append(
                f"{label} {name}, {count} neighbours to predict:"
                f" fit {fitted:.1f} s, predict {predicted:.1f} s, {found}"
            )
    return lines
