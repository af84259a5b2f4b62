"""The five arc functions and their derivatives, vectorised for the CPU.

One line of a kernel matrix at a time: the row x_i against many x_l. Row quantities, computed once
per row: root = sqrt(d) with d = sigma_a2 + |x|^2, and tanh, sigmoid = sqrt(t / (1 + t d)) for
t = pi/2, pi/8. Then s = c tanh_i tanh_l and rho = c / (root_i root_l) need no square root per entry.

Written as branch-free loops so that LLVM turns them into SIMD: XLA's arcsine alone costs more than
everything here.
"""

from __future__ import annotations

import math

import numpy as np
from numba import get_num_threads, njit, prange

# Arithmetic may be contracted and summed in any order; none of these functions sees a NaN.
FAST = {"contract", "nsz", "nnan", "ninf", "arcp", "reassoc"}
HALF_PI = math.pi / 2
TWO_PI = 2 * math.pi

# (arcsin x - x) / x^3 as a polynomial of x^2 on [0, 1/4], error 2.3e-16: mpmath.chebyfit, 12 terms.
P0, P1, P2, P3 = 0.1666666666666665, 0.07500000000020764, 0.044642857103423646, 0.03038194736709848
P4, P5, P6, P7 = 0.02237204763174451, 0.017355259955786323, 0.013929652902326633, 0.011875494382636922
P8, P9, P10, P11 = 0.0078029494773533175, 0.01603551434914882, -0.010749050339697808, 0.028169218060881414


@njit(inline="always", fastmath=FAST, error_model="numpy")
def arcsin(s):
    """arcsin(s), |s| <= 1, to 3e-16: the polynomial below 1/2, the half angle above."""
    a = abs(s)
    large = a > 0.5
    z = (1 - a) * 0.5 if large else a * a
    x = math.sqrt(z)
    p = P11
    p = p * z + P10
    p = p * z + P9
    p = p * z + P8
    p = p * z + P7
    p = p * z + P6
    p = p * z + P5
    p = p * z + P4
    p = p * z + P3
    p = p * z + P2
    p = p * z + P1
    p = p * z + P0
    half = x + x * z * p
    value = HALF_PI - 2 * half if large else half
    return value if s > 0 else -value


@njit(inline="always", fastmath=FAST, error_model="numpy")
def clipped(rho):
    """rho limited to [-1, 1]; rounding can carry it past."""
    a = abs(rho)
    a = a if a < 1.0 else 1.0
    return a if rho > 0 else -a


@njit(cache=True, fastmath=FAST, error_model="numpy")
def line(c, coefficients, root_i, tanh_i, sigmoid_i, root, tanh, sigmoid, out):
    """out_l = sum_k coefficients_k g_k(c_l, d_i, d_l); c includes sigma_a2; all (p,)."""
    k0, k1, k2, k3, k4 = coefficients
    for p in range(c.size):
        out[p] = k0 + k3 * c[p]
    if k1 != 0:
        for p in range(c.size):
            out[p] += k1 * arcsin(c[p] * tanh_i * tanh[p])
    if k2 != 0:
        for p in range(c.size):
            out[p] += k2 * arcsin(c[p] * sigmoid_i * sigmoid[p])
    if k4 != 0:
        for p in range(c.size):
            scale = root_i * root[p]
            rho = clipped(c[p] / scale)
            sine = math.sqrt((1 - rho) * (1 + rho))
            out[p] += k4 / TWO_PI * scale * (sine + rho * (HALF_PI + arcsin(rho)))


