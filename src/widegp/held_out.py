"""Predictions of rows that a fit never saw, beside what was observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from widegp import metrics
from widegp.conformal import ClassCalibration, check_level
from widegp.estimator import WideGPRegressor
from widegp.metrics.classes import floored
from widegp.predictive import Predictive

NUMBERS = ("level", "train_sd")


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The predictive distribution of each of q held-out rows, at what was observed there.

    y, mean, sd : observed target, predictive mean and standard deviation (noise included), (q,).
    lower, upper : ends of the central interval of probability ``level``, (q,).
    pit : P(Y_i <= y_i) under the model's own distribution, uniform where that is right, (q,).
    log_density : log p(y_i), Jacobian of the warp included; -inf where the warp excludes y_i, (q,).
    crps : continuous ranked probability score of each row, exact under any warp, (q,).
    train_sd : standard deviation of the training target, the unit of the scaled scores.
    calibrated_depth : the smallest level whose calibrated interval holds y_i, (q,); None if the model is not
        calibrated. With it, ``lower`` and ``upper`` are ends of calibrated intervals too.
    """

    y: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    pit: np.ndarray
    log_density: np.ndarray
    level: float
    crps: np.ndarray
    train_sd: float
    calibrated_depth: np.ndarray | None = None

    @classmethod
    def of(
        cls, model: WideGPRegressor, X: ArrayLike, y: ArrayLike, level: float = 0.95,
        train_sd: float | None = None,
    ) -> Self:  # fmt: skip
        """Predict X (q, I) once and compare with y (q,).

        ``train_sd`` is that of the training target, where the model does not scale it.
        """
        sd = model.fitted_.target.sd if train_sd is None else train_sd
        return cls.from_predictive(model.predict_distribution(X), y, level, sd)

    @classmethod
    def from_predictive(
        cls, predictive: Predictive, y: ArrayLike, level: float = 0.95, train_sd: float = 1.0
    ) -> Self:
        """The same from predictions of the rows where y (q,) was observed."""
        y = _observed(y)
        check_level(level)
        if len(predictive) != len(y):
            raise ValueError(f"X has {len(predictive)} rows and y has {len(y)}; pass one y per row of X.")
        lower, upper = predictive.interval(level)
        return cls(
            y=y, mean=predictive.mean, sd=predictive.sd, lower=lower, upper=upper, pit=predictive.pit(y),
            log_density=predictive.log_density(y), level=float(level), crps=predictive.crps(y),
            train_sd=train_sd,
            calibrated_depth=None if predictive.calibration is None else predictive.depth(y),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.y)

    @property
    def depth(self) -> np.ndarray:
        """The smallest level whose interval holds y_i, (q,): |2 pit - 1| without calibration."""
        return np.abs(2 * self.pit - 1) if self.calibrated_depth is None else self.calibrated_depth

    @property
    def inside(self) -> np.ndarray:
        """Whether each y lies in its interval, (q,)."""
        return (self.lower <= self.y) & (self.y <= self.upper)

    def scores(self) -> dict[str, float]:
        """Scores in the units of y, then with the ending _z in units of the training sd.

        rmse, mae, crps, width (mean length of the intervals) and interval_score scale with the unit; nll
        (mean of -log p, inf if a row has density 0) shifts by log sd. r2 = 1 - MSE / variance of the y
        held out, left out where they are constant; coverage and pit_distance have no unit.
        """
        level = {"level": self.level}
        lengths = {
            "rmse": metrics.rmse(self.y, self.mean),
            "mae": metrics.mae(self.y, self.mean),
            "crps": float(np.mean(self.crps)),
            "width": float(np.mean(self.upper - self.lower)),
            "interval_score": metrics.interval_score(self.y, self.lower, self.upper, **level),
        }
        nll = -float(np.mean(self.log_density))
        scores = lengths | {
            "nll": nll,
            "coverage": metrics.coverage(self.y, self.lower, self.upper),
            "pit_distance": metrics.pit_distance(self.pit),
        }
        variance = float(np.var(self.y))
        if variance > 0:
            scores["r2"] = 1 - lengths["rmse"] ** 2 / variance
        scaled = {f"{name}_z": value / self.train_sd for name, value in lengths.items()}
        return scores | scaled | {"nll_z": nll - float(np.log(self.train_sd))}

    def thinned(self, rows: int = 5000, seed: int = 0) -> Self:
        """At most ``rows`` rows, drawn at random without replacement and kept in order."""
        if len(self) <= rows:
            return self
        kept = np.sort(np.random.default_rng(seed).choice(len(self), rows, replace=False))
        columns = {name: v if v is None or name in NUMBERS else v[kept] for name, v in vars(self).items()}
        return type(self)(**columns)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The fields by name, numbers as 0-d arrays; what there is not is left out."""
        return {name: np.asarray(value) for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """What ``to_arrays`` described."""
        known = [f.name for f in fields(cls)]
        missing = [name for name in known if name not in arrays and name != "calibrated_depth"]
        if missing:
            raise ValueError(f"The held-out predictions lack {', '.join(missing)}; predict the rows again.")
        values = {name: np.asarray(arrays[name], float) for name in known if name in arrays}
        return cls(**{name: float(v) if name in NUMBERS else v for name, v in values.items()})  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class HeldOutClasses:
    """Probabilities p (q, C) of the classes at q held-out rows, and the places y (q,) of those that came."""

    y: np.ndarray
    p: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def scores(self) -> dict[str, float | None]:
        """log_loss, brier, ece with its range of chance, accuracy, and auc, None where a class has no row.

        No probability counts as less than 1e-15: a class that no training row has would decide the log loss.
        """
        p = floored(self.p)
        low, high = metrics.ece_by_chance(p)
        every = len(np.unique(self.y)) == p.shape[1]
        return {
            "log_loss": metrics.log_loss(self.y, p), "brier": metrics.brier(self.y, p),
            "ece": metrics.ece(self.y, p), "ece_low": low, "ece_high": high,
            "auc": metrics.auc(self.y, p) if every else None, "accuracy": metrics.accuracy(self.y, p),
        }  # fmt: skip

    def calibration(self) -> ClassCalibration:
        """Of sets of classes, by these rows."""
        return ClassCalibration.fit(self.p, self.y)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"y": self.y.astype(float), "p": self.p}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """What ``to_arrays`` described."""
        return cls(np.asarray(arrays["y"]).astype(int), np.asarray(arrays["p"], float))


def _observed(y: ArrayLike) -> np.ndarray:
    y = np.asarray(y, float)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y has shape {y.shape}; pass one number per held-out row, at least one.")
    bad = np.flatnonzero(~np.isfinite(y))
    if bad.size:
        raise ValueError(f"y is {y[bad[0]]} in row {bad[0]}; drop that row or mend it.")
    return y


def rootogram(predictive: Predictive, y: np.ndarray, bins: int = 24) -> dict[str, list[float]]:
    """How many of the counts y (q,) fall between whole numbers, and how many are expected to.

    ``first`` and ``last`` are the smallest and largest count of each bin; expected = sum_i P(first <= Y_i <=
    last). Small counts have a bin each, and all bins about equally many rows.
    """
    ends = np.unique(np.quantile(y, np.linspace(0, 1, bins + 1), method="inverted_cdf"))
    below = np.array([float(np.sum(predictive.cdf(np.full(len(y), end)))) for end in ends])
    first = np.concatenate([[0.0], ends[:-1] + 1])
    observed = [int(np.sum((first[k] <= y) & (y <= ends[k]))) for k in range(len(ends))]
    expected = np.diff(below, prepend=0.0).tolist()
    return {"first": first.tolist(), "last": ends.tolist(), "observed": observed, "expected": expected}
