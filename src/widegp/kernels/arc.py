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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = Any

TANH_SCALE = math.pi / 2
SIGMOID_SCALE = math.pi / 8


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
    return jnp.arcsin(c * jnp.sqrt(t / (1 + t * d)) * jnp.sqrt(t / (1 + t * e)))


@jax.custom_jvp
def angular(c: Array, d: Array, e: Array) -> Array:
    """J(c, d, e) = E[relu(Z) relu(Z')] = (1/2 pi) [sqrt(d e - c^2) + c (pi - arccos rho)].

    The derivatives that autodiff would form are 0/0 at rho = +-1; the true ones are smooth there:
    dJ/dc = (pi - arccos rho) / 2 pi,  dJ/dd = sqrt(d e - c^2) / (4 pi d).
    """
    root, angle = _root_and_angle(c, d, e)
    return (root + c * angle) / (2 * math.pi)


@angular.defjvp
def _angular_jvp(primals: tuple, tangents: tuple) -> tuple:
    c, d, e = primals
    dc, dd, de = tangents
    root, angle = _root_and_angle(c, d, e)
    value = (root + c * angle) / (2 * math.pi)
    # d = 0 (a zero row with sigma_a2 = 0) has root = 0: its one-sided derivative is taken as 0.
    by_d = root / jnp.where(d > 0, 2 * d, 1)
    by_e = root / jnp.where(e > 0, 2 * e, 1)
    return value, (angle * dc + by_d * dd + by_e * de) / (2 * math.pi)


def _root_and_angle(c: Array, d: Array, e: Array) -> tuple[Array, Array]:
    """sqrt(d e - c^2) and pi - arccos(rho), both from one rho clipped to [-1, 1].

    Using the same clipped rho for both is what keeps J exact to rounding near rho = +-1: each
    part alone loses half the digits there, and the losses cancel.
    """
    scale = jnp.sqrt(d) * jnp.sqrt(e)
    rho = jnp.clip(c / jnp.where(scale > 0, scale, 1), -1, 1)
    # c, d and e are rounded sums: rho = +-1 comes out some eps inside, and the angle sqrt(eps) off.
    gap = 1 - jnp.abs(rho)
    gap = jnp.where(gap < 16 * jnp.finfo(gap.dtype).eps, 0, gap)
    root = scale * jnp.sqrt(gap * (2 - gap))
    # arccos near 1 keeps its digits through the half angle, arcsin near -1 likewise.
    half = 2 * jnp.arcsin(jnp.sqrt(gap / 2))
    angle = jnp.where(rho > 0, math.pi - half, half)
    return root, angle


def _is_zero(coefficient: Array) -> bool:
    return isinstance(coefficient, int | float) and coefficient == 0
