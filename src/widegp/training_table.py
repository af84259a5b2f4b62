"""What a fit is given, made ready: rows scaled, targets apart, some held out to calibrate intervals on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import _check_sample_weight, validate_data

from widegp.conformal import hold_out
from widegp.data.input_maps import InputMap, fit_scaler
from widegp.data.stored import USE_TABLE_MODEL, is_stored, read_stored

# Parts of the names of the types of columns that are numbers, in pandas and polars.
NUMBER_TYPES = ("int", "float", "double", "bool", "decimal")


class AboutRows(NamedTuple):
    """What is known of each row beside inputs and target, (n,) each, or None: how often it was seen, the
    variance of its noise, and a part of its latent function.
    """

    weight: Any = None
    noise: Any = None
    offset: np.ndarray | None = None


NOTHING_KNOWN = AboutRows()


class TrainingTable(NamedTuple):
    """Scaled rows X (n, I), their targets y (n,), the scaler, the held-out rows and targets, if any, and what
    is known of each row: how often it was seen, weight (n,), and the variance of its noise, noise (n,).
    ``fitted`` are the rows of the table as it was given that these are.
    """

    X: np.ndarray
    y: np.ndarray
    scaler: InputMap
    held: tuple[np.ndarray, np.ndarray] | None
    weight: np.ndarray | None = None
    noise: np.ndarray | None = None
    fitted: np.ndarray | slice = slice(None)

    def merged(self) -> TrainingTable:
        """Rows that repeat, target and noise included, as one row with the sum of their weights, sorted; the
        table itself where none repeats and none has a weight.

        So a weight of k gives the very fit that k equal rows give. Kept apart, equal rows with equal targets
        pull the noise to 0, where their covariance is singular and losses keep but seven digits.
        """
        columns = [self.X, self.y] if self.noise is None else [self.X, self.noise, self.y]
        first, weight = repeats(columns, self.weight)
        if self.weight is None and len(first) == len(self.y):
            return self
        noise = None if self.noise is None else self.noise[first]
        fitted = first if isinstance(self.fitted, slice) else self.fitted[first]
        return self._replace(X=self.X[first], y=self.y[first], weight=weight, noise=noise, fitted=fitted)


def repeats(columns: list[np.ndarray], weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The first of the rows that are equal in all ``columns``, sorted by these, and their weights' sum."""
    both = np.column_stack(columns)
    _, first, inverse = np.unique(both, axis=0, return_index=True, return_inverse=True)
    return first, np.bincount(inverse.ravel(), weights=weight).astype(float)


def training_table(
    estimator: Any, X: Any, y: Any, seed: int, about: AboutRows = NOTHING_KNOWN
) -> TrainingTable:
    """Checked and scaled; names of features are left on the estimator, what was in a file stays in one.

    Rows of weight 0 are left out. Where an offset is known, rows in memory that repeat become one before they
    are scaled: a weight of k then gives the fit of k equal rows to the last digit.
    """
    weight, noise, offset = about
    if is_stored(X):
        if weight is not None or noise is not None:
            raise ValueError("sample_weight and noise_variance need the table in memory; pass arrays.")
        if estimator.conformal:
            raise ValueError("conformal=True needs the table in memory; pass NumPy arrays or a frame.")
        table = read_stored(X, y, base_scaling(estimator))
        estimator.n_features_in_ = table.X.shape[1]
        estimator.__dict__.pop("feature_names_in_", None)
        if table.names is not None:
            estimator.feature_names_in_ = np.array(table.names, dtype=object)
        return TrainingTable(table.X, table.y, table.scaler, None)
    _check_columns(X)
    if _holds_words(y):
        raise ValueError("The target holds text; use WideGPClassifier, or pass numbers.")
    X, y = validate_data(estimator, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=1)
    X, y, held = np.ascontiguousarray(X), np.asarray(y, float), None
    noise = None if noise is None else _noise(noise, len(y))
    fitted = np.arange(len(y))
    if weight is not None:
        weight = _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
        fitted = np.flatnonzero(weight > 0)
    if estimator.conformal:
        kept, held_out = (fitted[part] for part in hold_out(len(fitted), seed))
        held, fitted = (X[held_out], y[held_out]), kept
    if len(fitted) < len(y):
        X, y = X[fitted], y[fitted]
        weight, noise = (None if part is None else part[fitted] for part in (weight, noise))
    if offset is not None:
        first, weight = repeats([X, offset[fitted], y], weight)
        X, y, fitted = X[first], y[first], fitted[first]
    scaler = fit_scaler(X, base_scaling(estimator), weight)
    return TrainingTable(scaler.transform(X), y, scaler, held, weight, noise, fitted)


