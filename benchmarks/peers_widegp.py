"""The same objective here: the `vfe` likelihood with given anchors, and the regressor's fit."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from peers_shared import INPUTS, Task, Trace, Values, scores
from tables import load

from widegp.approximations.evaluation import Observed
from widegp.kernels import Mixed
from widegp.machine import versions
from widegp.measure import Setting, likelihood
from widegp.progress import Progress

PACKAGES = ("widegp", "numba")


def use_threads(count: int) -> None:
    import numba

    numba.set_num_threads(count)


class Model:
    """-log of the bound of Titsias (2009), as a sum over rows, at the given parameters."""

    def __init__(self, task: Task, values: Values) -> None:
        self.kernel = Mixed(**{k: v for k, v in values.items() if k != "sigma_eps2"})
        self.noise = values["sigma_eps2"]
        self.builder, built = likelihood(task.X, self.kernel, Setting("vfe", len(task.Z)))
        self.observed, self.family = Observed(task.y, self.noise), replace(built, Z=task.Z)

    def evaluate(self) -> tuple[float, Values]:
        """The objective and its gradient by the parameters themselves."""
        with self.builder.backend.scope():
            out = self.family.evaluate(self.kernel, self.observed)
        return out.value, {k: float(v) for k, v in out.gradient.items()}


def fit(task: Task, trace: Trace) -> tuple[Any, float]:
    """`WideGPRegressor` as a user calls it, anchors and curvature included; the noise that it starts from."""
    from widegp import WideGPRegressor

    model = WideGPRegressor.plain(approximation="vfe", rank=len(task.Z), scale_inputs=None, random_state=0)

    def progress(event: Progress) -> None:
        # Iterations over a part of the rows have objectives of their own.
        if event.stage == "whole" and event.iteration > 0:
            trace.record(event.objective)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace.began = time.perf_counter()
        model.fit(task.X, task.y, progress=progress)
    # The start that a part of the rows gave may need no iteration over the whole table.
    trace.record(-model.log_posterior_)
    trace.ended, trace.evaluations = str(model.result_.reason), model.result_.n_evaluations
    noise = model.noise_fraction * np.mean(Mixed(sigma_u2=1 / INPUTS).diag(task.X[:10_000]))
    return model, float(noise)


def superconductivity(threads: int, limit: float) -> list[str]:
    """The regressor with the settings of accuracy.py, seed 0."""
    from widegp import WideGPRegressor

    split = load("superconductivity")
    use_threads(threads)
    tick = time.perf_counter()
    model = WideGPRegressor.plain(approximation="full-scale", rank=200, neighbors=30, random_state=0)
    model.fit(split.X, split.y)
    fitted = time.perf_counter()
    mean, sd = model.predict(split.X_test, return_std=True)
    predicted = time.perf_counter() - fitted
    found = scores(split.y_test, mean, sd, split.y.std())
    label = " ".join(f"{k} {v}" for k, v in versions(PACKAGES[:1]).items())
    return [
        f"{label} full-scale K_mix, {model.predict_neighbors} neighbours to predict:"
        f" fit {fitted - tick:.1f} s, predict {predicted:.1f} s, {found} ({model.result_.reason})"
    ]
