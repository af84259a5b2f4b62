"""Each row given its neighbours, and the adjoint of that, as loops over rows.

For row i with neighbours N, M = (N, i) and R = K_MM - Phi_M Phi_M' + diag noise_M, the factor R = L L'
holds the whole conditional in its last row: d = L_mm^2 and a = L_NN^-T L_mN. The adjoint needs one more
solve: nothing is differentiated through the factorisation.

Symmetric matrices over M are kept as packed lower triangles, so that the arc functions run over one
long line per row instead of many short ones.

A missing neighbour, -1, reads the last row of every table, and R makes an unrelated unit of it: its a and s
are zero, and so is whatever is multiplied by them.

What does not change in an inner loop is read before it: the compiler must assume that the loop overwrites it.

Compiling takes as long as there are statements: most of it is Numba's own part, not LLVM's. So nothing is
allocated here, BLAS is called by address, and references are not counted (``_nrt``), for two threads that
count on one cache line are slower than one.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from widegp.compute.native_arc import line, line_pullback
from widegp.compute.native_blas import (
    factor,
    inner_products,
    product,
    solve_lower,
    solve_lower_transposed,
)
from widegp.jit import njit

# Sums may be taken in any order. Unlike in native_arc, NaN must survive: a failed pivot shows by it.
ORDER_FREE = {"contract", "reassoc"}


class Scratch(NamedTuple):
    """What the loops of one thread overwrite, for m neighbours, I inputs and r features.

    p, m, I, r : m + 1 and the others, as Fortran takes numbers; info : what it answers.
    members : M.    x, x_bar, f : their points, cotangents of these, and features.
    square, low : (m + 1, m + 1).
    scales, weights : (3, m + 1) of the members.    pairs, slopes : (3, packed).    line, c_bar : (packed,).
    a, s : (a, -1) and (s, 0).
    """

    p: np.ndarray
    m: np.ndarray
    I: np.ndarray
    r: np.ndarray
    info: np.ndarray
    members: np.ndarray
    x: np.ndarray
    x_bar: np.ndarray
    f: np.ndarray
    square: np.ndarray
    low: np.ndarray
    scales: np.ndarray
    weights: np.ndarray
    pairs: np.ndarray
    slopes: np.ndarray
    line: np.ndarray
    c_bar: np.ndarray
    a: np.ndarray
    s: np.ndarray

    @classmethod
    def of(cls, m: int, n_inputs: int, rank: int) -> Self:
        sizes = [np.array([size], np.int32) for size in (m + 1, m, n_inputs, rank, 0)]
        packed = (m + 1) * (m + 2) // 2
        shapes = [
            (m + 1, n_inputs), (m + 1, n_inputs), (m + 1, rank), (m + 1, m + 1), (m + 1, m + 1), (3, m + 1),
            (3, m + 1), (3, packed), (3, packed), (packed,), (packed,), (m + 1,), (m + 1,),
        ]  # fmt: skip
        fields: list[np.ndarray] = [*sizes, np.empty(m + 1, np.int64), *(np.zeros(shape) for shape in shapes)]
        return cls(*fields)


@njit(error_model="numpy", _nrt=False)
def _gather(source, members, out):
    """Rows of ``source`` named by M."""
    for j in range(members.size):
        row = members[j]
        for p in range(source.shape[1]):
            out[j, p] = source[row, p]


@njit(error_model="numpy", _nrt=False)
def _pair_up(scales, members, single, pairs):
    """Row quantities (n, 3) of M, (3, m + 1), and their packed products."""
    for k in range(3):
        p = 0
        for j in range(members.size):
            own = scales[members[j], k]
            single[k, j] = own
            for q in range(j + 1):
                pairs[k, p] = own * single[k, q]
                p += 1


@njit(error_model="numpy", _nrt=False)
def _pack(square, constant, out):
    """The lower triangle plus a constant, packed."""
    p = 0
    for j in range(square.shape[0]):
        for q in range(j + 1):
            out[p] = square[j, q] + constant
            p += 1


@njit(error_model="numpy", _nrt=False)
def _residual(values, low, members, noise, R):
    """R = K_MM - Phi_M Phi_M' + diag noise_M, lower triangle; a missing neighbour is an unrelated unit."""
    p = 0
    for j in range(members.size):
        for q in range(j + 1):
            R[j, q] = values[p] - low[j, q]
            p += 1
        R[j, j] += noise[members[j]]
    for j in range(members.size):
        if members[j] < 0:
            _unrelate(R, j)


@njit(error_model="numpy", _nrt=False)
def _unrelate(R, j):
    """Row and column j of a lower triangle become those of a unit matrix."""
    for q in range(R.shape[0]):
        R[max(j, q), min(j, q)] = 0.0
    R[j, j] = 1.0


