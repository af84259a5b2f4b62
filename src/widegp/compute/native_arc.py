"""The five arc functions and their derivatives, vectorised for the CPU.

Entries of a kernel matrix are taken a line at a time. Row quantities, computed once per row:
root = sqrt(d) with d = sigma_a2 + |x|^2, and tanh, sigmoid = sqrt(t / (1 + t d)) for t = pi/2, pi/8. Then
s = c tanh tanh' and rho = c / (root root') need no square root per entry.

Written as branch-free loops so that LLVM turns them into SIMD: XLA's arcsine alone costs more than
everything here.
"""

from __future__ import annotations

import math

import numpy as np

from widegp.kernels.arc import ARCSIN_SERIES
from widegp.neighbors.jit import get_num_threads, njit, prange

# Arithmetic may be contracted and summed in any order; none of these functions sees a NaN.
FAST = {"contract", "nsz", "nnan", "ninf", "arcp", "reassoc"}
HALF_PI = math.pi / 2
TWO_PI = 2 * math.pi
CHUNK = 64  # rows per product: a few hundred kilobytes, which stay in cache
ONE = 1.0 - 16 * 2.0**-52

P0, P1, P2, P3, P4, P5, P6, P7, P8, P9, P10, P11 = ARCSIN_SERIES


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
    """rho limited to [-1, 1]: rounding carries that of collinear rows past 1, or a few eps short of it."""
    a = abs(rho)
    a = a if a < ONE else 1.0
    return a if rho > 0 else -a


@njit(cache=True, fastmath=FAST, error_model="numpy")
def line(c, coefficients, scale, tanh, sigmoid, out):
    """out_p = sum_k coefficients_k g_k at entries p; all (p,).

    c = Cov(Z, Z'); scale, tanh, sigmoid are the products over the pair of the row quantities.
    """
    k0, k1, k2, k3, k4 = coefficients
    for p in range(c.size):
        out[p] = k0 + k3 * c[p]
    if k1 != 0:
        for p in range(c.size):
            out[p] += k1 * arcsin(c[p] * tanh[p])
    if k2 != 0:
        for p in range(c.size):
            out[p] += k2 * arcsin(c[p] * sigmoid[p])
    if k4 != 0:
        for p in range(c.size):
            rho = clipped(c[p] / scale[p])
            sine = math.sqrt((1 - rho) * (1 + rho))
            out[p] += k4 / TWO_PI * scale[p] * (sine + rho * (HALF_PI + arcsin(rho)))


