"""The five functions that every closed-form limit kernel is a combination of.

With c = Cov(Z, Z'), d = Var Z, e = Var Z':

    1,  asin_t(c,d,e) for t = pi/2 (tanh) and t = pi/8 (sigmoid),  c,  J(c,d,e)
    asin_t = arcsin( t c / sqrt((1 + t d)(1 + t e)) )                     eqs. (LCov1), (LCov2)
    J      = (1/2 pi) [ sqrt(d e - c^2) + c (pi - arccos rho) ]           eq. (LCov3)

A kernel is therefore five numbers beside (sigma_a2, sigma_u2), and whoever can evaluate and
differentiate these five functions can evaluate and differentiate all of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from widegp.kernels.base import Array, Arrays

TANH_SCALE = math.pi / 2
SIGMOID_SCALE = math.pi / 8

# (arcsin x - x) / x^3 as a polynomial of x^2 on [0, 1/4], error 2.3e-16: mpmath.chebyfit, 12 terms.
ARCSIN_SERIES = (
    0.1666666666666665, 0.07500000000020764, 0.044642857103423646, 0.03038194736709848,
    0.02237204763174451, 0.017355259955786323, 0.013929652902326633, 0.011875494382636922,
    0.0078029494773533175, 0.01603551434914882, -0.010749050339697808, 0.028169218060881414,
)  # fmt: skip


class ArcForm(NamedTuple):
    """K = sum_k coefficients[k] g_k(c, d, e) with g = (1, asin_tanh, asin_sigmoid, c, J)."""

    sigma_a2: Array
    sigma_u2: Array
    coefficients: tuple[Array, Array, Array, Array, Array]


def combine(coefficients: tuple[Array, ...], c: Array, d: Array, e: Array) -> Array:
    """sum_k coefficients[k] g_k(c, d, e); a coefficient that is a plain 0 costs nothing."""
    constant, tanh, sigmoid, linear, angle = coefficients
    terms = constant + linear * c
    if not _is_zero(tanh):
        terms = terms + tanh * arcsine(c, d, e, TANH_SCALE)
    if not _is_zero(sigmoid):
        terms = terms + sigmoid * arcsine(c, d, e, SIGMOID_SCALE)
    if not _is_zero(angle):
        terms = terms + angle * angular(c, d, e)
    return terms


def arcsine(c: Array, d: Array, e: Array, t: float) -> Array:
    """arcsin(t c / sqrt((1 + t d)(1 + t e))), elementwise."""
    return arcsin(c * jnp.sqrt(t / (1 + t * d)) * jnp.sqrt(t / (1 + t * e)))


@jax.custom_jvp
def arcsin(s: Array) -> Array:
    """arcsin(s), |s| <= 1, in a tenth of the time that XLA's takes: the polynomial below 1/2, above it the
    half angle, arcsin s = pi/2 - 2 arcsin sqrt((1 - s)/2).
    """
    size = jnp.abs(s)
    large = size > 0.5
    z = jnp.where(large, (1 - size) / 2, size * size)
    part = _arcsin_series(jnp.where(large, jnp.sqrt(z), size), z)
    return jnp.where(large, math.pi / 2 - 2 * part, part) * jnp.sign(s)


@arcsin.defjvp
def _arcsin_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    (s,), (ds,) = primals, tangents
    return arcsin(s), ds * jax.lax.rsqrt((1 - s) * (1 + s))


def _arcsin_series(x: Array, z: Array) -> Array:
    """arcsin(x) for x in [0, 1/2] and z = x^2."""
    series = ARCSIN_SERIES[-1]
    for coefficient in ARCSIN_SERIES[-2::-1]:
        series = series * z + coefficient
    return x + x * z * series


@jax.custom_jvp
def angular(c: Array, d: Array, e: Array) -> Array:
    """J(c, d, e) = E[relu(Z) relu(Z')] = (1/2 pi) [sqrt(d e - c^2) + c (pi - arccos rho)].

    The derivatives that autodiff would form are 0/0 at rho = +-1; the true ones are smooth there:
    dJ/dc = (pi - arccos rho) / 2 pi,  dJ/dd = sqrt(d e - c^2) / (4 pi d).
    """
    root, angle = _root_and_angle(c, d, e)
    return (root + c * angle) / (2 * math.pi)


@angular.defjvp
def _angular_jvp(primals: Arrays, tangents: Arrays) -> tuple[Array, Array]:
    c, d, e = primals
    dc, dd, de = tangents
    root, angle = _root_and_angle(c, d, e)
    value = (root + c * angle) / (2 * math.pi)
    # d = 0 (a zero row with sigma_a2 = 0) has root = 0: its one-sided derivative is taken as 0.
    by_d, by_e = dd * _half_inverse(d), de * _half_inverse(e)
    return value, (angle * dc + root * (by_d + by_e)) / (2 * math.pi)


def _half_inverse(d: Array) -> Array:
    return jnp.where(d > 0, 0.5 / jnp.where(d > 0, d, 1), 0)


def _root_and_angle(c: Array, d: Array, e: Array) -> tuple[Array, Array]:
    """sqrt(d e - c^2) and pi - arccos(rho), both from one rho clipped to [-1, 1].

    Using the same clipped rho for both is what keeps J exact to rounding near rho = +-1: each
    part alone loses half the digits there, and the losses cancel. Roots and quotients are of rows, not of
    entries, of which there are many more.
    """
    left, right = jnp.sqrt(d), jnp.sqrt(e)
    inverses = 1 / jnp.where(d > 0, left, 1), 1 / jnp.where(e > 0, right, 1)
    rho = jnp.clip(c * inverses[0] * inverses[1], -1, 1)
    # c, d and e are rounded sums: rho = +-1 comes out some eps inside, and the angle sqrt(eps) off.
    gap = 1 - jnp.abs(rho)
    gap = jnp.where(gap < 16 * np.finfo(gap.dtype).eps, 0, gap)
    root = left * right * jnp.sqrt(gap * (2 - gap))
    # arccos near 1 keeps its digits through the half angle, arcsin near -1 likewise.
    close = gap < 0.5
    z = jnp.where(close, gap / 2, rho * rho)
    part = _arcsin_series(jnp.where(close, jnp.sqrt(z), jnp.abs(rho)), z)
    far = math.pi / 2 + jnp.sign(rho) * part
    return root, jnp.where(close, jnp.where(rho > 0, math.pi - 2 * part, 2 * part), far)


def _is_zero(coefficient: Array) -> bool:
    return isinstance(coefficient, int | float) and coefficient == 0
