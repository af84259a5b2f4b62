"""What a fitted model does: which inputs drive it, in which way, and how smooth it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from widegp.estimator import WideGPRegressor
from widegp.kernels.base import CURVE_POINTS as KERNEL_POINTS
from widegp.kernels.base import Kernel
from widegp.kernels.moment import MomentKernel

if TYPE_CHECKING:
    from widegp.data.columns import TableEncoding

# With several hundred neighbours a prediction costs milliseconds, so their number is bounded, not the rows.
EFFECT_PREDICTIONS = 6_000
MOST_REPEATS = 8
CURVE_ROWS = 50
CURVE_POINTS = 21
FEW_VALUES = 8

BAND = (
    "For each value of the input, every sampled row gets that value and its own other inputs; the line is the"
    " mean over the rows of the posterior mean of f. The ends of the band are the means over the rows of the"
    " ends of each row's {level:.0%} interval of f (no observation noise). Errors of different rows are taken"
    " to move together, so the band is at least as wide as the interval of the averaged function. The pale"
    " band holds the middle 80% of the rows' own curves, each shifted to the same mean: where it is wide, the"
    " effect of the input depends on the other inputs."
)
EFFECT = (
    "Share of the variance of the prediction that is lost when the input is shuffled between rows, its"
    " interactions included (total effect, Jansen's estimator). Shares add up to more than 100% where inputs"
    " interact, and to less or more where they are correlated."
)
WEIGHT = (
    "Share of sigma_u2, the prior variance of the hidden weights of this input. A large weight says that the"
    " function bends quickly along the input; a strong but straight effect needs little weight."
)


class Source(NamedTuple):
    """A column of a table and the inputs that it became: one per level of a category, parts of a date, ...

    ``is_number``: the first of ``inputs`` is the column's own value, and its curve that of the column.
    """

    name: str
    inputs: tuple[int, ...]
    is_number: bool = True


def source_columns(encoder: TableEncoding) -> list[Source]:
    """The columns that give inputs, with the places of these in the order of ``encoder.feature_names``."""
    found, at = [], 0
    for column in encoder.columns:
        own = len(column.value_features())
        width = own + column.indicator
        if width:
            is_number = own == 1 and column.kind in ("numeric", "boolean")
            found.append(Source(column.name, tuple(range(at, at + width)), is_number))
        at += width
    return found


def explain(
    model: WideGPRegressor,
    X_sample: ArrayLike,
    feature_names: Sequence[str] | None = None,
    *,
    sources: Sequence[Source] | None = None,
    top: int = 6,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Inputs by effect, balance of the kernel's parts, partial dependence of the ``top`` inputs; JSON-able.

    X_sample (s, I): rows like those that the model is used on, at least two; more than needed are thinned.
    "inputs" is sorted by total effect and has the ARD share of sigma_u2 as "weight" where there is one. The
    two differ on purpose: see EFFECT and WEIGHT, which stand in the result under "words". With ``sources``,
    see `source_columns`, columns of the table are ranked, each with all its inputs; curves are of single
    inputs, those of numbers first.
    """
    X = _sample(model, X_sample, seed)
    names = input_names(model, feature_names)
    if sources is None:
        sources = [Source(name, (j,)) for j, name in enumerate(names)]
    effects = total_effects(model, X, seed, [source.inputs for source in sources])
    weights = getattr(model, "input_importance_", None)
    order = np.argsort(-effects, kind="stable")
    inputs = [
        {
            "name": sources[k].name,
            "index": sources[k].inputs[0],
            "inputs": [names[j] for j in sources[k].inputs],
            "effect": float(effects[k]),
            "weight": None if weights is None else float(sum(weights[j] for j in sources[k].inputs)),
        }
        for k in order
    ]
    chosen = _drawn([sources[k] for k in order], names)[:top]
    curves = [partial_dependence(model, X, j, level) | {"name": name} for j, name in chosen]
    rows = model.fitted_.inputs.transform(X)
    return {
        "inputs": inputs,
        "partial_dependence": curves,
        "balance": balance(model, rows),
        "kernel_shape": kernel_shape(model.kernel_, rows),
        "rows": len(X),
        "level": float(level),
        "words": {"band": BAND.format(level=level), "effect": EFFECT, "weight": WEIGHT},
    }


def _drawn(ranked: Sequence[Source], names: Sequence[str]) -> list[tuple[int, str]]:
    """Inputs to draw, with the names of their curves: columns of numbers, then the others input by input.

    A curve along one level of a category makes rows that belong to two levels, so these come last.
    """
    numbers = [(source.inputs[0], source.name) for source in ranked if source.is_number]
    others = [(j, names[j]) for source in ranked if not source.is_number for j in source.inputs]
    return numbers + others


def input_names(model: WideGPRegressor, given: Sequence[str] | None = None) -> list[str]:
    """One name per input: those given, else those of the training frame, else "input 1", ..."""
    names = getattr(model, "feature_names_in_", None) if given is None else given
    n_inputs = int(model.n_features_in_)
    if names is None:
        return [f"input {j + 1}" for j in range(n_inputs)]
    if len(names) != n_inputs:
        raise ValueError(f"There are {len(names)} feature names for {n_inputs} inputs; pass one per input.")
    return [str(name) for name in names]


