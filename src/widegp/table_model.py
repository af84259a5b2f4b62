"""A fitted model together with the columns it was fitted on: tables in, predictions out."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone

from widegp.command_time import BOOSTING, CONDITIONING, PREDICTING, SHUFFLING, AfterFit, CommandTime
from widegp.conformal import check_level
from widegp.data.columns import TableEncoding
from widegp.data.errors import quoted
from widegp.data.ranges import outside_range
from widegp.data.tables import TableError, open_table
from widegp.estimator import WideGPRegressor, unfitted
from widegp.held_out import HeldOut, HeldOutClasses
from widegp.importance import LEAST_ROWS, ColumnStudy, Sample
from widegp.notices import Notice, in_words
from widegp.persist import ModelFileError, TablePart, load_with_table, save_model
from widegp.progress import Listener
from widegp.provenance import (
    news,
    of_choice,
    of_machine,
    of_split,
    of_table,
    remarks,
    rows_known,
    warned,
)
from widegp.report.formatting import plain
from widegp.sources import source_columns
from widegp.table_split import Split, TableSettings, split_table
from widegp.table_targets import TableTarget, observed, target_from, target_of

if TYPE_CHECKING:
    import pyarrow as pa

    from widegp.classifier import WideGPClassifier
    from widegp.fitted import FittedGP
    from widegp.predictive import Predictive

NO_YARDSTICK: Mapping[str, Any] = MappingProxyType({"yardstick": None})
# Rows of a table that are predicted at once.
BATCH_ROWS = 16384


class Columns(NamedTuple):
    """What is predicted of the rows of a batch, by the names of new columns, and as of `Predicted` the rest.

    A number has mean, sd, lower and upper; several outputs have each of these with the name of the output
    in front; classes have class, the likeliest, a probability for each, and set, those that it holds.
    """

    columns: dict[str, Any]
    warnings: Counter[Notice]
    outside: np.ndarray


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
    """An estimator, the encoding of its table, its predictions of held-out rows, and where it comes from.

    encoder : from columns of a table to the inputs of the estimator.
    regressor : its parameters are estimated from the training rows; unless the held-out rows were to be kept
        apart, its predictions are conditioned on all rows. Of classes it is a `WideGPClassifier`, which has
        seen the training rows alone.
    held_out : predictions of the rows that were kept apart, made before; None where there were none. Of
        several outputs there is one for each.
    provenance : versions, settings, seed, hash of the table, date, rows, seconds, peak memory, warnings.
    study : some held-out rows and what shuffling their columns does; None where there were fewer than two,
        or in files of earlier versions.
    """

    encoder: TableEncoding
    regressor: WideGPRegressor | WideGPClassifier
    held_out: HeldOut | HeldOutClasses | tuple[HeldOut, ...] | None
    provenance: dict[str, Any]
    study: ColumnStudy | None = None

    @classmethod
    def fit(
        cls,
        source: Any,
        target: str | Sequence[str],
        *,
        progress: Listener | None = None,
        command: str | None = None,
        keep_held_out: bool = False,
        yardstick: bool = True,
        **settings: Any,
    ) -> Self:
        """Split the table, encode it, fit an estimator, predict the held-out rows, condition on all.

        target : a column, or several: outputs of one model, which share inputs and metric.
        source : a path, a frame of pandas, polars or Dask, an Arrow table, or a `TableSource`.
        progress : as of ``WideGPRegressor.fit``, called besides as each other stage begins.
        command : kept for the record.
        keep_held_out : leave the held-out rows out of the saved model too.
        yardstick : fit gradient boosting beside it (seconds), keep both held-out errors in ``provenance``.
        A target of two values, of words or of a category holds classes: the model is then a
        `WideGPClassifier`. Any other kind than what the column shows is asked for by ``likelihood``.

        settings : by name those of `TableSettings` (``drop``, ``test_fraction``, ``seed``, ``group``,
            ``missing``, ``missing_target``) and `Reading` (``decimal``, ``thousands``, ``dates``,
            ``encoding``); all others are of the `WideGPRegressor`.
        """
        stage, date = CommandTime(progress, settings.get("budget")), datetime.now(UTC)
        first, *further = [target] if isinstance(target, str) else target
        chosen = TableSettings.taken_from(settings, target=first, further=tuple(further))
        stage("reading the table")
        table = open_table(source, chosen.reading)
        predicted = target_of(table, (first, *further), settings)
        stage("encoding the columns")
        split = split_table(predicted.read(table), chosen)
        predicted.check(split, settings)
        columns = len(split.encoder.input_names)
        neighbors = settings.get("predict_neighbors", 400)
        stage.expect(split.X.shape, AfterFit(len(split.y_test), columns, neighbors), settings)
        for_the_fit = {} if stage.budget is None else {"budget": stage.for_the_fit()}
        with recorded_warnings() as caught:
            asked = settings | for_the_fit | {"random_state": chosen.seed}
            regressor = predicted.fitted(split, asked, stage.fitting)
            split = stage.thinned(split, partial(predicted.mean, regressor), chosen.seed)
            found = Scored.of(predicted, regressor, split, chosen.seed, stage)
        beside = found.beside(predicted, split, chosen.seed, stage) if yardstick else NO_YARDSTICK
        given = regressor if keep_held_out else found.conditioned(predicted, regressor, split, stage)
        provenance = plain({
            "command": command,
            "date": date.isoformat(timespec="seconds"),
            "table": of_table(table, len(split.targets)),
            "settings": {k: v for k, v in settings.items() if k != "checkpoint"},
            "rows_conditioned_on": rows_known(given, len(split.y if given is regressor else split.targets)),
            "seconds": round(stage.spent, 3),
            "warnings": [predicted.words] * bool(predicted.words) + warned(split) + news(caught),
            "remarks": remarks(split, regressor),
            **of_split(split, chosen), **beside, **predicted.told(), **found.noted, **of_choice(given),
            **({"notations": list(split.notations)} if any(split.notations) else {}),
            **of_machine(),
        })  # fmt: skip
        return cls(split.encoder, given, found.held_out, provenance, found.study)

    @property
    def target(self) -> str:
        return str(self.provenance["target"])

    @cached_property
    def predicted(self) -> TableTarget:
        """What is predicted: a number, several, or classes."""
        return target_from(self.provenance)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes of the target, where it has such."""
        return getattr(self.predicted, "classes", None)

    @property
    def outputs(self) -> tuple[str, ...] | None:
        """The classes, or the names of several outputs; None where one number is predicted."""
        return self.classes or (self.predicted.names if len(self.predicted.names) > 1 else None)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that ``predict_columns`` makes."""
        some = self.parts[0].rows_held[:1]
        return tuple(self.predicted.columns(self.regressor, some, 0.5, self.held_out))

    @property
    def parts(self) -> tuple[FittedGP, ...]:
        """The processes of the estimator: one, or one for each output or class."""
        fitted = self.regressor.fitted_
        return fitted if isinstance(fitted, tuple) else (fitted,)

    def predict_columns(self, batch: pa.RecordBatch | pa.Table, level: float = 0.95) -> Columns:
        """What to write beside the rows of a batch; intervals and sets are of probability ``level``."""
        check_level(level)
        X, noticed = self.encoder.transform(batch)
        # An empty batch gets the columns that one row would.
        rows = X if len(X) else self.parts[0].rows_held[:1]
        found = self.predicted.columns(self.regressor, rows, level, self.held_out)
        if not len(X):
            found = {name: values[:0] for name, values in found.items()}
        return Columns(found, noticed, outside_range(self.encoder.columns, X))

    def predict_batch(self, batch: pa.RecordBatch | pa.Table, level: float = 0.95) -> Predicted:
        """Predictions for the rows of a batch; the interval is central, of probability ``level``.

        With ``conformal=True`` it is calibrated, as that of `Predictive.interval`.
        """
        check_level(level)
        X, noticed = self.encoder.transform(batch)
        if len(X) == 0:
            return Predicted(X[:, 0], X[:, 0], X[:, 0], X[:, 0], noticed, np.zeros(0, dtype=bool))
        predictive = self._one_number().predict_distribution(X)
        outside = outside_range(self.encoder.columns, X)
        lower, upper = predictive.interval(level)
        return Predicted(predictive.mean, predictive.sd, lower, upper, noticed, outside)

    def predict_distribution(self, table: Any) -> Predictive:
        """The distribution of the target at the rows of anything that ``fit`` takes.

        What is odd about the rows is one warning.
        """
        return self._one_number().predict_distribution(self._inputs(table))

    def predict(self, table: Any) -> np.ndarray:
        """Mean of the target, (q,); of several outputs (q, T); of classes the likeliest one."""
        return self.predicted.mean(self.regressor, self._inputs(table))

    def predict_proba(self, table: Any) -> np.ndarray:
        """P(class | row), (q, C), columns as in ``classes``."""
        if self.classes is None:
            raise AttributeError(f"{self.target!r} holds no classes; use predict_distribution.")
        return self.predicted.probabilities(self.regressor, self._inputs(table))  # type: ignore[attr-defined]

    def predict_interval(self, table: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central interval that a new target falls into with probability ``level``, (q,) each."""
        return self.predict_distribution(table).interval(level)

    def score(self, table: Any) -> float:
        """R2 = 1 - MSE / variance of the target at the rows that have one, as scikit-learn's.

        Of several outputs the mean; of classes, the share of rows whose likeliest class came.
        """
        y = self.observed(table)
        here = ~np.isnan(y if y.ndim == 1 else y.sum(axis=1))
        return self.predicted.score(y[here], self.predict(table)[here])

    def observed(self, table: Any) -> np.ndarray:
        """The targets of a table as numbers, NaN where there is none; of classes their places."""
        return observed(self.predicted, self.encoder, table, self.provenance.get("notations", ()))

    def _inputs(self, table: Any) -> np.ndarray:
        encoded = [self.encoder.transform(batch) for batch in open_table(table).batches(BATCH_ROWS)]
        noticed = sum((odd for _, odd in encoded), Counter[Notice]())
        if noticed:
            warnings.warn("; ".join(in_words(noticed)) + ".", UserWarning, stacklevel=3)
        return np.concatenate([X for X, _ in encoded])

    def _one_number(self) -> Any:
        if self.classes is not None or len(self.predicted.names) > 1:
            raise ValueError(
                "The distribution asked for is of one number; use predict, predict_proba or predict_columns"
                " for classes and several outputs."
            )
        return self.regressor

    def update(self, table: Any) -> Self:
        """The model given the rows of ``table`` too, anything that ``fit`` takes, without a new fit.

        As `WideGPRegressor.update`: the encoding of the columns stays, and so do the held-out scores, which
        are of the fit. Rows without a target are passed over; what is odd about the others is one warning.
        """
        source, date = open_table(table), datetime.now(UTC)
        y = self.observed(source)
        here = ~np.isnan(y if y.ndim == 1 else y.sum(axis=1))
        self._warn_of_update(source.sha256(), int(np.sum(~here)))
        if not here.any():
            raise TableError(f"No row has a target {quoted(self.target)}; there is nothing to add.")
        regressor = clone(self.regressor)
        vars(regressor).update(vars(self.regressor))
        regressor.update(self._inputs(source)[here], y[here])
        told = dict(self.provenance)
        told["rows_conditioned_on"] = told.get("rows_conditioned_on", self.encoder.n_rows) + int(here.sum())
        path = None if source.path is None else str(source.path)
        told["updates"] = [
            *told.get("updates", []),
            {"date": date.isoformat(timespec="seconds"), "path": path, "sha256": source.sha256(),
             "rows": int(here.sum())},
        ]  # fmt: skip
        return replace(self, regressor=regressor, provenance=told)

    def _warn_of_update(self, sha256: str | None, without: int) -> None:
        known = [self.provenance.get("table", {}), *self.provenance.get("updates", [])]
        if sha256 is not None and sha256 in [one.get("sha256") for one in known]:
            told = "The model has had the rows of this very file before; it counts them twice now."
            warnings.warn(told, UserWarning, stacklevel=3)
        if without:
            named = " or ".join(map(quoted, self.predicted.names))
            told = Notice("no target", detail=(named,)).words(without)
            warnings.warn(f"{told}.", UserWarning, stacklevel=3)

    def inputs_held(self) -> np.ndarray:
        """Rows that the model holds, in the units of its inputs: held out, else anchors or training rows."""
        return self.parts[0].rows_held if self.study is None else self.study.X

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file, which `widegp.load` reads as well: it then gives the regressor alone."""
        text = {"encoder": self.encoder.to_dict(), "provenance": self.provenance}
        held = self.held_out if isinstance(self.held_out, tuple) else (self.held_out,)
        each = [{} if one is None else one.to_arrays() for one in held]
        arrays = each[0]
        if len(each) > 1:
            arrays = {f"{t}.{name}": value for t, one in enumerate(each) for name, value in one.items()}
        if self.study is not None:
            text["ranking"], arrays["study_X"] = self.study.ranking, self.study.X
        save_model(self.regressor, path, TablePart(text, arrays))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], backend: str | None = None, predict_neighbors: int | None = None
    ) -> Self:
        """The model that ``save`` wrote; ``backend`` and ``predict_neighbors`` are by default as fitted."""
        regressor, (text, arrays) = load_with_table(path, unfitted, backend)
        if predict_neighbors is not None:
            several, fitted = isinstance(regressor.fitted_, tuple), regressor.fitted_
            parts = tuple(one.with_neighbors(predict_neighbors) for one in (fitted if several else (fitted,)))
            regressor.fitted_ = parts if several else parts[0]
            regressor.predict_neighbors = predict_neighbors
        try:
            study = ColumnStudy(arrays["study_X"], text["ranking"]) if "study_X" in arrays else None
            held_out = target_from(text["provenance"]).held_out(arrays) if arrays else None
            encoder = TableEncoding.from_dict(text["encoder"])
            return cls(encoder, regressor, held_out, text["provenance"], study)
        except Exception as error:
            raise ModelFileError(
                f"The columns in {path} cannot be read ({error!r}); fit the model again."
            ) from error


@contextlib.contextmanager
def recorded_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings given meanwhile, kept for the record; they are given again at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    for w in caught:
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)


class Scored(NamedTuple):
    """What the held-out rows say of a model; None where there are none, or of another kind of target.

    study : what shuffling their columns does.    noted : for the provenance.
    """

    held_out: Any = None
    study: ColumnStudy | None = None
    noted: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of(
        cls, predicted: TableTarget, model: Any, split: Split, seed: int, stage: CommandTime
    ) -> Self:
        X, y = split.X_test, split.y_test
        if not len(y):
            return cls()
        stage(PREDICTING)
        began = stage.spent
        held_out, study = predicted.scored(model, split), None
        most = stage.affordable((stage.spent - began) / len(y))
        if len(y) > 1 and (most is None or most > LEAST_ROWS * len(split.encoder.input_names) // 2):
            stage(SHUFFLING)
            # By the model that was scored: one that has seen these rows would make columns look needed.
            view = predicted.view(model)
            ranked = view if hasattr(view, "predict_proba") else view.fitted_
            study = ColumnStudy.of(ranked, X, y, source_columns(split.encoder), Sample(seed, most))
        return cls(held_out, study, predicted.noted(model, split))

    def beside(
        self, predicted: TableTarget, split: Split, seed: int, stage: CommandTime
    ) -> Mapping[str, Any]:
        """What gradient boosting makes of the same rows, where some are held out and there is time for it."""
        if self.held_out is None or not stage.allows(BOOSTING):
            return NO_YARDSTICK
        stage(BOOSTING)
        return predicted.beside(split, self.held_out, seed)

    def conditioned(self, predicted: TableTarget, model: Any, split: Split, stage: CommandTime) -> Any:
        """The model given the held-out rows too, where there are some and time for it."""
        if self.held_out is None or not stage.allows(CONDITIONING):
            return model
        stage(CONDITIONING)
        return predicted.conditioned(model, split)
