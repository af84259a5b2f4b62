"""Which prior each parameter of a fit has: the declared ones, unless the user says otherwise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from widegp.inference.parameters import Values, declared_parameters
from widegp.inference.protocol import paper_priors
from widegp.kernels.base import Kernel
from widegp.kernels.priors import Beta, InverseGamma, LogNormal, Prior, Relative


def default_priors(kernel: Kernel, n_inputs: int, ard: bool) -> dict[str, Prior]:
    """The weak priors that the kernel's parameters and the noise declare, see `widegp.kernels.parameters`."""
    declared = declared_parameters(kernel).items()
    found = {name: parameter.default_prior(n_inputs, ard) for name, parameter in declared}
    return {name: prior for name, prior in found.items() if prior is not None}


def resolve_priors(
    priors: object, kernel: Kernel, n_inputs: int, ard: bool, noise_start: float | None = None
) -> dict[str, Prior]:
    """``"default"``, ``"paper"`` (`paper_priors`), None (no priors), or a mapping that replaces some defaults
    (None switches one off).

    ``noise_start`` is where the variance of the noise begins in the fit, or None where it is not estimated:
    the paper's prior of the noise has its mode there.
    """
    if priors is None or priors == "none":
        return {}
    defaults = default_priors(kernel, n_inputs, ard)
    if priors == "default":
        return defaults
    if priors == "paper":
        priors = {"sigma_eps2": None} | paper_priors(noise_start)
    if not isinstance(priors, Mapping):
        raise ValueError(
            "priors must be 'default', 'paper', None or a mapping of names to LogNormal, InverseGamma"
            f" or Beta; got {priors!r}."
        )
    known = declared_parameters(kernel)
    for name, prior in priors.items():
        if name not in defaults:
            raise ValueError(
                f"There is no parameter {name!r} to put a prior on; choose from {', '.join(defaults)}."
            )
        wanted = known[name].kind.priors
        if prior is not None and not isinstance(prior, wanted):
            classes = " or ".join(cls.__name__ for cls in wanted)
            raise ValueError(f"The prior of {name} must be {classes} or None; got {prior!r}.")
    merged = {**defaults, **priors}
    return {name: prior for name, prior in merged.items() if prior is not None}


def penalty(priors: Mapping[str, Prior], values: Values) -> tuple[float, Values]:
    """Sum of the priors' penalties and its derivative by every value."""
    total, slopes = 0.0, {}
    for name, value in values.items():
        prior = priors.get(name)
        if prior is None:
            slopes[name] = np.zeros_like(value)
        else:
            total += prior.penalty(value)
            slopes[name] = prior.slope(value)
    return total, slopes


__all__ = [
    "Beta", "InverseGamma", "LogNormal", "Prior", "Relative", "default_priors", "penalty", "resolve_priors",
]  # fmt: skip
