"""What a table predicts: one number, several, or classes. How each is fitted, scored and written down.

A `TableModel` asks its target for all that differs between them.
"""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from widegp.classifier import WideGPClassifier
from widegp.conformal import ClassCalibration
from widegp.data.columns import TableEncoding
from widegp.data.errors import TableError, quoted
from widegp.data.tables import TableSource, open_table
from widegp.data.target_kinds import LINKS, coded, target_kind
from widegp.estimator import WideGPRegressor
from widegp.fitting import conditioned
from widegp.held_out import HeldOut, HeldOutClasses, rootogram
from widegp.likelihoods import make_likelihood
from widegp.metrics import energy_score, rmse
from widegp.progress import Listener
from widegp.table_split import Split
from widegp.warps import NAMES, make_warp
from widegp.yardstick import measure, measure_classes

# Rows and draws, at most, of an energy score.
ENERGY_ROWS, ENERGY_DRAWS = 1000, 100
# What a regressor may be asked for and a classifier has not, with the values that ask for nothing.
NOT_OF_CLASSES = {
    "target_transform": (None, "auto"), "noise": ("auto", "constant"), "posterior": ("auto", "map"),
    "checkpoint": (None,), "optimizer": ("lbfgs",), "start": (None,), "batch_rows": (None,),
}  # fmt: skip


