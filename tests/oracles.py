"""References that share no code with the package: 50-digit formulas, finite networks, naive loops.

A kernel is a name and a dict of parameters, e.g. "leaky_relu" and {"sigma_a2": 1.0, ..., "alpha": 0.1}.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
from scipy.special import erf

DIGITS = 50

# What each closed form is the exact limit of: eqs. (LCov1), (LCov2) put erf for tanh and the sigmoid.
ACTIVATIONS: dict[str, Callable[..., np.ndarray]] = {
    "tanh": lambda z: erf(math.sqrt(math.pi) / 2 * z),
    "sigmoid": lambda z: (1 + erf(math.sqrt(math.pi) / 4 * z)) / 2,
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z, alpha: np.maximum(z, alpha * z),
}


def _asin(c: Any, d: Any, e: Any, t: Any) -> Any:
    return mp.asin(t * c / mp.sqrt((1 + t * d) * (1 + t * e)))


def _relu(c: Any, d: Any, e: Any) -> Any:
    scale = mp.sqrt(d * e)
    if scale == 0:
        return mp.mpf(0)
    rho = min(max(c / scale, mp.mpf(-1)), mp.mpf(1))
    return scale / (2 * mp.pi) * (mp.sqrt(1 - rho**2) + rho * (mp.pi - mp.acos(rho)))


def _moment(name: str, c: Any, d: Any, e: Any, p: dict) -> Any:
    """E[h(Z) h(Z')] by eqs. (LCov1) to (LCov4), (k_mix_reduced) and (kernel_block_mixture)."""
    match name:
        case "tanh":
            return 2 / mp.pi * _asin(c, d, e, mp.pi / 2)
        case "sigmoid":
            return mp.mpf(1) / 4 + _asin(c, d, e, mp.pi / 8) / (2 * mp.pi)
        case "relu":
            return _relu(c, d, e)
        case "leaky_relu":
            return p["alpha"] * c + (1 - p["alpha"]) ** 2 * _relu(c, d, e)
        case "mixed":
            smooth, angular = (_moment(part, c, d, e, p) for part in ("tanh", "leaky_relu"))
            return p["w"] * smooth + (1 - p["w"]) * angular
        case "mixture":
            parts = ("tanh", "sigmoid", "leaky_relu")
            fixed = {"alpha": mp.mpf(p["component_alpha"])}
            moments = (_moment(part, c, d, e, fixed) for part in parts)
            weighted = mp.fsum(w * m for w, m in zip(p["weights"], moments, strict=True))
            return weighted / mp.fsum(p["weights"])
    raise KeyError(name)


def _to_mp(value: Any) -> Any:
    return [mp.mpf(float(v)) for v in value] if np.ndim(value) else mp.mpf(float(value))


def _kernel(name: str, x: Any, y: Any, p: dict) -> Any:
    su = p["sigma_u2"] if isinstance(p["sigma_u2"], list) else [p["sigma_u2"]] * len(x)

    def inner(a: Any, b: Any) -> Any:
        return p["sigma_a2"] + mp.fsum(s * ai * bi for s, ai, bi in zip(su, a, b, strict=True))

    return p["sigma_b2"] + p["sigma_v2"] * _moment(name, inner(x, y), inner(x, x), inner(y, y), p)


def reference_value(name: str, x: np.ndarray, y: np.ndarray, parameters: dict) -> float:
    """K(x, y) for two rows, correct to the last digit of a double."""
    with mp.workdps(DIGITS):
        return float(_kernel(name, _to_mp(x), _to_mp(y), {k: _to_mp(v) for k, v in parameters.items()}))


def reference_gradient(name: str, x: np.ndarray, y: np.ndarray, parameters: dict) -> dict[str, Any]:
    """dK(x, y)/d(parameter) for every parameter; from the right where a parameter is 0."""
    with mp.workdps(DIGITS):
        x, y = _to_mp(x), _to_mp(y)
        p = {k: _to_mp(v) for k, v in parameters.items()}

        def slope(key: str, index: int | None) -> float:
            at = p[key] if index is None else p[key][index]

            def along(t: Any) -> Any:
                moved = t if index is None else [*p[key][:index], t, *p[key][index + 1 :]]
                return _kernel(name, x, y, {**p, key: moved})

            return float(mp.diff(along, at, direction=1 if at == 0 else 0))

        return {
            k: np.array([slope(k, i) for i in range(len(v))]) if isinstance(v, list) else slope(k, None)
            for k, v in p.items()
        }


def network_covariance(
    blocks: list[tuple[float, Callable]], X: np.ndarray, parameters: dict, n_units: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Output covariance of one finite network, and its standard error over hidden units, each (n, n).

    ``blocks`` holds (w_m, h_m) of eq. (block_mixture_prior). Hidden weights are drawn, output weights
    integrated out: entry (x, x') is sigma_b2 + sigma_v2 mean_j sum_m w_m h_m(z_j(x)) h_m(z_j(x')).
    """
    rng = np.random.default_rng(seed)
    bias = rng.normal(size=(n_units, 1)) * np.sqrt(parameters["sigma_a2"])
    weights = rng.normal(size=(n_units, X.shape[1])) * np.sqrt(parameters["sigma_u2"])
    z = bias + weights @ X.T
    hidden = [(w, h(z)) for w, h in blocks]
    products = sum(w * h[:, :, None] * h[:, None, :] for w, h in hidden)
    error = products.std(axis=0) / math.sqrt(n_units)
    scale = parameters["sigma_v2"]
    return parameters["sigma_b2"] + scale * products.mean(axis=0), scale * error


def naive_kernel(name: str, X: np.ndarray, Y: np.ndarray, parameters: dict) -> np.ndarray:
    """The matrix entry by entry, each from its own 50-digit formula."""
    return np.array([[reference_value(name, x, y, parameters) for y in Y] for x in X])


def gaussian_moment(f: Callable, g: Callable, c: float, d: float, e: float, nodes: int = 640) -> float:
    """E[f(Z) g(Z')] on a fine two-dimensional grid: Z = sigma u, Z' = sigma' (rho u + sqrt(1 - rho^2) v)."""
    du = 20.0 / nodes
    u = -10 + du * (np.arange(nodes) + 0.5)
    weight = du * np.exp(-u * u / 2) / math.sqrt(2 * math.pi)
    scale = math.sqrt(d) * math.sqrt(e)
    rho = min(max(c / scale, -1.0), 1.0) if scale > 0 else 0.0
    second = rho * u[:, None] + math.sqrt((1 - rho) * (1 + rho)) * u
    return float((weight * f(math.sqrt(d) * u)) @ (g(math.sqrt(e) * second) @ weight))
