"""Several outputs of one table: inputs and metric are shared, all else is each output's own.

The metric is the law of the hidden weights of a network with T outputs, and what is dear to choose. It is
chosen and learned by regression of the first principal component of the standardised outputs. Each output is
then a table of one target with these inputs: kernel parameters, warp, noise and tails are its own, since
outputs of one table differ in them as much as tables do.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from widegp.choices.chosen import LEAST_ROWS
from widegp.data.input_maps import ChainedMaps, fit_scaler
from widegp.fitted import FittedGP
from widegp.fitting import check_settings, choices_of, fit_gaussian, shared_maps
from widegp.inference.watch import Watch
from widegp.progress import Listener, print_line
from widegp.training_table import TrainingTable

NEEDED = {
    "conformal": False, "optimizer": "lbfgs", "start": None, "batch_rows": None, "checkpoint": None,
    "likelihood": "gaussian",
}  # fmt: skip


def fit_outputs(
    asked: Any, X: ArrayLike, Y: ArrayLike, progress: Listener | None = None
) -> tuple[FittedGP, ...]:
    """The models of the columns of Y (n, T), with the same inputs and metric."""
    check_settings(asked)
    for name, value in NEEDED.items():
        if getattr(asked, name) not in (value, "auto"):
            raise ValueError(f"Several outputs need {name}={value!r}; fit them one by one, or change it.")
    X, Y = validate_data(asked, X, Y, dtype=np.float64, y_numeric=True, multi_output=True)
    X, Y = np.ascontiguousarray(X), np.asarray(Y, float)
    seed = int(check_random_state(asked.random_state).randint(2**31 - 1))
    watch = Watch(tuple(f for f in (progress, print_line if asked.verbose else None) if f is not None))
    scaler = fit_scaler(X, "standard" if asked.scale_inputs == "auto" else asked.scale_inputs, None)
    rows, notes, each = scaler.transform(X), (), copy(asked)
    choices = choices_of(asked)._replace(warp="none", noise="constant")
    if choices.open and choices.metric != "ard" and len(Y) >= LEAST_ROWS and asked.budget is None:
        table = TrainingTable(rows, leading(Y), scaler, None)
        maps, notes = shared_maps(asked, table, choices, seed, watch)
        scaler = ChainedMaps((scaler, *maps)) if maps else scaler
        rows = np.ascontiguousarray(scaler.transform(X))
        each.scale_inputs, each.metric = None, "iso"
    if asked.budget is not None:
        each.budget = asked.budget / Y.shape[1]
    tables = (TrainingTable(rows, np.ascontiguousarray(y), scaler, None) for y in Y.T)
    return tuple(fit_gaussian(each, table, seed, watch).noted(*notes) for table in tables)


def leading(Y: np.ndarray) -> np.ndarray:
    """The first principal component of the standardised columns of Y (n, T), (n,)."""
    sd = Y.std(axis=0)
    Z = (Y - Y.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    return np.asarray(np.linalg.svd(Z, full_matrices=False)[0][:, 0] * np.sqrt(len(Z)))