@njit(cache=True, fastmath=FAST, error_model="numpy")
def line_pullback(cotangent, c, coefficients, scale, tanh, sigmoid, c_bar, slopes, sums):
    """Cotangents of everything that the entries of a line depend on.

    Given cotangent_p = dF/dK_p: adds dF/dcoefficients to sums (5,), writes c_bar_p = dF/dc_p, and three
    slopes (3, p) from which dF/dd follows for both rows of a pair,
        dF/dd = slopes_0 tanh^2 + slopes_1 sigmoid^2 + slopes_2 / d    (the row's own tanh, sigmoid, d):
    d arcsin(s)/dd = -s tanh^2 / 2 cos,  dJ/dd = sqrt(d e - c^2) / (4 pi d),  dJ/dc = (pi - arccos rho)/2 pi.
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
    if k1 != 0:
        sums[1] += _arcsine_pullback(cotangent, c, k1, tanh, c_bar, slopes[0])
    if k2 != 0:
        sums[2] += _arcsine_pullback(cotangent, c, k2, sigmoid, c_bar, slopes[1])
    if k4 != 0:
        by_angle = 0.0
        for p in range(c.size):
            rho = clipped(c[p] / scale[p])
            sine = math.sqrt((1 - rho) * (1 + rho))
            angle = HALF_PI + arcsin(rho)
            by_angle += cotangent[p] * scale[p] * (sine + rho * angle)
            c_bar[p] += cotangent[p] * k4 / TWO_PI * angle
            slopes[2, p] = cotangent[p] * k4 / (2 * TWO_PI) * scale[p] * sine
        sums[4] += by_angle / TWO_PI


@njit(fastmath=FAST, error_model="numpy")
def _arcsine_pullback(cotangent, c, k, product, c_bar, slope):
    by_value = 0.0
    for p in range(c.size):
        s = c[p] * product[p]
        secant = 1 / math.sqrt((1 - s) * (1 + s))
        by_value += cotangent[p] * arcsin(s)
        c_bar[p] += cotangent[p] * k * secant * product[p]
        slope[p] = -0.5 * cotangent[p] * k * s * secant
    return by_value


@njit(fastmath=FAST, error_model="numpy")
def _pair(left, i, right, out):
    """Products of the row quantities of row i with those of all rows on the right: (3, p)."""
    for k in range(3):
        for p in range(right.shape[1]):
            out[k, p] = left[k, i] * right[k, p]


@njit(cache=True, parallel=True, error_model="numpy")
def values(left_points, right_points, sigma_a2, coefficients, left, right, n_threads):
    """K (n, p) of scaled points (n, I), (p, I) with row quantities left (3, n), right (3, p).

    Each thread multiplies a few rows at a time (one-threaded BLAS) and finishes them while in cache.
    """
    n, width = left_points.shape[0], right_points.shape[0]
    K = np.empty((n, width))
    for t in prange(n_threads):
        pair, c = np.empty((3, width)), np.empty(width)
        scale, tanh, sigmoid = pair[0], pair[1], pair[2]
        stop = n * (t + 1) // n_threads
        for lo in range(n * t // n_threads, stop, CHUNK):
            hi = min(lo + CHUNK, stop)
            np.dot(left_points[lo:hi], right_points.T, K[lo:hi])
            for i in range(lo, hi):
                _pair(left, i, right, pair)
                for p in range(width):
                    c[p] = K[i, p] + sigma_a2
                line(c, coefficients, scale, tanh, sigmoid, K[i])
    return K


@njit(cache=True, parallel=True, error_model="numpy")
def pullback(cotangent, left_points, right_points, sigma_a2, coefficients, left, right, by_input, n_threads):
    """`line_pullback` over all rows, for cotangent (n, p).

    Returns per thread the sums (t, 7): dF/d(five coefficients, log sigma_u2, sigma_a2); and
    dF/dlog sigma_u2 of each input (t, I), filled when ``by_input``.
    """
    n, width, n_inputs = left_points.shape[0], right_points.shape[0], left_points.shape[1]
    sums, inputs = np.zeros((n_threads, 7)), np.zeros((n_threads, n_inputs))
    for t in prange(n_threads):
        pair, slopes = np.empty((3, width)), np.zeros((3, width))
        c, given, d_right = np.empty(width), np.empty(width), np.zeros(width)
        inner, c_bar, moved = np.empty((CHUNK, width)), np.empty((CHUNK, width)), np.empty((CHUNK, n_inputs))
        own, by_x = np.zeros(7), np.zeros(n_inputs)
        scale, tanh, sigmoid = pair[0], pair[1], pair[2]
        stop = n * (t + 1) // n_threads
        for lo in range(n * t // n_threads, stop, CHUNK):
            count = min(lo + CHUNK, stop) - lo
            np.dot(left_points[lo : lo + count], right_points.T, inner[:count])
            for k in range(count):
                i = lo + k
                _pair(left, i, right, pair)
                for p in range(width):
                    c[p] = inner[k, p] + sigma_a2
                    given[p] = cotangent[i, p]
                line_pullback(given, c, coefficients, scale, tanh, sigmoid, c_bar[k], slopes, own)
                d_left = _spread(slopes, left, i, right, d_right)
                _add_scalars(c_bar, inner, k, d_left, left[0, i] ** 2 - sigma_a2, own)
                if by_input:
                    for p in range(n_inputs):
                        by_x[p] += d_left * left_points[i, p] ** 2
            if by_input:
                np.dot(c_bar[:count], right_points, moved[:count])
                for k in range(count):
                    for p in range(n_inputs):
                        by_x[p] += moved[k, p] * left_points[lo + k, p]
        for p in range(width):
            own[5] += d_right[p] * (right[0, p] ** 2 - sigma_a2)
            own[6] += d_right[p]
            if by_input:
                for q in range(n_inputs):
                    by_x[q] += d_right[p] * right_points[p, q] ** 2
        sums[t] = own
        inputs[t] = by_x
    return sums, inputs


@njit(fastmath=FAST, error_model="numpy")
def _add_scalars(c_bar, inner, k, d_left, length, sums):
    """Add dF/dlog sigma_u2 and dF/dsigma_a2 of one row."""
    by_u, by_a = 0.0, 0.0
    for p in range(c_bar.shape[1]):
        by_u += c_bar[k, p] * inner[k, p]
        by_a += c_bar[k, p]
    sums[5] += by_u + d_left * length
    sums[6] += by_a + d_left


@njit(fastmath=FAST, error_model="numpy")
def _spread(slopes, left, i, right, d_right):
    """Add dF/dd of the rows on the right to d_right; return dF/dd of row i."""
    tanh, sigmoid, root = 0.0, 0.0, 0.0
    for p in range(d_right.size):
        tanh += slopes[0, p]
        sigmoid += slopes[1, p]
        root += slopes[2, p]
        d_right[p] += (
            slopes[0, p] * right[1, p] ** 2
            + slopes[1, p] * right[2, p] ** 2
            + slopes[2, p] / right[0, p] ** 2
        )
    return tanh * left[1, i] ** 2 + sigmoid * left[2, i] ** 2 + root / left[0, i] ** 2


def threads() -> int:
    """Threads that the parallel loops will use."""
    return int(get_num_threads())


def row_scales(d: np.ndarray) -> np.ndarray:
    """sqrt(d), sqrt(t/(1+td)) for tanh and for sigmoid: d (n,) -> (3, n)."""
    # A zero row with sigma_a2 = 0 has d = 0; a positive stand-in keeps rho = 0/scale finite there.
    root = np.sqrt(np.maximum(d, np.finfo(float).tiny))
    return np.stack([root] + [np.sqrt(t / (1 + t * d)) for t in (HALF_PI, math.pi / 8)])
