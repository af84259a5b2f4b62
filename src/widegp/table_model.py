"""A fitted model together with the columns it was fitted on: tables in, predictions out."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from widegp.data.columns import TableEncoder, in_words
from widegp.data.errors import TableError, quoted, similar
from widegp.data.ranges import outside_range
from widegp.data.tables import TableSource, open_table
from widegp.estimator import WideGPRegressor
from widegp.held_out import HeldOut
from widegp.persist import ModelFileError, TablePart, load_with_table, save_model
from widegp.yardstick import measure

if TYPE_CHECKING:
    import pyarrow as pa

Report = Callable[[str, int, float, dict[str, np.ndarray]], None]

# Fewer training rows than this leave nothing to estimate from.
LEAST_ROWS = 3
LIBRARIES = ("widegp", "numpy", "scipy", "scikit-learn", "jax", "numba", "pyarrow")


class Predicted(NamedTuple):
    """Mean, standard deviation and interval of y per row, (q,) each, and what to warn of, counted.

    ``outside`` is True for a row with a number or date outside the training range: there the model
    extrapolates, and its intervals rest on the kernel alone.
    """

    mean: np.ndarray
    sd: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    warnings: Counter[str]
    outside: np.ndarray


@dataclass(frozen=True)
class Split:
    """A table as numbers: training rows X (n, I), y (n,), held-out rows X_test (q, I), y_test (q,)."""

    encoder: TableEncoder
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    warnings: Counter[str] = field(default_factory=Counter)


def split_table(
    table: pa.Table,
    target: str,
    drop: Sequence[str] = (),
    test_fraction: float = 0.1,
    seed: int = 0,
    missing: str = "impute",
) -> Split:
    """Hold out a random share of the rows and encode all by what the training rows show.

    The test rows are the first floor(n ``test_fraction``) of NumPy's default_rng(seed).permutation(n).
    """
    if not 0 <= test_fraction < 1:
        raise TableError(f"The test fraction is {test_fraction}; pass a number from 0 to below 1, e.g. 0.1.")
    n = table.num_rows
    order = np.random.default_rng(seed).permutation(n)
    count = int(n * test_fraction)
    test, train = np.sort(order[:count]), np.sort(order[count:])
    if len(train) < LEAST_ROWS:
        raise TableError(
            f"The table has {n} rows, which leaves {len(train)} to fit on;"
            f" pass a table with more rows (at least {LEAST_ROWS} to fit on)."
        )
    try:
        encoder = TableEncoder.fit(table.take(train), target, drop, missing)
    except TableError:
        # The whole table has the same fault, and its rows count as those of the file.
        TableEncoder.fit(table, target, drop, missing)
        raise
    y = encoder.target(table)
    if np.ptp(y[train]) == 0:
        raise TableError(f"The target {target!r} is {y[train[0]]:g} in every row; pass a column that varies.")
    # All rows at once, so that their numbers are right; training rows alone are never out of range.
    X, noticed = encoder.transform(table)
    return Split(encoder, X[train], y[train], X[test], y[test], noticed)


@dataclass(frozen=True)
class TableModel:
    """A regressor, the encoding of its table, its predictions of held-out rows, and where it comes from.

    encoder : from columns of a table to the inputs of the regressor.
    regressor : fitted on the training rows alone.
    held_out : predictions of the rows that were kept apart; None where there were none.
    provenance : versions, settings, seed, hash of the table, date, rows, seconds, peak memory, warnings.
    """

    encoder: TableEncoder
    regressor: WideGPRegressor
    held_out: HeldOut | None
    provenance: dict[str, Any]

    @classmethod
    def fit(
        cls,
        source: str | os.PathLike[str] | TableSource | pa.Table,
        target: str,
        drop: Sequence[str] = (),
        test_fraction: float = 0.1,
        seed: int = 0,
        missing: str = "impute",
        progress: Report | None = None,
        command: str | None = None,
        yardstick: bool = True,
        **settings: Any,
    ) -> Self:
        """Split the table, encode it, fit ``WideGPRegressor(**settings)`` and predict the held-out rows.

        ``progress`` is that of ``WideGPRegressor.fit``, called besides with iteration 0, no values and an
        objective of NaN as each other stage begins; ``command`` is kept for the record. ``yardstick``: fit
        gradient boosting beside it (seconds) and keep both held-out errors in ``provenance``.
        """
        began, date = time.perf_counter(), datetime.now(UTC)
        stage = _stages(progress)
        stage("reading the table")
        table, origin = read_table(source, target)
        stage("encoding the columns")
        split = split_table(table, target, drop, test_fraction, seed, missing)
        del table
        regressor = WideGPRegressor(random_state=seed, **settings)
        stage("choosing a start")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            regressor.fit(split.X, split.y, progress=progress)
            stage("predicting the held-out rows")
            held_out = HeldOut.of(regressor, split.X_test, split.y_test) if len(split.y_test) else None
        for w in caught:
            # Kept for the record below, they are still to be heard.
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
        beside = None
        if yardstick and held_out is not None:
            stage("gradient boosting beside it")
            train, test = (split.X, split.y), (split.X_test, split.y_test)
            beside = measure(train, test, held_out.mean, seed).to_dict()
        provenance = {
            "command": command,
            "date": date.isoformat(timespec="seconds"),
            "table": origin,
            "target": target,
            "drop": list(drop),
            "seed": seed,
            "test_fraction": test_fraction,
            "missing": missing,
            "settings": {k: v for k, v in settings.items() if k != "checkpoint"},
            "rows": len(split.y),
            "rows_held_out": len(split.y_test),
            "seconds": round(time.perf_counter() - began, 3),
            "peak_memory": peak_memory(),
            "warnings": _warned(split) + _news(caught),
            "yardstick": beside,
            "versions": versions(),
        }
        if regressor.approximation == "auto":
            # The settings above are what was asked for, and "auto" may take less.
            anchors = {} if regressor.approximation_ == "exact" else {"anchors": len(regressor.anchors_)}
            provenance["chosen"] = {"approximation": regressor.approximation_} | anchors
        return cls(split.encoder, regressor, held_out, provenance)

    @property
    def target(self) -> str:
        return str(self.provenance["target"])

    def predict_batch(self, batch: pa.RecordBatch | pa.Table, level: float = 0.95) -> Predicted:
        """Predictions for the rows of a batch; the interval is central, of probability ``level``.

        With ``conformal=True`` it is calibrated, as that of `Predictive.interval`.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1; got {level}.")
        X, noticed = self.encoder.transform(batch)
        if len(X) == 0:
            return Predicted(X[:, 0], X[:, 0], X[:, 0], X[:, 0], noticed, np.zeros(0, dtype=bool))
        predictive = self.regressor.predict_distribution(X)
        outside = outside_range(self.encoder.columns, X)
        return Predicted(predictive.mean, predictive.sd, *predictive.interval(level), noticed, outside)

    def inputs_held(self) -> np.ndarray:
        """Rows that the model holds anyway, in the units of its inputs: anchors, else training rows."""
        return self.regressor.fitted_.rows_held

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file, which `widegp.load` reads as well: it then gives the regressor alone."""
        text = {"encoder": self.encoder.to_dict(), "provenance": self.provenance}
        save_model(
            self.regressor, path, TablePart(text, {} if self.held_out is None else self.held_out.to_arrays())
        )

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], backend: str | None = None, predict_neighbors: int | None = None
    ) -> Self:
        """The model that ``save`` wrote; ``backend`` and ``predict_neighbors`` are by default as fitted."""
        regressor, (text, arrays) = load_with_table(path, WideGPRegressor, backend)
        if predict_neighbors is not None:
            regressor.fitted_ = regressor.fitted_.with_neighbors(predict_neighbors)
            regressor.predict_neighbors = predict_neighbors
        try:
            held_out = HeldOut.from_arrays(arrays) if arrays else None
            return cls(TableEncoder.from_dict(text["encoder"]), regressor, held_out, text["provenance"])
        except Exception as error:
            raise ModelFileError(
                f"The columns in {path} cannot be read ({error!r}); fit the model again."
            ) from error


def read_table(
    source: str | os.PathLike[str] | TableSource | pa.Table, target: str
) -> tuple[pa.Table, dict[str, Any]]:
    """The whole table, and where it comes from: its path and the hash of its bytes, if it is a file."""
    if isinstance(source, str | os.PathLike):
        source = open_table(source)
    if not isinstance(source, TableSource):
        return source, {"path": None, "sha256": None, "rows": source.num_rows}
    if target not in source.names:
        raise TableError(f"{source.path} has no column {quoted(target)}; {similar(target, source.names)}")
    table = source.read()
    return table, {"path": str(source.path), "sha256": source.sha256(), "rows": table.num_rows}


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that decide the digits of a fit."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def peak_memory() -> int | None:
    """The largest resident memory of this process so far, in bytes; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _stages(progress: Report | None) -> Callable[[str], None]:
    return lambda stage: progress(stage, 0, math.nan, {}) if progress else None


def _warned(split: Split) -> list[str]:
    """What is odd about the held-out rows, and inputs that look like row numbers."""
    out = [f"Held-out rows: {text}." for text in in_words(split.warnings)]
    for name in split.encoder.like_identifiers():
        out.append(
            f"{quoted(name)} holds whole numbers in order, all different: if it is an identifier, drop it."
        )
    return out


def _news(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """The texts of the warnings, each once; not what the result says itself, nor what is for developers."""
    quiet = (
        ConvergenceWarning,
        DeprecationWarning,
        PendingDeprecationWarning,
        FutureWarning,
        ResourceWarning,
    )
    return list(dict.fromkeys(str(w.message) for w in caught if not issubclass(w.category, quiet)))