@njit(cache=True, fastmath=FAST, error_model="numpy")
def line_pullback(
    cotangent, c, coefficients, root_i, tanh_i, sigmoid_i, root, tanh, sigmoid, c_bar, d_bar, sums
):
    """Cotangents of everything a line depends on.

    Given cotangent_l = dF/dK_l: writes c_bar_l = dF/dc_l; adds dF/dd_l to d_bar; adds
    dF/dcoefficients to sums[:5]; returns dF/dd_i. With f = sqrt(t/(1+td)): d asin(s)/dd = -s f^2/2 cos;
    dJ/dc = (pi - arccos rho)/2 pi, dJ/dd = root root' sin / (4 pi d).
    """
    k0, k1, k2, k3, k4 = coefficients
    by_one = 0.0
    by_c = 0.0
    for p in range(c.size):
        by_one += cotangent[p]
        by_c += cotangent[p] * c[p]
        c_bar[p] = k3 * cotangent[p]
    sums[0] += by_one
    sums[3] += by_c
    d_i = 0.0
    if k1 != 0:
        d_i += _arcsine_pullback(cotangent, c, k1, tanh_i, tanh, c_bar, d_bar, sums, 1)
    if k2 != 0:
        d_i += _arcsine_pullback(cotangent, c, k2, sigmoid_i, sigmoid, c_bar, d_bar, sums, 2)
    if k4 != 0:
        by_angle = 0.0
        by_root = 0.0
        for p in range(c.size):
            scale = root_i * root[p]
            rho = clipped(c[p] / scale)
            sine = math.sqrt((1 - rho) * (1 + rho))
            angle = HALF_PI + arcsin(rho)
            by_angle += cotangent[p] * scale * (sine + rho * angle)
            c_bar[p] += cotangent[p] * k4 / TWO_PI * angle
            weight = cotangent[p] * k4 / (2 * TWO_PI) * scale * sine
            by_root += weight
            d_bar[p] += weight / (root[p] * root[p])
        sums[4] += by_angle / TWO_PI
        d_i += by_root / (root_i * root_i)
    return d_i


@njit(inline="always", fastmath=FAST, error_model="numpy")
def _arcsine_pullback(cotangent, c, k, f_i, f, c_bar, d_bar, sums, which):
    by_value = 0.0
    by_slope = 0.0
    for p in range(c.size):
        s = c[p] * f_i * f[p]
        secant = 1 / math.sqrt((1 - s) * (1 + s))
        by_value += cotangent[p] * arcsin(s)
        c_bar[p] += cotangent[p] * k * secant * f_i * f[p]
        slope = -0.5 * cotangent[p] * k * s * secant
        by_slope += slope
        d_bar[p] += slope * f[p] * f[p]
    sums[which] += by_value
    return by_slope * f_i * f_i


@njit(cache=True, parallel=True, error_model="numpy")
def values(inner, sigma_a2, coefficients, left, right):
    """Turn inner products (n, p) into kernel values in place; left, right (3, n), (3, p)."""
    for i in prange(inner.shape[0]):
        row = inner[i]
        c = row + sigma_a2
        line(c, coefficients, left[0, i], left[1, i], left[2, i], right[0], right[1], right[2], row)


@njit(cache=True, parallel=True, error_model="numpy")
def pullback(cotangent, inner, sigma_a2, coefficients, left, right, c_bar, d_left, d_right, sums):
    """`line_pullback` over all rows.

    cotangent, inner, c_bar (n, p); d_left (n,); one slice per thread of d_right (t, p) and
    sums (t, 6), where sums[:, 5] collects sum c_bar * inner, the isotropic derivative by sigma_u2.
    """
    threads = sums.shape[0]
    n = inner.shape[0]
    for t in prange(threads):
        for i in range(n * t // threads, n * (t + 1) // threads):
            c = inner[i] + sigma_a2
            d_left[i] = line_pullback(
                cotangent[i], c, coefficients, left[0, i], left[1, i], left[2, i],
                right[0], right[1], right[2], c_bar[i], d_right[t], sums[t],
            )  # fmt: skip
            sums[t, 5] += dot(c_bar[i], inner[i])


@njit(inline="always", fastmath=FAST, error_model="numpy")
def dot(u, v):
    total = 0.0
    for p in range(u.size):
        total += u[p] * v[p]
    return total


def threads() -> int:
    """Threads that the parallel loops will use."""
    return int(get_num_threads())


def row_scales(d: np.ndarray) -> np.ndarray:
    """sqrt(d), sqrt(t/(1+td)) for tanh and for sigmoid: d (n,) -> (3, n)."""
    # A zero row with sigma_a2 = 0 has d = 0; a positive stand-in keeps rho = 0/scale finite there.
    root = np.sqrt(np.maximum(d, np.finfo(float).tiny))
    return np.stack([root] + [np.sqrt(t / (1 + t * d)) for t in (HALF_PI, math.pi / 8)])