@njit(fastmath=ORDER_FREE, error_model="numpy", _nrt=False)
def _rest(members, a, y, f, phi):
    """phi~ = phi_i - Phi_N'a, written to phi; returns y~ = y_i - y_N'a."""
    m = members.size - 1
    rest = y[members[m]]
    for p in range(phi.size):
        phi[p] = f[m, p]
    for j in range(m):
        by = a[j]
        rest -= by * y[members[j]]
        for p in range(phi.size):
            phi[p] -= by * f[j, p]
    return rest


@njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
def condition(
    lo, hi, points, scales, features, y, noise, neighbors, start, sigma_a2, coefficients, work,
    a, d, phi, residual, factors, covariances,
):  # fmt: skip
    """a, d, phi~, y~ for rows start + lo .. start + hi of a block; returns how many had no positive pivot.

    points (N, I) already multiplied by sqrt(sigma_u2); scales (N, 3); features (N, r); y (N,);
    noise (N,); neighbors (B, m), -1 where missing. Writes a (B, m), d (B,), phi~ (B, r), y~ (B,), the factors
    L (B, m+1, m+1) and the packed covariances c (B, (m+1)(m+2)/2). A row that fails gets the factor 1.
    """
    members, m, failed = work.members, neighbors.shape[1], 0
    for i in range(lo, hi):
        members[m] = start + i
        for j in range(m):
            members[j] = neighbors[i, j]
        _gather(points, members, work.x)
        inner_products(work.x, work.p, work.I, work.square)
        _pack(work.square, sigma_a2, covariances[i])
        _pair_up(scales, members, work.scales, work.pairs)
        line(covariances[i], coefficients, work.pairs[0], work.pairs[1], work.pairs[2], work.line)
        _gather(features, members, work.f)
        if features.shape[1] > 0:
            inner_products(work.f, work.p, work.r, work.low)
        L = factors[i]
        _residual(work.line, work.low, members, noise, L)
        if not factor(L, work.p, work.info):
            failed += 1
            for j in range(m + 1):
                _unrelate(L, j)
        for j in range(m):
            a[i, j] = L[m, j]
        solve_lower_transposed(L, work.p, work.m, a[i])
        d[i] = L[m, m] ** 2
        residual[i] = _rest(members, a[i], y, work.f, phi[i])
    return failed


@njit(fastmath=ORDER_FREE, error_model="numpy", _nrt=False)
def _second_solve(L, features, y, neighbors, phi, phi_bar, y_bar, d_bar, p, m, s, v):
    """s = R_NN^-1 g with g = -(Phi_N phi_bar + y_N y_bar), and v = phi_bar - Phi_N' s - 2 d_bar phi~."""
    for j in range(s.size):
        row = neighbors[j]
        total = y[row] * y_bar
        for k in range(phi.size):
            total += features[row, k] * phi_bar[k]
        s[j] = -total if row >= 0 else 0.0
    solve_lower(L, p, m, s)
    solve_lower_transposed(L, p, m, s)
    for k in range(phi.size):
        v[k] = phi_bar[k] - 2 * d_bar * phi[k]
    for j in range(s.size):
        row, by = neighbors[j], s[j]
        for k in range(phi.size):
            v[k] -= by * features[row, k]


@njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
def second_solves(lo, hi, features, y, neighbors, factors, phi, phi_bar, y_bar, d_bar, p, m, s, v):
    """s (B, m) and v (B, r) of rows lo to hi, as in `condition_pullback`."""
    for i in range(lo, hi):
        _second_solve(
            factors[i], features, y, neighbors[i], phi[i], phi_bar[i], y_bar[i], d_bar[i], p, m, s[i], v[i]
        )


@njit(error_model="numpy", _nrt=False)
def _cotangent(d_bar, a, s, T):
    """d_bar a a' - (s a' + a s')/2 packed, off-diagonal entries doubled since they stand for two."""
    p = 0
    for j in range(a.size):
        by_a, by_s = 2 * d_bar * a[j] - s[j], a[j]
        for i in range(j + 1):
            T[p] = by_a * a[i] - by_s * s[i]
            p += 1
        T[p - 1] *= 0.5


@njit(fastmath=ORDER_FREE, error_model="numpy", _nrt=False)
def _by_variance(slopes, scales, weights, out):
    """dF/dd (m + 1,) of the members, from the slopes of their pairs."""
    for j in range(out.size):
        weights[0, j], weights[1, j], weights[2, j] = scales[1, j] ** 2, scales[2, j] ** 2, scales[0, j] ** -2
        out[j] = 0.0
    for k in range(3):
        p = 0
        for j in range(out.size):
            total = 0.0
            for i in range(j + 1):
                total += slopes[k, p]
                out[i] += slopes[k, p] * weights[k, i]
                p += 1
            out[j] += total * weights[k, j]