@dataclass(frozen=True)
class TableTarget(ABC):
    """``names`` of the columns to predict, and ``words``, what is to be said of them, or none."""

    names: tuple[str, ...]
    words: str = ""

    def read(self, source: TableSource) -> TableSource:
        """The table with its targets as numbers."""
        return source

    def check(self, split: Split, settings: Mapping[str, Any]) -> None:
        """Raises where a target is none that the settings can fit, with its row of the table."""
        likelihood, warp = settings.get("likelihood", "gaussian"), settings.get("target_transform")
        for column in split.targets.reshape(len(split.targets), -1).T:
            # In the order of the table, 1 where there is no row: every likelihood and warp takes that.
            y = np.ones(split.numbers.max() + 1)
            y[split.numbers] = column
            if likelihood != "gaussian":
                make_likelihood(likelihood).check(y)
            elif warp in NAMES:
                make_warp(warp).initial(y)

    @abstractmethod
    def fitted(self, split: Split, settings: Mapping[str, Any], progress: Listener | None) -> Any:
        """The estimator with ``settings``, fitted to the training rows."""

    @abstractmethod
    def scored(self, model: Any, split: Split) -> Any:
        """Predictions of the held-out rows beside what was observed."""

    @abstractmethod
    def held_out(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """What ``scored`` made, from its arrays."""

    @abstractmethod
    def beside(self, split: Split, held_out: Any, seed: int) -> dict[str, Any]:
        """Gradient boosting on the same rows, by its name in the provenance of a model."""

    def view(self, model: Any) -> Any:
        """The estimator as `widegp.explain` takes it."""
        return model

    def conditioned(self, model: Any, split: Split) -> Any:
        """The estimates given all rows, those held out included; of classes nothing changes."""
        return model

    @abstractmethod
    def mean(self, model: Any, X: np.ndarray) -> np.ndarray:
        """(q,), or one column for each output."""

    @abstractmethod
    def columns(self, model: Any, X: np.ndarray, level: float, held_out: Any) -> dict[str, Any]:
        """By name what is added to the rows X (q, I) of a table."""

    @abstractmethod
    def score(self, y: np.ndarray, mean: np.ndarray) -> float:
        """As scikit-learn's of such a target: R2, or the share of rows whose likeliest class came."""

    def told(self) -> dict[str, Any]:
        """For the provenance of a model, from which `target_from` makes the same target."""
        return {}

    def noted(self, model: Any, split: Split) -> dict[str, Any]:
        """What else the held-out rows show of such a target, for the provenance of a model."""
        return {}


class OneNumber(TableTarget):
    """A real number, or a count, and its predictive distribution."""

    def fitted(self, split: Split, settings: Mapping[str, Any], progress: Listener | None) -> WideGPRegressor:
        return WideGPRegressor(**settings).fit(split.X, split.y, progress=progress)

    def scored(self, model: Any, split: Split) -> HeldOut:
        own_sd = None if model.likelihood == "gaussian" else float(np.std(split.y))
        return HeldOut.of(model, split.X_test, split.y_test, train_sd=own_sd)

    def held_out(self, arrays: Mapping[str, np.ndarray]) -> HeldOut:
        return HeldOut.from_arrays(arrays)

    def beside(self, split: Split, held_out: HeldOut, seed: int) -> dict[str, Any]:
        train, test = (split.X, split.y), (split.X_test, split.y_test)
        return {"yardstick": measure(train, test, held_out.mean, seed).to_dict()}

    def conditioned(self, model: Any, split: Split) -> Any:
        return recondition(model, split.rows, split.targets)

    def mean(self, model: Any, X: np.ndarray) -> np.ndarray:
        return model.predict_distribution(X).mean

    def columns(self, model: Any, X: np.ndarray, level: float, held_out: Any) -> dict[str, Any]:
        return _moments(model.predict_distribution(X), level)

    def score(self, y: np.ndarray, mean: np.ndarray) -> float:
        return 1 - rmse(y, mean) ** 2 / float(np.var(y))

    def noted(self, model: Any, split: Split) -> dict[str, Any]:
        """Of counts how many came beside how many were expected, and their deviances."""
        likelihood = model.fitted_.likelihood
        if likelihood is None or likelihood.support != "counts":
            return {}
        found, y = model.predict_distribution(split.X_test), split.y_test
        if likelihood.name == "poisson" and rmse(y, found.mean) > np.std(y):
            warnings.warn(
                "The model is worse than the mean: counts that scatter more than Poisson's make f rough;"
                " use --likelihood negative-binomial (in Python, likelihood='negative-binomial').",
                UserWarning, stacklevel=2,
            )  # fmt: skip
        return {"rootogram": rootogram(found, y), "deviance": likelihood.deviances(y, found.mean)}


class Outputs(TableTarget):
    """Several real numbers, which share inputs and metric."""

    def fitted(self, split: Split, settings: Mapping[str, Any], progress: Listener | None) -> WideGPRegressor:
        return WideGPRegressor(**settings).fit(split.X, split.y, progress=progress)

    def scored(self, model: Any, split: Split) -> tuple[HeldOut, ...]:
        found = model.predict_distribution(split.X_test)
        return tuple(
            HeldOut.from_predictive(one, y, train_sd=part.target.sd)
            for one, y, part in zip(found, split.y_test.T, model.fitted_, strict=True)
        )

    def held_out(self, arrays: Mapping[str, np.ndarray]) -> tuple[HeldOut, ...]:
        each = [{k.partition(".")[2]: v for k, v in arrays.items() if k.startswith(f"{t}.")}
                for t in range(len(self.names))]  # fmt: skip
        return tuple(map(HeldOut.from_arrays, each))

    def beside(self, split: Split, held_out: tuple[HeldOut, ...], seed: int) -> dict[str, Any]:
        tests = enumerate(zip(split.y.T, split.y_test.T, strict=True))
        found = [
            measure((split.X, y), (split.X_test, y_test), held_out[t].mean, seed) for t, (y, y_test) in tests
        ]
        return {"yardstick": None, "beside": [one.to_dict() for one in found]}

    def conditioned(self, model: Any, split: Split) -> Any:
        return recondition(model, split.rows, split.targets)

    def mean(self, model: Any, X: np.ndarray) -> np.ndarray:
        return np.stack([one.mean for one in model.predict_distribution(X)], axis=1)

    def columns(self, model: Any, X: np.ndarray, level: float, held_out: Any) -> dict[str, Any]:
        each = zip(self.names, model.predict_distribution(X), strict=True)
        return {f"{name}_{key}": v for name, one in each for key, v in _moments(one, level).items()}

    def score(self, y: np.ndarray, mean: np.ndarray) -> float:
        return float(np.mean(1 - np.mean((y - mean) ** 2, axis=0) / np.var(y, axis=0)))

    def told(self) -> dict[str, Any]:
        return {"targets": list(self.names)}

    def noted(self, model: Any, split: Split) -> dict[str, Any]:
        """The energy score of all outputs together, each in units of its sd, of some rows."""
        sd = np.array([part.target.sd for part in model.fitted_])
        rows = slice(0, ENERGY_ROWS)
        found = model.predict_distribution(split.X_test[rows])
        draws = np.stack([one.sample(ENERGY_DRAWS, t) for t, one in enumerate(found)], axis=2)
        return {"energy_score": energy_score(split.y_test[rows] / sd, draws / sd)}


@dataclass(frozen=True)
class Classes(TableTarget):
    """One of several ``classes``, each with a probability; ``link`` is that of the classifier."""

    classes: tuple[str, ...] = ()
    link: str = "logit"

    def read(self, source: TableSource) -> TableSource:
        return coded(source, self.names[0], self.classes)

    def check(self, split: Split, settings: Mapping[str, Any]) -> None:
        return

    def fitted(self, split: Split, settings: Mapping[str, Any], progress: Listener | None) -> Any:
        own = {k: v for k, v in settings.items() if k in inspect.signature(WideGPClassifier).parameters}
        for name in settings.keys() - own.keys():
            if settings[name] not in NOT_OF_CLASSES.get(name, (settings[name],)):
                raise ValueError(f"{name}={settings[name]!r} needs a target of numbers; leave it out here.")
        model = WideGPClassifier(link=self.link, **own)
        return model.fit(split.X, np.array(self.classes)[split.y.astype(int)], progress=progress)

    def probabilities(self, model: Any, X: np.ndarray) -> np.ndarray:
        """(q, C), columns as ``classes``; 0 for one that no training row has."""
        found, p = list(model.classes_), model.predict_proba(X)
        out = np.zeros((len(p), len(self.classes)))
        for k, name in enumerate(self.classes):
            if name in found:
                out[:, k] = p[:, found.index(name)]
        return out

    def scored(self, model: Any, split: Split) -> HeldOutClasses:
        return HeldOutClasses(split.y_test.astype(int), self.probabilities(model, split.X_test))

    def held_out(self, arrays: Mapping[str, np.ndarray]) -> HeldOutClasses:
        return HeldOutClasses.from_arrays(arrays)

    def beside(self, split: Split, held_out: HeldOutClasses, seed: int) -> dict[str, Any]:
        train, test = (split.X, split.y), (split.X_test, split.y_test)
        return {"yardstick": None, "beside": measure_classes(train, test, held_out.p, seed).to_dict()}

    def view(self, model: Any) -> ClassView:
        return ClassView(self, model)

    def mean(self, model: Any, X: np.ndarray) -> np.ndarray:
        """The likeliest classes, by name."""
        return np.array(self.classes)[self.probabilities(model, X).argmax(axis=1)]

    def columns(self, model: Any, X: np.ndarray, level: float, held_out: Any) -> dict[str, Any]:
        p = self.probabilities(model, X)
        out: dict[str, Any] = {"class": [self.classes[k] for k in p.argmax(axis=1)]}
        out |= {f"probability_{name}": p[:, k] for k, name in enumerate(self.classes)}
        calibration = self.calibration(model, held_out)
        if calibration is not None:
            out["set"] = ["|".join(name for name, held in zip(self.classes, row, strict=True) if held)
                          for row in calibration.sets(p, level)]  # fmt: skip
        return out

    def calibration(self, model: Any, held_out: HeldOutClasses | None) -> ClassCalibration | None:
        """Of sets: from rows that the fit kept apart, else from those held out, which it has not seen."""
        if model.calibration_ is not None:
            return model.calibration_
        return None if held_out is None else held_out.calibration()

    def score(self, y: np.ndarray, mean: np.ndarray) -> float:
        return float(np.mean(np.array(self.classes)[y.astype(int)] == mean))

    def told(self) -> dict[str, Any]:
        return {"classes": list(self.classes), "link": self.link}


@dataclass(frozen=True)
class ClassView:
    """A classifier whose classes are numbered as those of its table."""

    target: Classes
    model: Any

    @property
    def fitted_(self) -> Any:
        return self.model.fitted_

    @property
    def n_features_in_(self) -> int:
        return int(self.model.n_features_in_)

    @property
    def classes_(self) -> np.ndarray:
        return np.array(self.target.classes)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.target.probabilities(self.model, X)


def target_of(table: TableSource, names: Sequence[str], settings: dict[str, Any]) -> TableTarget:
    """What the columns hold; their likelihood goes to ``settings`` unless these name one."""
    if len(set(names)) < len(names):
        raise TableError(f"Target {quoted(names[0])} is named twice; name each once.")
    asked = settings.get("likelihood")
    kinds = [target_kind(table, name, asked) for name in names]
    if len(names) > 1:
        odd = [name for name, kind in zip(names, kinds, strict=True) if kind.classes is not None]
        if odd:
            raise TableError(
                f"Target {quoted(odd[0])} holds classes, and several outputs are numbers; fit it by itself."
            )
        return Outputs(tuple(names), f"{len(names)} outputs of one model.")
    kind = kinds[0]
    settings["likelihood"] = kind.likelihood
    if kind.classes is not None:
        return Classes(tuple(names), kind.words, kind.classes, settings.pop("likelihood"))
    return OneNumber(tuple(names), kind.words)


def target_from(provenance: Mapping[str, Any]) -> TableTarget:
    """What a saved model predicts."""
    if provenance.get("targets"):
        return Outputs(tuple(provenance["targets"]))
    names = (str(provenance["target"]),)
    if provenance.get("classes"):
        return Classes(names, "", tuple(provenance["classes"]), provenance.get("link", LINKS[0]))
    return OneNumber(names)


def observed(
    target: TableTarget, encoder: TableEncoding, table: Any, notations: Sequence[str] = ()
) -> np.ndarray:
    """The targets of a table, NaN where one is missing: numbers (q,) or (q, T), or places of classes (q,)."""
    source = target.read(open_table(table))
    columns = []
    for name, notation in zip_longest(target.names, (encoder.target_notation, *notations), fillvalue=""):
        own = replace(encoder, target_name=name, target_notation=notation)
        columns.append(np.concatenate([own.target(batch) for batch in source.batches(columns=[name])]))
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def recondition(regressor: WideGPRegressor, X: np.ndarray, y: np.ndarray) -> WideGPRegressor:
    """The same estimates given all rows X (n, I), y (n,) or (n, T); ``regressor`` has seen a part of them.

    With calibrated intervals it stays as it is: they hold for a model that knows no row which calibrates.
    """
    from sklearn.base import clone

    fitted = regressor.fitted_
    several = isinstance(fitted, tuple)
    parts, targets = (fitted, y.T) if several else ((fitted,), (y,))
    if any(one.calibration is not None for one in parts):
        return regressor
    made = tuple(conditioned(regressor, one, X, c) for one, c in zip(parts, targets, strict=True))
    if all(one is before for one, before in zip(made, parts, strict=True)):
        return regressor
    given: Any = made if several else made[0]
    again = clone(regressor)
    vars(again).update(vars(regressor))
    again.fitted_ = given
    return again


def _moments(predictive: Any, level: float) -> dict[str, np.ndarray]:
    lower, upper = predictive.interval(level)
    return {"mean": predictive.mean, "sd": predictive.sd, "lower": lower, "upper": upper}
