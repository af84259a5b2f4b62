"""Sets of classes for a classifier: rows kept apart from its fit say how large they must be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from widegp.conformal import ClassCalibration, hold_out
from widegp.progress import Listener


class SetsMixin:
    """`predict_set` of a classifier with ``predict_proba`` and ``calibration_``."""

    calibration_: ClassCalibration | None

    def predict_set(self, X: ArrayLike, level: float = 0.95) -> np.ndarray:
        """Which classes, columns as in ``classes_``, the set of each row of X (q, I) holds: booleans (q, C).

        A new row's class is in its set with probability ``level`` or more, whatever the model gets wrong, if
        new rows are like those kept apart with ``conformal=True``; see `widegp.conformal`.
        """
        check_is_fitted(self, "fitted_")
        if self.calibration_ is None:
            raise ValueError("There are no rows to size the sets by; fit with conformal=True.")
        return self.calibration_.sets(self.predict_proba(X), level)  # type: ignore[attr-defined]


def fit_apart(
    model: Any, X: Any, y: Any, sample_weight: ArrayLike | None, progress: Listener | None = None
) -> Any:
    """``model`` fitted to some of the rows, its sets calibrated on the others: `hold_out` says which.

    Weights count in the fit; for the calibration a row is a row.
    """
    X, y = validate_data(model, X, y, dtype=np.float64)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
    seed = int(check_random_state(model.random_state).randint(2**31 - 1))
    kept, apart = hold_out(len(y), seed)
    inner = clone(model).set_params(conformal=False, random_state=seed)
    inner.fit(X[kept], y[kept], None if sample_weight is None else weight[kept], progress=progress)
    vars(model).update({name: value for name, value in vars(inner).items() if name.endswith("_")})
    places = np.searchsorted(model.classes_, y[apart]).clip(0, len(model.classes_) - 1)
    known = model.classes_[places] == y[apart]
    p = model.predict_proba(X[apart])
    model.calibration_ = ClassCalibration.fit(p, np.where(known, places, -1))
    return model
