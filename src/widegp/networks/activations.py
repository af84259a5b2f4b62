"""Activations by name: the function that a finite network applies, and the moment of its limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erf, expit

from widegp.kernels import FromActivation, Kernel, LeakyReLU, ReLU, Sigmoid, Tanh, exact_sigmoid, exact_tanh
from widegp.networks.priors import Prior, largest_power

NAMES = ("tanh", "sigmoid", "relu", "leaky_relu", "erf", "erf_sigmoid")

_FAR = 2.0**20


class Activation(NamedTuple):
    """h and the kernel, at unit variances, that is the limit of a network of such units.

    fn : NumPy in, NumPy out, elementwise.
    """

    fn: Callable[[np.ndarray], np.ndarray]
    kernel: Kernel


def resolve(activation: str | Callable, alpha: float) -> Activation:
    """An activation by name, or a function written with ``jax.numpy``.

    "erf" is erf(sqrt(pi) z / 2) and "erf_sigmoid" (1 + erf(sqrt(pi) z / 4)) / 2: what eqs. (LCov1), (LCov2)
    put for tanh and the sigmoid, and so the activations of which `Tanh` and `Sigmoid` are the exact limits.
    Those of "tanh" and "sigmoid" are `exact_tanh` and `exact_sigmoid`.
    """
    if not isinstance(activation, str):
        kernel = FromActivation(activation)  # type: ignore[call-arg]
        return Activation(_from_jax(activation), kernel)
    match activation:
        case "tanh":
            return Activation(np.tanh, exact_tanh)
        case "sigmoid":
            return Activation(expit, exact_sigmoid)
        case "relu":
            return Activation(lambda z: np.maximum(z, 0), ReLU())
        case "leaky_relu":
            return Activation(lambda z: np.maximum(z, alpha * z), LeakyReLU(alpha=alpha))  # type: ignore[call-arg]
        case "erf":
            return Activation(lambda z: erf(math.sqrt(math.pi) / 2 * z), Tanh())
        case "erf_sigmoid":
            return Activation(lambda z: (1 + erf(math.sqrt(math.pi) / 4 * z)) / 2, Sigmoid())
    raise ValueError(
        f"Unknown activation {activation!r}; choose one of {', '.join(NAMES)}, or pass a function"
        " written with jax.numpy."
    )


def check_second_moment(activation: Activation, prior: Prior) -> None:
    """Raise ValueError if E[h(Z)^2] is infinite under a hidden prior that is not Gaussian.

    |h(z)| ~ |z|^p needs a finite moment of order 2p. The growth p is read off z = +-2^20, +-2^21; Laplace
    weights are asked for a finite p, which is more than exp(z) needs where sigma_u2 is small.
    """
    if prior in ("gaussian", "uniform"):
        return
    z = _FAR * np.array([-2.0, -1.0, 1.0, 2.0])
    with np.errstate(over="ignore", invalid="ignore"):
        size = 1 + np.abs(activation.fn(z))
        power = float(np.max(np.log2([size[0] / size[1], size[3] / size[2]])))
    if not np.isfinite(power) or 2 * power >= largest_power(prior):
        raise ValueError(
            f"E[h(Z)^2] is infinite for this activation under hidden_prior={prior!r}: it grows too fast for"
            " its tails. Use a bounded activation, more degrees of freedom, or a Gaussian prior."
        )


def _from_jax(fn: Callable) -> Callable[[np.ndarray], np.ndarray]:
    def evaluate(z: np.ndarray) -> np.ndarray:
        import jax
        import jax.numpy as jnp

        with jax.enable_x64(True):
            return np.asarray(fn(jnp.asarray(z)))

    return evaluate


Named = str | Callable[[Any], Any]
