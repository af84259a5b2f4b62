"""The encoding of a table's columns as a scikit-learn transformer, for pipelines."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from widegp.data.columns import RowsToLearn, Survey, TableEncoding, learn, survey
from widegp.data.errors import Problems
from widegp.data.kinds import LeftOutMeans
from widegp.data.tables import TableSource, open_table
from widegp.data.text import Reading
from widegp.notices import Notice, in_words


class TableEncoder(TransformerMixin, BaseEstimator):
    """X of any types, to numbers: see `widegp.data.kinds` for what becomes of each kind of column.

    Takes frames of pandas, polars and Dask, Arrow tables, and paths. With a target, a column of more than 12
    levels becomes the mean of the target at its level; ``fit_transform`` then gives each row the mean over
    rows of other folds, so that no row sees its own target, and ``transform`` that over all rows.

    Parameters
    ----------
    drop : columns to leave out.
    missing : ``"impute"`` fills gaps and flags them, ``"refuse"`` raises.
    decimal, thousands, dates : how text is written, see `widegp.data.text.Reading`; by default found out.
    random_state : seed of the folds.

    Attributes
    ----------
    encoding_ : the fitted `TableEncoding`, whose ``summary()`` says what became of each column.
    feature_names_in_, n_features_in_ : the columns that were fitted.
    """

    def __init__(
        self, drop: Sequence[str] = (), missing: str = "impute", decimal: str | None = None,
        thousands: str | None = None, dates: str | None = None, random_state: int = 0,
    ) -> None:  # fmt: skip
        self.drop = drop
        self.missing = missing
        self.decimal = decimal
        self.thousands = thousands
        self.dates = dates
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn kinds, levels, ranges and medians from the rows of X, and means of y (n,) by level."""
        self._fit(_opened(X), y)
        return self

    def fit_transform(self, X: Any, y: Any = None, **_: Any) -> np.ndarray:
        """(n, I): as ``fit`` and ``transform``, but means of the target come from rows of other folds."""
        source = _opened(X)
        rows, means = self._fit(source, y)
        parts, at = [], 0
        for batch in source.batches():
            folds = np.empty(0, int) if rows is None else rows.folds[at : at + batch.num_rows]
            here = {name: found._replace(folds=folds) for name, found in means.items()}
            parts.append(self.encoding_.transform(batch, here)[0])
            at += batch.num_rows
        return np.concatenate(parts)

    def transform(self, X: Any) -> np.ndarray:
        """(n, I) float64, all finite; what is odd about the rows is one warning."""
        check_is_fitted(self, "encoding_")
        encoded = [self.encoding_.transform(batch) for batch in _opened(X).batches()]
        noticed = sum((odd for _, odd in encoded), Counter[Notice]())
        if noticed:
            warnings.warn("; ".join(in_words(noticed)) + ".", UserWarning, stacklevel=2)
        return np.concatenate([part for part, _ in encoded])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """(I,) names; ``input_features`` is there for scikit-learn and not looked at."""
        check_is_fitted(self, "encoding_")
        return np.array(self.encoding_.feature_names, dtype=object)

    def _fit(self, source: TableSource, y: Any) -> tuple[RowsToLearn | None, dict[str, LeftOutMeans]]:
        problems = Problems()
        reading = Reading(self.decimal, self.thousands, self.dates)
        found: Survey = survey(source, None, tuple(self.drop), reading, problems)
        rows = None
        if y is not None and np.asarray(y).dtype.kind in "biuf":
            target = np.asarray(y, float)
            if target.ndim != 1:
                raise ValueError(f"y has shape {target.shape}; pass one number for each row, (n,).")
            if source.n_rows not in (None, len(target)):
                raise ValueError(f"y has {len(target)} numbers and X {source.n_rows} rows; pass as many.")
            rows = RowsToLearn.of(np.isfinite(target), target, self.random_state)
        encoding, means = learn(source, found, None, self.missing, problems, rows)
        problems.raise_all()
        self.encoding_: TableEncoding = encoding
        self.feature_names_in_ = np.array(source.names, dtype=object)
        self.n_features_in_ = len(source.names)
        return rows, means


def _opened(X: Any) -> TableSource:
    """Arrays have no names: their columns are called 0, 1, ..."""
    if isinstance(X, np.ndarray) and X.ndim == 2:
        import pyarrow as pa

        from widegp.data.frames import of_objects

        X = pa.table({str(j): of_objects(X[:, j].tolist()) for j in range(X.shape[1])})
    return open_table(X)
