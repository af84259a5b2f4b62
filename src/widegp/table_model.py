"""A fitted model together with the columns it was fitted on: tables in, predictions out."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone

from widegp.command_time import BOOSTING, CONDITIONING, PREDICTING, SHUFFLING, Aftermath, CommandTime
from widegp.data.columns import TableEncoding
from widegp.data.errors import quoted
from widegp.data.ranges import outside_range
from widegp.data.tables import TableError, TableSource, open_table
from widegp.data.target_kinds import TargetKind, coded, target_kind
from widegp.estimator import WideGPRegressor
from widegp.fitting import conditioned
from widegp.held_out import HeldOut, rootogram
from widegp.importance import LEAST_ROWS, ColumnStudy
from widegp.likelihoods.counts import Counts
from widegp.metrics import rmse
from widegp.notices import Notice, in_words
from widegp.persist import ModelFileError, TablePart, load_with_table, save_model
from widegp.progress import Listener
from widegp.provenance import news, of_choice, of_machine, of_split, warned
from widegp.sources import source_columns
from widegp.table_split import Split, TableSettings, split_table
from widegp.yardstick import measure, measure_classes

if TYPE_CHECKING:
    import pyarrow as pa

    from widegp.predictive import Predictive

# Rows of a table that are predicted at once.
BATCH_ROWS = 16384


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
        stage, date = CommandTime(progress, settings.get("budget")), datetime.now(UTC)
        chosen = TableSettings.taken_from(settings, target=target)
        stage("reading the table")
        table = open_table(source, chosen.reading)
        kind = _kind(table, target, settings)
        if kind.classes is not None:
            table = coded(table, target, kind.classes)
        stage("encoding the columns")
        split = split_table(table, chosen)
        columns = len(split.encoder.input_names)
        neighbors = settings.get("predict_neighbors", 400)
        stage.expect(split.X.shape, Aftermath(len(split.y_test), columns, neighbors), settings)
        for_the_fit = {} if stage.budget is None else {"budget": stage.for_the_fit()}
        regressor = WideGPRegressor(random_state=chosen.seed, **(settings | for_the_fit))
        with _heard() as caught:
            regressor.fit(split.X, split.y, progress=stage.fitting)
            split = stage.thinned(split, regressor.predict_distribution, chosen.seed)
            found = Scored.of(regressor, split, chosen.seed, stage)
        if yardstick and found.held_out is not None and stage.allows(BOOSTING):
            stage(BOOSTING)
            make = measure if kind.classes is None else measure_classes
            train, test = (split.X, split.y), (split.X_test, split.y_test)
            found = found._replace(beside=make(train, test, found.held_out.mean, chosen.seed).to_dict())
        given = regressor
        if found.held_out is not None and not keep_held_out and stage.allows(CONDITIONING):
            stage(CONDITIONING)
            given = recondition(regressor, split.rows, split.targets)
        provenance = {
            "command": command,
            "date": date.isoformat(timespec="seconds"),
            "table": {
                "path": None if table.path is None else str(table.path), "sha256": table.sha256(),
                "rows": len(split.targets),
            },
            "settings": {k: v for k, v in settings.items() if k != "checkpoint"},
            "rows_conditioned_on": len(split.y if given is regressor else split.targets),
            "seconds": round(stage.spent, 3),
            "warnings": [kind.words] * bool(kind.words) + warned(split) + news(caught),
            **of_split(split, chosen), **found.told(kind.classes), **of_choice(given), **of_machine(),
        }  # fmt: skip
        return cls(split.encoder, given, found.held_out, provenance, found.study)

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


@contextlib.contextmanager
def _heard() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings given meanwhile, kept for the record; they are given again at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    for w in caught:
        warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)


class Scored(NamedTuple):
    """What the held-out rows say of a model; None where there are none, or of another kind of target.

    study : what shuffling their columns does.    counts : beside those expected.    beside : boosting.
    """

    held_out: HeldOut | None = None
    study: ColumnStudy | None = None
    counts: dict[str, Any] | None = None
    beside: dict[str, Any] | None = None

    @classmethod
    def of(cls, model: WideGPRegressor, split: Split, seed: int, stage: CommandTime) -> Self:
        X, y = split.X_test, split.y_test
        if not len(y):
            return cls()
        stage(PREDICTING)
        began = stage.spent
        own_sd = None if model.likelihood == "gaussian" else float(np.std(split.y))
        held_out, study = HeldOut.of(model, X, y, train_sd=own_sd), None
        most = stage.affordable((stage.spent - began) / len(y))
        if len(y) > 1 and (most is None or most > LEAST_ROWS * len(split.encoder.input_names) // 2):
            stage(SHUFFLING)
            # By the model that was scored: one that has seen these rows would make columns look needed.
            study = ColumnStudy.of(model.fitted_, X, y, source_columns(split.encoder), seed, most)
        of_counts = isinstance(model.fitted_.likelihood, Counts)
        return cls(held_out, study, rootogram(model.predict_distribution(X), y) if of_counts else None)

    def told(self, classes: tuple[str, str] | None) -> dict[str, Any]:
        """For the provenance of a model, of ``classes`` where the target holds such."""
        of_counts = {} if self.counts is None else {"rootogram": self.counts}
        if classes is None:
            return {"yardstick": self.beside} | of_counts
        return {"yardstick": None, "classes": list(classes), "beside": self.beside} | of_counts