def total_effects(
    model: WideGPRegressor, X: np.ndarray, seed: int = 0, groups: Sequence[Sequence[int]] | None = None
) -> np.ndarray:
    """S_g = (1/2N) sum_i (f(x_i) - f(x_i with x_ij <- x_kj for j in g))^2 / Var f, (G,).

    Jansen's estimator of the total Sobol index: f is the posterior mean, X (N, I) in the units of the table,
    and k runs over the next rows after i in a random order. ``groups`` g lists inputs that move together, as
    those of one category must: a row of two levels, or of none, is no row. By default each input is alone.
    """
    groups = [[j] for j in range(X.shape[1])] if groups is None else [list(group) for group in groups]
    n_groups = len(groups)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(X))[: max(20, EFFECT_PREDICTIONS // (n_groups + 1))]
    X = X[rows]
    here = _function(model, X)[0]
    variance = float(np.var(here))
    effects = np.zeros(n_groups)
    if variance == 0:
        return effects
    repeats = int(np.clip(EFFECT_PREDICTIONS // (len(X) * n_groups), 1, min(MOST_REPEATS, len(X) - 1)))
    for g, group in enumerate(groups):
        # Shifts along a random order leave no row as it is, which permutations might.
        moved = np.tile(X, (repeats, 1))
        moved[:, group] = np.concatenate([np.roll(X[:, group], k + 1, axis=0) for k in range(repeats)])
        there = _function(model, moved)[0].reshape(repeats, -1)
        effects[g] = np.mean((here - there) ** 2) / (2 * variance)
    return effects


def partial_dependence(model: WideGPRegressor, X: np.ndarray, j: int, level: float = 0.95) -> dict[str, Any]:
    """Mean over rows of f(x_i with x_ij = t), t on a grid from the 2nd to the 98th percentile of the input.

    X (N, I) in the units of the table; an input of few values gets those. For the bands see BAND.
    """
    grid, discrete = _grid(X[:, j])
    rows = np.repeat(X[None, :CURVE_ROWS], len(grid), axis=0)
    rows[:, :, j] = grid[:, None]
    parts = _function(model, rows.reshape(-1, X.shape[1]), level)
    mean, lower, upper = (part.reshape(len(grid), -1) for part in parts)
    # Rows differ in level through their other inputs; only a difference in shape is an interaction.
    shapes = mean - mean.mean(0) + mean.mean()
    spread = np.quantile(shapes, [0.1, 0.9], axis=1)
    return {
        "index": j,
        "x": grid.tolist(),
        "discrete": discrete,
        "mean": mean.mean(1).tolist(),
        "lower": lower.mean(1).tolist(),
        "upper": upper.mean(1).tolist(),
        "rows_lower": spread[0].tolist(),
        "rows_upper": spread[1].tolist(),
    }


def kernel_parts(kernel: MomentKernel, c: np.ndarray, d: np.ndarray, e: np.ndarray) -> dict[str, np.ndarray]:
    """K(c, d, e) = level + smooth + angular, eq. (k_mix_reduced) with sigma_b2 and sigma_v2 multiplied out.

    c, d, e: covariance and variances of the pre-activations, of one shape. "smooth" has the arcsines of tanh
    and sigmoid, "angular" the terms of the (leaky) ReLU, "level" the constant. A kernel by quadrature has no
    such parts and comes as "level" and "network".
    """
    return kernel.entries(c, d, e)


def balance(model: WideGPRegressor, rows: np.ndarray) -> dict[str, Any]:
    """Mean prior variance K(x, x) over standardised rows (s, I) by part, and the noise: values and shares."""
    summands = model.kernel_.summands()
    parts = {name: float(np.mean(part.diag(rows))) for name, part in summands.items()}
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


def _function(model: WideGPRegressor, X: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, ...]:
    """Posterior mean of f in the units of y and the ends of its interval, without noise, each (s,)."""
    # Past the estimator's own checks: X is whole by now, and a frame's names would only raise a warning.
    function = model.fitted_.predictive(X).latent
    return function.mean, *function.interval(level)


def _grid(column: np.ndarray) -> tuple[np.ndarray, bool]:
    values = np.unique(column)
    if len(values) <= FEW_VALUES:
        return values, True
    low, high = np.quantile(column, [0.02, 0.98])
    return np.linspace(low, high, CURVE_POINTS), False


def _sample(model: WideGPRegressor, X: ArrayLike, seed: int) -> np.ndarray:
    """At most EFFECT_PREDICTIONS rows in random order, as numbers."""
    X = np.asarray(X, float)
    if X.ndim != 2 or X.shape[1] != model.n_features_in_ or len(X) < 2:
        raise ValueError(
            f"X_sample has shape {X.shape}; pass at least two rows of {model.n_features_in_} inputs."
        )
    return np.ascontiguousarray(X[np.random.default_rng(seed).permutation(len(X))[:EFFECT_PREDICTIONS]])