@njit(fastmath=ORDER_FREE, error_model="numpy", _nrt=False)
def _add_sums(c_bar, c, d_bar, d, members, noise, sigma_a2, a, s, by_d, sums):
    """Derivatives by log sigma_u2, sigma_a2 and log noise; c and d are sigma_a2 plus a share of sigma_u2."""
    by_c, by_a, by_noise = 0.0, 0.0, 0.0
    for p in range(c.size):
        by_c += c_bar[p] * c[p]
        by_a += c_bar[p]
    for j in range(a.size):
        by_c += d_bar[j] * d[j] ** 2
        by_a += d_bar[j]
        by_noise += (by_d * a[j] - s[j]) * a[j] * noise[members[j]]
    sums[5] += by_c - sigma_a2 * by_a
    sums[6] += by_a
    sums[7] += by_noise


@njit(cache=True, nogil=True, error_model="numpy", _nrt=False)
def condition_pullback(
    lo, hi, scales, noise, neighbors, start, sigma_a2, coefficients, work, a, s, d_bar,
    covariances, by_variance, sums,
):  # fmt: skip
    """Cotangents of the kernel at rows start + lo .. start + hi, given s (B, m) of `second_solves`.

    With g = -(Phi_N phi_bar + y_N y_bar), s = R_NN^-1 g, a~ = (a, -1) and s~ = (s, 0):
        dF/dR_MM = d_bar a~ a~' - (s~ a~' + a~ s~') / 2,
        v = phi_bar - Phi_N' s - 2 d_bar phi~;   dF/dphi_i = v,   dF/dPhi_N = -a v' - s phi~'.
    Adds to sums (8,) the derivatives by the five coefficients, log sigma_u2, sigma_a2 and log noise. Leaves
    dF/dc in place of the covariances c and dF/dd of the members in by_variance (B, m + 1).
    """
    members, m = work.members, neighbors.shape[1]
    work.a[m], work.s[m] = -1.0, 0.0
    for i in range(lo, hi):
        members[m] = start + i
        for j in range(m):
            members[j], work.a[j], work.s[j] = neighbors[i, j], a[i, j], s[i, j]
        _cotangent(d_bar[i], work.a, work.s, work.line)
        _pair_up(scales, members, work.scales, work.pairs)
        c = covariances[i]
        line_pullback(
            work.line, c, coefficients, work.pairs[0], work.pairs[1], work.pairs[2], work.c_bar, work.slopes,
            sums,
        )  # fmt: skip
        _by_variance(work.slopes, work.scales, work.weights, by_variance[i])
        _add_sums(
            work.c_bar, c, by_variance[i], work.scales[0], members, noise, sigma_a2, work.a, work.s, d_bar[i],
            sums,
        )  # fmt: skip
        for p in range(c.size):
            c[p] = work.c_bar[p]


@njit(cache=True, nogil=True, fastmath=ORDER_FREE, error_model="numpy", _nrt=False)
def inputs_pullback(lo, hi, points, neighbors, start, c_bar, by_variance, work, inputs):
    """Add to inputs (I,) the derivatives by log sigma_u2 of each, from what `condition_pullback` left."""
    members, x, square, m = work.members, work.x, work.square, neighbors.shape[1]
    for i in range(lo, hi):
        members[m] = start + i
        for j in range(m):
            members[j] = neighbors[i, j]
        _gather(points, members, x)
        p = 0
        for j in range(m + 1):
            for k in range(j + 1):
                square[j, k] = 0.5 * c_bar[i, p]
                square[k, j] = 0.5 * c_bar[i, p]
                p += 1
            square[j, j] = c_bar[i, p - 1] + by_variance[i, j]
        product(square, x, work.p, work.I, work.x_bar)
        for j in range(m + 1):
            for p in range(inputs.size):
                inputs[p] += x[j, p] * work.x_bar[j, p]


@njit(cache=True, nogil=True, fastmath=ORDER_FREE, error_model="numpy", _nrt=False)
def scatter(lo, hi, neighbors, start, a, s, phi, v, target):
    """target_i += v_i,  target_N -= a v_i' + s phi~_i' in columns lo to hi: threads own columns, so that no
    two of them collide.
    """
    rows, m = neighbors.shape
    for i in range(rows):
        for p in range(lo, hi):
            target[start + i, p] += v[i, p]
        for j in range(m):
            row, by_a, by_s = neighbors[i, j], a[i, j], s[i, j]
            for p in range(lo, hi):
                target[row, p] -= by_a * v[i, p] + by_s * phi[i, p]
