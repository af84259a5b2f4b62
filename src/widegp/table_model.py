"""A fitted model together with the columns it was fitted on: tables in, predictions out."""

from __future__ import annotations

import os
import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from widegp.data.columns import TableEncoding
from widegp.data.errors import quoted
from widegp.data.ranges import outside_range
from widegp.data.tables import TableError, TableSource, open_table
from widegp.data.target_kinds import TargetKind, coded, target_kind
from widegp.estimator import WideGPRegressor
from widegp.fitting import conditioned
from widegp.held_out import HeldOut, rootogram
from widegp.importance import ColumnStudy
from widegp.likelihoods.counts import Counts
from widegp.metrics import rmse
from widegp.notices import Notice, in_words
from widegp.persist import ModelFileError, TablePart, load_with_table, save_model
from widegp.progress import Listener, Progress
from widegp.sources import source_columns
from widegp.table_split import Split, TableSettings, split_table
from widegp.yardstick import measure, measure_classes

if TYPE_CHECKING:
    import pyarrow as pa

    from widegp.predictive import Predictive

# Rows of a table that are predicted at once.
BATCH_ROWS = 16384
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
    warnings: Counter[Notice]
    outside: np.ndarray


@dataclass(frozen=True)
class TableModel:
    """A regressor, the encoding of its table, its predictions of held-out rows, and where it comes from.

    encoder : from columns of a table to the inputs of the regressor.
    regressor : its parameters are estimated from the training rows; unless the held-out rows were to be kept
        apart, its predictions are conditioned on all rows.
    held_out : predictions of the rows that were kept apart, made before; None where there were none.
    provenance : versions, settings, seed, hash of the table, date, rows, seconds, peak memory, warnings.
    study : some held-out rows and what shuffling their columns does; None where there were fewer than two,
        or in files of earlier versions.
    """

    encoder: TableEncoding
    regressor: WideGPRegressor
    held_out: HeldOut | None
    provenance: dict[str, Any]
    study: ColumnStudy | None = None

    @classmethod
    def fit(
        cls,
        source: Any,
        target: str,
        *,
        progress: Listener | None = None,
        command: str | None = None,
        keep_held_out: bool = False,
        yardstick: bool = True,
        **settings: Any,
    ) -> Self:
        """Split the table, encode it, fit a `WideGPRegressor`, predict the held-out rows, condition on all.

        source : a path, a frame of pandas, polars or Dask, an Arrow table, or a `TableSource`.
        progress : as of ``WideGPRegressor.fit``, called besides as each other stage begins.
        command : kept for the record.
        keep_held_out : leave the held-out rows out of the saved model too.
        yardstick : fit gradient boosting beside it (seconds), keep both held-out errors in ``provenance``.
        A target of two values holds classes: the model then predicts the probability of the second
        (``classes``). Any other kind than what the column shows is asked for by ``likelihood``.

        settings : by name those of `TableSettings` (``drop``, ``test_fraction``, ``seed``, ``missing``,
            ``missing_target``) and `Reading` (``decimal``, ``thousands``, ``dates``, ``encoding``); all
            others are of the `WideGPRegressor`.
        """
        began, date = time.perf_counter(), datetime.now(UTC)

        def stage(name: str) -> None:
            if progress is not None:
                progress(Progress(name, seconds=time.perf_counter() - began))

        chosen = TableSettings.taken_from(settings, target=target)
        stage("reading the table")
        table = open_table(source, chosen.reading)
        kind = _kind(table, target, settings)
        if kind.classes is not None:
            table = coded(table, target, kind.classes)
        stage("encoding the columns")
        split = split_table(table, chosen)
        regressor = WideGPRegressor(random_state=chosen.seed, **settings)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            regressor.fit(split.X, split.y, progress=progress)
            held_out = None
            if len(split.y_test):
                stage("predicting the held-out rows")
                own_sd = None if settings["likelihood"] == "gaussian" else float(np.std(split.y))
                held_out = HeldOut.of(regressor, split.X_test, split.y_test, train_sd=own_sd)
                stage("shuffling the columns")
            study = _studied(regressor, split, chosen.seed)
        for w in caught:
            # Kept for the record below, they are still to be heard.
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
        beside = None
        if yardstick and held_out is not None:
            stage("gradient boosting beside it")
            train, test = (split.X, split.y), (split.X_test, split.y_test)
            make = measure if kind.classes is None else measure_classes
            beside = make(train, test, held_out.mean, chosen.seed).to_dict()
        scored = regressor
        if held_out is not None and not keep_held_out:
            stage("conditioning on all rows")
            regressor = recondition(scored, split.rows, split.targets)
        path = None if table.path is None else str(table.path)
        provenance = {
            "command": command,
            "date": date.isoformat(timespec="seconds"),
            "table": {"path": path, "sha256": table.sha256(), "rows": len(split.targets)},
            "target": target,
            "drop": list(chosen.drop),
            "seed": chosen.seed,
            "test_fraction": chosen.test_fraction,
            "missing": chosen.missing,
            "settings": {k: v for k, v in settings.items() if k != "checkpoint"},
            "rows": len(split.y),
            "rows_held_out": len(split.y_test),
            "rows_conditioned_on": len(split.y if regressor is scored else split.targets),
            "seconds": round(time.perf_counter() - began, 3),
            "peak_memory": peak_memory(),
            "warnings": [kind.words] * bool(kind.words) + _warned(split) + _news(caught),
            "yardstick": beside if kind.classes is None else None,
            "versions": versions(),
        }
        if kind.classes is not None:
            provenance |= {"classes": list(kind.classes), "beside": beside}
        if (counted := _rootogram(scored, split)) is not None:
            provenance["rootogram"] = counted
        if regressor.approximation == "auto":
            # The settings above are what was asked for, and "auto" may take less.
            anchors = {} if regressor.approximation_ == "exact" else {"anchors": len(regressor.anchors_)}
            provenance["chosen"] = {"approximation": regressor.approximation_} | anchors
        return cls(split.encoder, regressor, held_out, provenance, study)

    @property
    def target(self) -> str:
        return str(self.provenance["target"])

    @property
    def classes(self) -> tuple[str, str] | None:
        """The classes of the target, where it has such; predictions are probabilities of the second."""
        found = self.provenance.get("classes")
        return None if found is None else tuple(found)

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
        lower, upper = predictive.interval(level)
        return Predicted(predictive.mean, predictive.sd, lower, upper, noticed, outside)

    def predict_distribution(self, table: Any) -> Predictive:
        """The distribution of the target at the rows of anything that ``fit`` takes.

        What is odd about the rows is one warning.
        """
        encoded = [self.encoder.transform(batch) for batch in open_table(table).batches(BATCH_ROWS)]
        noticed = sum((odd for _, odd in encoded), Counter[Notice]())
        if noticed:
            warnings.warn("; ".join(in_words(noticed)) + ".", UserWarning, stacklevel=2)
        return self.regressor.predict_distribution(np.concatenate([X for X, _ in encoded]))

    def predict(self, table: Any) -> np.ndarray:
        """Mean of the target, (q,)."""
        return self.predict_distribution(table).mean

    def predict_interval(self, table: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central interval that a new target falls into with probability ``level``, (q,) each."""
        return self.predict_distribution(table).interval(level)

    def score(self, table: Any) -> float:
        """R2 = 1 - MSE / variance of the target at the rows that have one, as scikit-learn's.

        Of classes, the share of rows whose likelier class came.
        """
        source = open_table(table)
        source = source if self.classes is None else coded(source, self.target, self.classes)
        y = np.concatenate([self.encoder.target(batch) for batch in source.batches(columns=[self.target])])
        here = ~np.isnan(y)
        if self.classes is not None:
            return float(np.mean((self.predict(source)[here] > 0.5) == (y[here] == 1)))
        return 1 - rmse(y[here], self.predict(source)[here]) ** 2 / float(np.var(y[here]))

    def inputs_held(self) -> np.ndarray:
        """Rows that the model holds, in the units of its inputs: held out, else anchors or training rows."""
        return self.regressor.fitted_.rows_held if self.study is None else self.study.X

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file, which `widegp.load` reads as well: it then gives the regressor alone."""
        text = {"encoder": self.encoder.to_dict(), "provenance": self.provenance}
        arrays = {} if self.held_out is None else self.held_out.to_arrays()
        if self.study is not None:
            text["ranking"], arrays["study_X"] = self.study.ranking, self.study.X
        save_model(self.regressor, path, TablePart(text, arrays))

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
            study = ColumnStudy(arrays["study_X"], text["ranking"]) if "study_X" in arrays else None
            encoder = TableEncoding.from_dict(text["encoder"])
            return cls(encoder, regressor, held_out, text["provenance"], study)
        except Exception as error:
            raise ModelFileError(
                f"The columns in {path} cannot be read ({error!r}); fit the model again."
            ) from error


def _kind(table: TableSource, target: str, settings: dict[str, Any]) -> TargetKind:
    """What the target holds; its likelihood goes to ``settings`` unless they name one."""
    kind = target_kind(table, target)
    asked = settings.setdefault("likelihood", kind.likelihood)
    if asked not in ("logit", "probit"):
        return TargetKind(asked, None, kind.words if asked == "gaussian" and kind.classes is None else "")
    if kind.classes is None:
        raise TableError(f"likelihood={asked!r} is of two classes; target {quoted(target)} has none.")
    return kind


def recondition(regressor: WideGPRegressor, X: np.ndarray, y: np.ndarray) -> WideGPRegressor:
    """The same estimates given all rows X (n, I), y (n,), of which ``regressor`` has seen a part."""
    again = clone(regressor)
    vars(again).update(vars(regressor))
    again.fitted_ = conditioned(regressor, regressor.fitted_, X, y)
    return again if again.fitted_ is not regressor.fitted_ else regressor


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


def _studied(regressor: WideGPRegressor, split: Split, seed: int) -> ColumnStudy | None:
    """By the model that was scored: one that has seen these rows would make columns look needed."""
    if len(split.y_test) < 2:
        return None
    sources = source_columns(split.encoder)
    return ColumnStudy.of(regressor.fitted_, split.X_test, split.y_test, sources, seed)


def _rootogram(regressor: WideGPRegressor, split: Split) -> dict[str, Any] | None:
    """Held-out counts beside what is expected of them; None for other targets."""
    if not isinstance(regressor.fitted_.likelihood, Counts) or not len(split.y_test):
        return None
    return rootogram(regressor.predict_distribution(split.X_test), split.y_test)


def _warned(split: Split) -> list[str]:
    """What is odd about the rows, and inputs that look like row numbers."""
    about = {n: c for n, c in split.warnings.items() if n.kind != "no target"}
    out = [f"Held-out rows: {text}." for text in in_words(Counter(about))]
    out += [f"{n.words(c)}." for n, c in split.warnings.items() if n.kind == "no target" and c]
    alone = len(split.encoder.input_names) == 1
    for column in split.encoder.columns:
        ordered = [notice for notice in column.notes if notice.kind == "in order" and not alone]
        out += [f"{quoted(column.name)}: {notice.words()}." for notice in ordered]
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
