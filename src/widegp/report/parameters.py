"""The estimates beside their priors, and what each of them means in plain words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from widegp.estimator import WideGPRegressor
from widegp.inference.parameters import PSI, SIGMA_EPS2, declared_parameters
from widegp.inference.priors import Prior, resolve_priors
from widegp.kernels.parameters import FRACTION, FREE, VARIANCE, Kind, Parameter
from widegp.report.formatting import number, percent

WARPS = {
    "yeo-johnson": ("Its power; 1 leaves the target as it is.",),
    "box-cox": ("Its power; 1 leaves the target as it is, 0 is the logarithm.",),
    "sinh-arcsinh": ("Takes out skewness; 0 leaves it.", "Below 1 it pulls in heavy tails; 1 leaves them."),
}
POINTS = 121
SPREAD = 3.5


def describe_parameters(model: WideGPRegressor) -> list[dict[str, Any]]:
    """One entry per parameter: value, standard error, credible interval, prior, words, and the two densities
    over a grid."""
    declared = declared_parameters(model.kernel_) | _of_likelihood(model)
    n_inputs, noise_start = int(model.n_features_in_), model.fitted_.noise_start
    priors = resolve_priors(model.priors, model.kernel_, n_inputs, model.ard, noise_start)
    entries = [
        _entry(model, declared[name], name, value, priors.get(name)) for name, value in model.params_.items()
    ]
    words = WARPS.get(model.transform_.name, ())
    for j, (plain, value) in enumerate(zip(words, model.transform_.psi, strict=False)):
        entries.append(_entry(model, PSI, f"psi[{j}]", float(value), None) | {"plain": plain})
    return entries


def _of_likelihood(model: WideGPRegressor) -> dict[str, Parameter]:
    """Parameters of a likelihood that is not Gaussian, by name."""
    likelihood = model.fitted_.likelihood
    own = () if likelihood is None else likelihood.parameters
    return {p.name: Parameter(p.name, VARIANCE, None, p.title, p.meaning) for p in own}


def _entry(
    model: WideGPRegressor, parameter: Parameter, name: str, value: Any, prior: Prior | None
) -> dict[str, Any]:
    many = np.ndim(value) > 0
    # A vector has one standard error, that of its common scale, which belongs to no entry.
    error = None if many else model.result_.standard_errors.get(name)
    ends = model.result_.credible_intervals.get(name)
    values = np.atleast_1d(np.asarray(value, float))
    return {
        "name": name,
        "title": parameter.title,
        "value": values.tolist() if many else float(value),
        "standard_error": error,
        "credible_interval": None if ends is None else list(ends),
        "meaning": parameter.meaning,
        "plain": _words(model, parameter, values),
        "prior": None if prior is None else prior.words(),
        "curves": _curves(parameter.kind, values, error, prior),
    }


def _curves(kind: Kind, values: np.ndarray, error: float | None, prior: Prior | None) -> dict[str, Any]:
    """Prior, as it enters the loss, and Laplace approximation, each scaled to a largest value of 1.

    Both are densities of the parameter x itself, whose maximum the estimate is, even where the axis is
    logarithmic. The approximation is exp(-(z - z_map)^2 / (2 s^2)) in the coordinate z of the kind, log x or
    logit x, in which it was computed.
    """
    if kind is FREE:
        scale, x = "linear", values[0] + (error or 1.0) * np.linspace(-SPREAD, SPREAD, POINTS)
    elif kind is FRACTION:
        scale, x = "unit", np.linspace(0.002, 0.998, POINTS)
    else:
        scale, x = "log", _log_grid(values, error, prior)
    curves: dict[str, Any] = {"scale": scale, "x": x.tolist(), "prior": None, "posterior": None}
    if prior is not None:
        penalties = prior.each(x)
        curves["prior"] = _peak_one(np.exp(penalties.min() - penalties))
    if error:
        centre = kind.map.inverse(values[0])
        spread = error / kind.map.slope(centre)
        curves["posterior"] = _peak_one(np.exp(-0.5 * ((kind.map.inverse(x) - centre) / spread) ** 2))
    return curves


def _log_grid(values: np.ndarray, error: float | None, prior: Prior | None) -> np.ndarray:
    """Around the estimates and the middle of the prior, the latter within three decades of the former."""
    low, high = float(values.min()), float(values.max())
    reach = 10 ** min(2.0, max(0.5, SPREAD * (error or 0.0) / values[0] / math.log(10)))
    start, end = low / reach, high * reach
    if prior is not None:
        middle = prior.distribution().ppf([0.02, 0.9])
        start, end = min(start, max(middle[0], low * 1e-3)), max(end, min(middle[1], high * 1e3))
    return np.geomspace(start, end, POINTS)


def _peak_one(density: np.ndarray) -> list[float] | None:
    top = float(density.max())
    return (density / top).tolist() if math.isfinite(top) and top > 0 else None


def _words(model: WideGPRegressor, parameter: Parameter, values: np.ndarray) -> str:
    """What this very estimate says."""
    x = float(values[0])
    if parameter is SIGMA_EPS2:
        share = math.sqrt(x)
        if model.transform_.name == "none":
            sd = number(share * model.fitted_.target.sd)
            return f"Here a standard deviation of {sd} in units of the target."
        return f"Here {percent(share)} of the spread of the warped target."
    if parameter.per_input and len(values) > 1:
        return f"One per input, {len(values)} in all."
    if parameter.reading is None:
        return ""
    return parameter.reading(x).format(share=percent(x, 1), rest=percent(1 - x, 1))
