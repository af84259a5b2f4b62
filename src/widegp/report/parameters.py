"""The estimates beside their priors, and what each of them means in plain words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import logit

from widegp.estimator import WideGPRegressor
from widegp.inference.parameters import FRACTION, FREE, Kind, kind_of
from widegp.inference.priors import Beta, InverseGamma, Prior, resolve_priors
from widegp.report.formatting import number, percent

TITLES = {
    "sigma_a2": "hidden biases", "sigma_u2": "hidden weights", "sigma_b2": "output bias",
    "sigma_v2": "output weights", "sigma_eps2": "noise", "alpha": "leaky slope", "w": "smooth share",
    "weights": "mixing weights", "psi": "warp of the target",
}  # fmt: skip
MEANINGS = {
    "sigma_a2": "How far from the centre of the data the function bends (variance of the hidden biases).",
    "sigma_u2": "How quickly the function changes along the inputs (variance of the hidden weights).",
    "sigma_b2": "How far the overall level may lie from the mean of the target.",
    "sigma_v2": "How large the function may grow (variance of the output weights).",
    "alpha": "What is left of the slope beyond a kink: 0 is a sharp kink, 1 a straight line.",
    "w": "Balance of the two parts: 1 is all smooth (tanh), 0 all angular (leaky ReLU).",
    "weights": "Balance of the activations.",
    "sigma_eps2": "What the inputs cannot explain (variance, target scaled to unit variance).",
    "psi": "The monotone map under which the target is Gaussian.",
}
PSI = {
    "yeo-johnson": ("Its power; 1 leaves the target as it is.",),
    "box-cox": ("Its power; 1 leaves the target as it is, 0 is the logarithm.",),
    "sinh-arcsinh": ("Takes out skewness; 0 leaves it.", "Below 1 it pulls in heavy tails; 1 leaves them."),
}
POINTS = 121
SPREAD = 3.5


def describe_parameters(model: WideGPRegressor) -> list[dict[str, Any]]:
    """One entry per parameter: value, standard error, prior, words, and the two densities over a grid."""
    priors = resolve_priors(model.priors, int(model.n_features_in_), model.ard)
    entries = [_entry(model, name, value, priors.get(name)) for name, value in model.params_.items()]
    words = PSI.get(model.transform_.name, ())
    for j, (plain, value) in enumerate(zip(words, model.transform_.psi, strict=False)):
        entries.append(_entry(model, f"psi[{j}]", float(value), None) | {"plain": plain})
    return entries


def _entry(model: WideGPRegressor, name: str, value: Any, prior: Prior | None) -> dict[str, Any]:
    root = name.split("[")[0]
    many = np.ndim(value) > 0
    # A vector has one standard error, that of its common scale, which belongs to no entry.
    error = None if many else model.result_.standard_errors.get(name)
    values = np.atleast_1d(np.asarray(value, float))
    return {
        "name": name,
        "title": TITLES.get(root, root),
        "value": values.tolist() if many else float(value),
        "standard_error": error,
        "meaning": MEANINGS.get(root, ""),
        "plain": _words(model, root, values),
        "prior": _prior_words(prior),
        "curves": _curves(kind_of(root), values, error, prior),
    }


def _curves(kind: Kind, values: np.ndarray, error: float | None, prior: Prior | None) -> dict[str, Any]:
    """Densities of prior and Laplace approximation, each scaled to a largest value of 1.

    Both are densities of the parameter x itself, whose maximum the estimate is, even where the axis is
    logarithmic. The approximation is exp(-(z - z_map)^2 / (2 s^2)) in z = log x (logit x for a fraction), the
    coordinate that it was computed in.
    """
    if kind is FREE:
        scale, x = "linear", values[0] + (error or 1.0) * np.linspace(-SPREAD, SPREAD, POINTS)
        z = x
    elif kind is FRACTION:
        scale, x = "unit", np.linspace(0.002, 0.998, POINTS)
        z = logit(x)
    else:
        scale, x = "log", _log_grid(values, error, prior)
        z = np.log(x)
    curves: dict[str, Any] = {"scale": scale, "x": x.tolist(), "prior": None, "posterior": None}
    if isinstance(prior, InverseGamma):
        curves["prior"] = _peak_one(stats.invgamma.pdf(x, prior.shape, scale=prior.scale))
    elif isinstance(prior, Beta):
        curves["prior"] = _peak_one(stats.beta.pdf(x, prior.a, prior.b))
    if error:
        centre, slope = _unconstrained(kind, float(values[0]))
        curves["posterior"] = _peak_one(np.exp(-0.5 * ((z - centre) / (error * slope)) ** 2))
    return curves


def _unconstrained(kind: Kind, value: float) -> tuple[float, float]:
    """z of a value and dz / d value, with z = x, logit x or log x."""
    if kind is FREE:
        return value, 1.0
    if kind is FRACTION:
        return float(logit(value)), 1 / (value * (1 - value))
    return math.log(value), 1 / value


def _log_grid(values: np.ndarray, error: float | None, prior: Prior | None) -> np.ndarray:
    """Around the estimates and the middle of the prior, the latter within three decades of the former."""
    low, high = float(values.min()), float(values.max())
    reach = 10 ** min(2.0, max(0.5, SPREAD * (error or 0.0) / values[0] / math.log(10)))
    start, end = low / reach, high * reach
    if isinstance(prior, InverseGamma):
        middle = stats.invgamma.ppf([0.02, 0.9], prior.shape, scale=prior.scale)
        start, end = min(start, max(middle[0], low * 1e-3)), max(end, min(middle[1], high * 1e3))
    return np.geomspace(start, end, POINTS)


def _peak_one(density: np.ndarray) -> list[float] | None:
    top = float(density.max())
    return (density / top).tolist() if math.isfinite(top) and top > 0 else None


def _prior_words(prior: Prior | None) -> str | None:
    if isinstance(prior, InverseGamma):
        return f"Inverse-Gamma({prior.shape:.3g}, {prior.scale:.3g})"
    return f"Beta({prior.a:.3g}, {prior.b:.3g})" if isinstance(prior, Beta) else None


def _words(model: WideGPRegressor, root: str, values: np.ndarray) -> str:
    """What this very estimate says."""
    x = float(values[0])
    if root == "w":
        return f"Here {percent(x, 1)} smooth, {percent(1 - x, 1)} angular."
    if root == "alpha":
        shape = "almost straight" if x > 0.8 else "a sharp kink" if x < 0.2 else "a soft kink"
        return f"Here {percent(x)} of the slope is left: {shape}."
    if root == "sigma_eps2":
        share = math.sqrt(x)
        if model.transform_.name == "none":
            sd = number(share * model.fitted_.target.sd)
            return f"Here a standard deviation of {sd} in units of the target."
        return f"Here {percent(share)} of the spread of the warped target."
    if root == "sigma_u2" and len(values) > 1:
        return f"One per input, {len(values)} in all."
    return ""