def new_rows(estimator: Any, X: Any, y: Any, weight: Any = None, noise: Any = None) -> tuple[Any, ...]:
    """X (q, I), y (q,) or (q, T), weight and noise (q,) or None, checked as `training_table` does, of rows
    that have the features which the fit saw. Rows of weight 0 are left out.
    """
    _check_columns(X)
    several = isinstance(estimator.fitted_, tuple)
    X, y = validate_data(
        estimator, X, y, dtype=np.float64, y_numeric=True, reset=False, multi_output=several
    )
    outputs = len(estimator.fitted_) if several else 1
    if several and (y.ndim != 2 or y.shape[1] != outputs):
        raise ValueError(f"y has shape {y.shape}; the model has {outputs} outputs, pass a column for each.")
    X, y = np.ascontiguousarray(X), np.asarray(y, float)
    noise = None if noise is None else _noise(noise, len(y))
    if weight is None:
        return X, y, None, noise
    weight = _check_sample_weight(weight, X, dtype=np.float64, ensure_non_negative=True)
    kept = weight > 0
    return X[kept], y[kept], weight[kept], None if noise is None else noise[kept]


def _noise(noise: Any, n_rows: int) -> np.ndarray:
    """Known noise variances, one for each row or one for all, positive and finite."""
    noise = np.broadcast_to(np.asarray(noise, float), (n_rows,))
    if not np.all(np.isfinite(noise) & (noise > 0)):
        row = int(np.flatnonzero(~(np.isfinite(noise) & (noise > 0)))[0])
        raise ValueError(f"noise_variance is {noise[row]} in row {row}; pass positive variances of y.")
    return noise


def base_scaling(estimator: Any) -> str | None:
    """The scaling that others, if any, are chosen in place of."""
    return "bounded" if estimator.scale_inputs == "auto" else estimator.scale_inputs


def n_outputs(y: Any) -> int:
    """The columns of y, 1 where it has one dimension; a stored or lazy y is asked for its shape alone."""
    shape = getattr(y, "shape", None)
    shape = np.asarray(y).shape if shape is None else shape
    return int(shape[1]) if len(shape) == 2 else 1


def checked_rows(estimator: Any, X: ArrayLike) -> np.ndarray:
    """Rows to predict, (q, I), with the features that the fit saw."""
    _check_columns(X)
    return np.ascontiguousarray(validate_data(estimator, X, dtype=np.float64, reset=False))


def _check_columns(X: Any) -> None:
    """Refuse frames with columns of text, dates or categories in one sentence; scikit-learn checks arrays."""
    types = getattr(X, "dtypes", None)
    if types is None or not hasattr(X, "columns"):
        return
    for name, kind in zip(X.columns, types, strict=True):
        kind = getattr(getattr(kind, "categories", None), "dtype", kind)
        if not any(word in str(kind).lower() for word in NUMBER_TYPES) and str(kind) != "object":
            raise ValueError(f"Column {name!r} holds {kind} values, no numbers; {USE_TABLE_MODEL}")
        if str(kind) == "object" and any(isinstance(value, str) for value in X[name]):
            raise ValueError(f"Column {name!r} holds text, no numbers; {USE_TABLE_MODEL}")


def _holds_words(y: Any) -> bool:
    """Whether y is text that is no number."""
    values = np.asarray(y)
    if values.dtype.kind not in "US" and not (values.dtype == object and isinstance(values.flat[0], str)):
        return False
    try:
        values.astype(float)
    except ValueError:
        return True
    return False
