"""What a fitted model does: which inputs drive it, in which way, and how smooth it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from widegp.estimator import WideGPRegressor
from widegp.fitted import FittedGP
from widegp.importance import Sample, rank_columns
from widegp.kernels.base import CURVE_POINTS as KERNEL_POINTS
from widegp.kernels.base import Kernel
from widegp.progress import Listener, Progress
from widegp.sources import Source, States, single_inputs, source_columns, states_of

__all__ = ["Source", "explain", "partial_dependence", "source_columns"]

CURVE_ROWS = 50
SAMPLE_ROWS = 6_000

BAND = (
    "For each value of the input, every sampled row gets that value and its own other inputs; the line is the"
    " mean over the rows of the posterior mean of f. The ends of the band are the means over the rows of the"
    " ends of each row's {level:.0%} interval of f (no observation noise). Errors of different rows are taken"
    " to move together, so the band is at least as wide as the interval of the averaged function. The pale"
    " band holds the middle 80% of the rows' own curves, each shifted to the same mean: where it is wide, the"
    " effect of the input depends on the other inputs."
)
IMPORTANCE = (
    "Shuffle the column between rows that the fit has not seen, and see how much the squared error of the"
    " predictions rises, as a share of the mean squared difference of two targets. Where the model is right,"
    " that is the share of the variance that needs the column. After ± stands the standard error."
)
EFFECT = (
    "Share of the variance of the prediction that comes from the column, its interactions included (total"
    " effect, Jansen's estimator). It says what the model uses, the importance what helps. Shares add up to"
    " more than 100% where columns interact, and to less or more where they are correlated."
)
INTERACTIONS = "The part of the effect that changes with values of other columns (total less first order)."
OF_CLASSES = (
    "Shuffle the column between rows that the fit has not seen, and see how much the log loss of the"
    " probabilities rises, as a share of the entropy of the classes, which is what there is to know of them."
    " It can pass 100% where the model is sure. After ± stands the standard error."
)
BAND_OF_CLASSES = (
    "For each value of the input, every sampled row gets that value and its own other inputs; a line is the"
    " mean over the rows of the probability of a class. The pale band holds the middle 80% of the rows' own"
    " curves, each shifted to the same mean: where it is wide, the effect of the input depends on the others."
)
WEIGHT = (
    "Share of sigma_u2, the prior variance of the hidden weights of this input. A large weight says that the"
    " function bends quickly along the input; a strong but straight effect needs little weight."
)


def explain(
    model: Any,
    X_sample: ArrayLike,
    feature_names: Sequence[str] | None = None,
    *,
    y: ArrayLike | None = None,
    sources: Sequence[Source] | None = None,
    outputs: Sequence[str] | None = None,
    ranking: dict[str, Any] | None = None,
    top: int = 6,
    level: float = 0.95,
    seed: int = 0,
    progress: Listener | None = None,
) -> dict[str, Any]:
    """Columns by importance, those that move together, effects of the ``top``, parts of the kernel.

    model : a fitted `WideGPRegressor`, of one output or several, or `WideGPClassifier`. Effects of classes
        are on their probabilities, those of counts on their mean.
    X_sample : (s, I), rows like those that the model is used on, at least two; more than needed are thinned.
    y : (s,), their targets; (s, T) of several outputs; places in ``classes_`` of classes. Only rows that the
        fit has not seen can tell the importance; without y there is none, and columns are ranked by their
        effect, which is that on the prediction.
    sources : columns of a table with all their inputs, see `source_columns`; by default each input is one.
    outputs : names of several outputs, or of classes; by default numbers or those of ``classes_``.
    ranking : what `widegp.importance.rank_columns` found before, for the same sources.
    progress : called with a `widegp.progress.Progress` before each column.

    The result is JSON-able. "inputs" has the numbers of `widegp.importance.shuffle`, and as "weight" the
    share of sigma_u2 where there is one per input; they differ on purpose, see "words". "together" has
    columns whose ranks are correlated, with the numbers of shuffling them as one.
    """
    X, y = _sample(model, X_sample, y, seed)
    names = input_names(model, feature_names)
    sources = single_inputs(names) if sources is None else sources
    shown = Shown.of(model, outputs)
    if ranking is None:
        ranking = rank_columns(shown.model, X, y, sources, Sample(seed), progress)
    order = _order(ranking, sources)
    curves: list[dict[str, Any]] = []
    for k in order[:top]:
        if progress is not None:
            progress(Progress.step("drawing effects", len(curves), len(order[:top])))
        curves.append(shown.effect(X, sources[k], level))
    return {
        "inputs": [ranking["inputs"][k] | _described(model, sources[k], names) for k in order],
        "together": [group | {"words": _together(group["names"])} for group in ranking["together"]],
        "partial_dependence": curves,
        **_process(model, X),
        "rows": ranking["rows"],
        "repeats": ranking["repeats"],
        "level": float(level),
        "effects_on": "probability" if shown.of_classes else "mean",
        "words": {
            "band": BAND_OF_CLASSES if shown.of_classes else BAND.format(level=level),
            "importance": OF_CLASSES if shown.of_classes else IMPORTANCE, "effect": EFFECT,
            "interactions": INTERACTIONS, "weight": WEIGHT,
        },
    }  # fmt: skip


class Shown(NamedTuple):
    """What of a model is explained: ``model`` as `rank_columns` takes it, and the ``names`` of its outputs or
    classes that have a curve each; of one output or two classes there is one.
    """

    model: Any
    names: tuple[str, ...]
    of_classes: bool = False

    @classmethod
    def of(cls, model: Any, given: Sequence[str] | None) -> Self:
        if hasattr(model, "predict_proba"):
            named = [str(c) for c in model.classes_] if given is None else list(given)
            return cls(model, tuple(named), True)
        if isinstance(model.fitted_, tuple):
            named = [f"output {t + 1}" for t in range(len(model.fitted_))] if given is None else list(given)
            return cls(model.fitted_, tuple(named))
        return cls(model.fitted_, ("",))

    def effect(self, X: np.ndarray, source: Source, level: float) -> dict[str, Any]:
        """The curve of one output; of several, that which moves most, with all of them in "outputs".

        Of two classes it is that of the second.
        """
        if not self.of_classes and not isinstance(self.model, tuple):
            return partial_dependence(self.model, X, source, level)
        if self.of_classes:
            found = class_dependence(self.model, X, source)
            found = found[1:] if len(found) == 2 else found
        else:
            found = [partial_dependence(part, X, source, level) for part in self.model]
        names = self.names[-len(found) :]
        named = [curve | {"output": name} for curve, name in zip(found, names, strict=True)]
        keys = ("output", "mean", "lower", "upper", "rows_lower", "rows_upper")
        first = max(named, key=lambda curve: np.ptp(curve["mean"]) / self._scale(named.index(curve)))
        return first | {"outputs": [{key: curve[key] for key in keys} for curve in named]}

    def _scale(self, t: int) -> float:
        return 1.0 if self.of_classes else float(self.model[t].target.sd)


def _process(model: Any, X: np.ndarray) -> dict[str, Any]:
    """Balance and shape of the kernel, where there is one: classes and several outputs have one each."""
    if isinstance(model.fitted_, tuple):
        return {"balance": None, "kernel_shape": None}
    rows = model.fitted_.inputs.transform(X)
    return {"balance": balance(model, rows), "kernel_shape": kernel_shape(model.kernel_, rows)}


def _order(ranking: dict[str, Any], sources: Sequence[Source]) -> list[int]:
    """Places of the sources by importance where it is known, else by effect; the largest first."""
    found = ranking["inputs"]
    if [entry["name"] for entry in found] != [source.name for source in sources]:
        raise ValueError("The ranking is of other columns than the sources; rank the same ones.")
    key = "importance" if any(entry["importance"] is not None for entry in found) else "effect"
    return sorted(range(len(sources)), key=lambda k: -(found[k][key] or 0.0))


def _described(model: Any, source: Source, names: Sequence[str]) -> dict[str, Any]:
    first = model.fitted_[0] if isinstance(model.fitted_, tuple) else model.fitted_
    weights = first.input_importance
    return {
        "index": source.inputs[0],
        "kind": source.kind,
        "inputs": [names[j] for j in source.inputs],
        "weight": None if weights is None else float(sum(weights[j] for j in source.inputs)),
    }


def _together(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]} move together: read them as one."


def input_names(model: Any, given: Sequence[str] | None = None) -> list[str]:
    """One name per input: those given, else those of the training frame, else "input 1", ..."""
    names = getattr(model, "feature_names_in_", None) if given is None else given
    n_inputs = int(model.n_features_in_)
    if names is None:
        return [f"input {j + 1}" for j in range(n_inputs)]
    if len(names) != n_inputs:
        raise ValueError(f"There are {len(names)} feature names for {n_inputs} inputs; pass one per input.")
    return [str(name) for name in names]


def partial_dependence(
    fitted: FittedGP, X: np.ndarray, source: Source, level: float = 0.95
) -> dict[str, Any]:
    """Mean over rows of f(x_i with the column's inputs = t), t over the states of the column (`states_of`).

    X (N, I) in the units of the table. For the bands see BAND; "labels" name levels and dates.
    """
    states = states_of(source, X)
    parts = _function(fitted, _at_states(states, X, source), level)
    return _curve(source, states, *(part.reshape(len(states.x), -1) for part in parts))


def class_dependence(model: Any, X: np.ndarray, source: Source) -> list[dict[str, Any]]:
    """The same of the probability of each class, without a band of f."""
    states = states_of(source, X)
    p = model.predict_proba(_at_states(states, X, source)).reshape(len(states.x), -1, len(model.classes_))
    return [_curve(source, states, p[..., c], p[..., c], p[..., c]) for c in range(p.shape[2])]


def _at_states(states: States, X: np.ndarray, source: Source) -> np.ndarray:
    """(g s, I): the first rows of X (N, I) at each of the g states of a column."""
    rows = np.repeat(X[None, :CURVE_ROWS], len(states.x), axis=0)
    rows[:, :, list(source.inputs)] = states.inputs[:, None]
    return rows.reshape(-1, X.shape[1])


def _curve(
    source: Source, states: States, mean: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> dict[str, Any]:
    """Means over rows of predictions (g, s) and of the ends of their intervals, and the spread of rows."""
    # Rows differ in level through their other inputs; only a difference in shape is an interaction.
    shapes = mean - mean.mean(0) + mean.mean()
    spread = np.quantile(shapes, [0.1, 0.9], axis=1)
    return {
        "name": source.name,
        "index": source.inputs[0],
        "kind": source.kind,
        "x": states.x.tolist(),
        "labels": states.labels,
        "discrete": states.discrete,
        "mean": mean.mean(1).tolist(),
        "lower": lower.mean(1).tolist(),
        "upper": upper.mean(1).tolist(),
        "rows_lower": spread[0].tolist(),
        "rows_upper": spread[1].tolist(),
    }


def balance(model: WideGPRegressor, rows: np.ndarray) -> dict[str, Any]:
    """Mean prior variance K(x, x) over standardised rows (s, I) by part, and the noise: values and shares."""
    summands = model.kernel_.summands()
    parts = {name: float(np.mean(part.diag(rows))) for name, part in summands.items()}
    if "sigma_eps2" in model.params_:
        parts["noise"] = float(np.asarray(model.params_["sigma_eps2"]))
    total = sum(parts.values())
    w = model.params_.get("w")
    return {
        "w": None if w is None else float(np.asarray(w)),
        "variance": parts,
        "share": {name: value / total for name, value in parts.items()},
    }


def kernel_shape(kernel: Kernel, rows: np.ndarray, points: int = KERNEL_POINTS) -> dict[str, Any]:
    """The parts of K for two rows, over what they have in common ("axis"): see `Kernel.curve`.

    For a `MomentKernel` that is the correlation rho of two pre-activations, whose variance is the mean over
    the standardised ``rows`` (s, I); for the others the distance of the two rows.
    """
    curve = kernel.curve(rows, points)
    shape = {
        "axis": curve.axis,
        "x": curve.x.tolist(),
        "parts": {name: values.tolist() for name, values in curve.parts.items()},
    }
    if curve.axis == "correlation":
        shape |= {"rho": curve.x.tolist(), "preactivation_variance": curve.variance}
    return shape


def _function(fitted: FittedGP, X: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, ...]:
    """Posterior mean of f in the units of y and the ends of its interval, without noise, each (s,)."""
    function = fitted.predictive(X).latent
    return function.mean, *function.interval(level)


def _sample(model: Any, X: ArrayLike, y: ArrayLike | None, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
    """At most SAMPLE_ROWS rows in random order, as numbers."""
    X = np.asarray(X, float)
    if X.ndim != 2 or X.shape[1] != model.n_features_in_ or len(X) < 2:
        raise ValueError(
            f"X_sample has shape {X.shape}; pass at least two rows of {model.n_features_in_} inputs."
        )
    order = np.random.default_rng(seed).permutation(len(X))[:SAMPLE_ROWS]
    if y is None:
        return X[order], None
    y = np.asarray(y, float)
    if y.shape[:1] != (len(X),) or y.ndim > 2 or not np.isfinite(y).all():
        raise ValueError(f"y has shape {y.shape}, or gaps; pass one number for each of the {len(X)} rows.")
    return X[order], y[order]
