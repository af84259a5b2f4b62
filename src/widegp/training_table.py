"""What a fit is given, made ready: rows scaled, targets apart, some held out to calibrate intervals on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from widegp.conformal import set_aside
from widegp.data.input_maps import InputMap, fit_scaler
from widegp.data.stored import is_stored, read_stored


class TrainingTable(NamedTuple):
    """Scaled rows X (n, I), their targets y (n,), the scaler, and the held-out rows and targets, if any."""

    X: np.ndarray
    y: np.ndarray
    scaler: InputMap
    held: tuple[np.ndarray, np.ndarray] | None


def training_table(estimator: Any, X: Any, y: Any, seed: int) -> TrainingTable:
    """Checked and scaled; names of features are left on the estimator, what was in a file stays in one."""
    if is_stored(X):
        if estimator.conformal:
            raise ValueError("conformal=True needs the table in memory; pass NumPy arrays or a frame.")
        table = read_stored(X, y, _base_scaling(estimator))
        estimator.n_features_in_ = table.X.shape[1]
        estimator.__dict__.pop("feature_names_in_", None)
        if table.names is not None:
            estimator.feature_names_in_ = np.array(table.names, dtype=object)
        return TrainingTable(table.X, table.y, table.scaler, None)
    X, y = validate_data(estimator, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=1)
    X, y, held = np.ascontiguousarray(X), np.asarray(y, float), None
    if estimator.conformal:
        X, y, X_held, y_held = set_aside(X, y, seed)
        held = (X_held, y_held)
    scaler = fit_scaler(X, _base_scaling(estimator))
    return TrainingTable(scaler.transform(X), y, scaler, held)


def _base_scaling(estimator: Any) -> str | None:
    """The scaling that others, if any, are chosen in place of."""
    return "standard" if estimator.scale_inputs == "auto" else estimator.scale_inputs


def checked_rows(estimator: Any, X: ArrayLike) -> np.ndarray:
    """Rows to predict, (q, I), with the features that the fit saw."""
    return np.ascontiguousarray(validate_data(estimator, X, dtype=np.float64, reset=False))
