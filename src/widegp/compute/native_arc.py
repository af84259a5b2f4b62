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

from widegp.jit import get_num_threads, njit
from widegp.kernels.arc import ARCSIN_SERIES, ArcForm

# Arithmetic may be contracted and summed in any order; none of these functions sees a NaN.
FAST = {"contract", "nsz", "nnan", "ninf", "arcp", "reassoc"}
HALF_PI = math.pi / 2
TWO_PI = 2 * math.pi
ONE = 1.0 - 16 * 2.0**-52

P0, P1, P2, P3, P4, P5, P6, P7, P8, P9, P10, P11 = ARCSIN_SERIES


@njit(fastmath=FAST, error_model="numpy")
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


@njit(fastmath=FAST, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def values(K, lo, hi, sigma_a2, coefficients, left, right, work):
    """Rows lo to hi of K (n, p), which hold inner products of scaled points, become kernel entries.

    Row quantities left (3, n), right (3, p); ``work`` (4, p) is overwritten. What a loop touches belongs to
    its thread, and nothing is allocated: that and the absence of BLAS keep it quick to compile.
    """
    scale, tanh, sigmoid, c = work[0], work[1], work[2], work[3]
    for i in range(lo, hi):
        _pair(left, i, right, work)
        for p in range(c.size):
            c[p] = K[i, p] + sigma_a2
        line(c, coefficients, scale, tanh, sigmoid, K[i])


@njit(cache=True, nogil=True, error_model="numpy")
def pullback(
    K_bar, column, row, lo, inner, count, sigma_a2, coefficients, left, right, work,
    c_bar, d_left, by_column, sums,
):  # fmt: skip
    """`line_pullback` of rows lo to lo + count of a table, whose inner products are inner (count, p).

    Their cotangent is K_bar (count, p) + column row', with column (n,) and row (p,).

    Writes c_bar (count, p) and dF/dd of these rows, d_left (count,); adds to by_column (3, p) the slopes from
    which `by_variance` makes dF/dd of the rows on the right and, to sums (7,), dF/d(five coefficients,
    log sigma_u2, sigma_a2) without what goes through these. ``work`` (8, p) is overwritten.
    """
    scale, tanh, sigmoid, c, given, slopes = work[0], work[1], work[2], work[3], work[4], work[5:8]
    for k in range(count):
        i = lo + k
        _pair(left, i, right, work)
        for p in range(c.size):
            c[p] = inner[k, p] + sigma_a2
            given[p] = K_bar[k, p] + column[i] * row[p]
        line_pullback(given, c, coefficients, scale, tanh, sigmoid, c_bar[k], slopes, sums)
        d_left[k] = _spread(slopes, left, i, by_column)
        _add_scalars(c_bar, inner, k, d_left[k], left[0, i] ** 2 - sigma_a2, sums)


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
def _spread(slopes, left, i, by_column):
    """Add the slopes to those of their columns; return dF/dd of row i."""
    tanh, sigmoid, root = 0.0, 0.0, 0.0
    for p in range(slopes.shape[1]):
        tanh += slopes[0, p]
        sigmoid += slopes[1, p]
        root += slopes[2, p]
    for k in range(3):
        for p in range(slopes.shape[1]):
            by_column[k, p] += slopes[k, p]
    return tanh * left[1, i] ** 2 + sigmoid * left[2, i] ** 2 + root / left[0, i] ** 2


def by_variance(slopes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """dF/dd (p,) of rows from their summed slopes (3, p) and `row_scales` (3, p)."""
    root, tanh, sigmoid = scales
    return slopes[0] * tanh**2 + slopes[1] * sigmoid**2 + slopes[2] / root**2


def threads() -> int:
    """Threads that the parallel loops will use."""
    return int(get_num_threads())


def row_scales(d: np.ndarray) -> np.ndarray:
    """sqrt(d), sqrt(t/(1+td)) for tanh and for sigmoid: d (n,) -> (3, n)."""
    # A zero row with sigma_a2 = 0 has d = 0; a positive stand-in keeps rho = 0/scale finite there.
    root = np.sqrt(np.maximum(d, np.finfo(float).tiny))
    return np.stack([root] + [np.sqrt(t / (1 + t * d)) for t in (HALF_PI, math.pi / 8)])


def variances(arc: ArcForm, X: np.ndarray) -> np.ndarray:
    """d = sigma_a2 + sum_i sigma_u2_i x_i^2 (n,); a single variance stays outside of the sum: no copy."""
    if np.ndim(arc.sigma_u2):
        return float(arc.sigma_a2) + np.square(X) @ arc.sigma_u2
    return float(arc.sigma_a2) + float(arc.sigma_u2) * np.einsum("ni,ni->n", X, X)


def scales(arc: ArcForm, X: np.ndarray) -> np.ndarray:
    """`row_scales` of the rows of X (n, I): (3, n)."""
    return row_scales(variances(arc, X))


def coefficients(arc: ArcForm) -> tuple[float, ...]:
    """The five of them as plain numbers, which compiled loops take."""
    return tuple(float(k) for k in arc.coefficients)
