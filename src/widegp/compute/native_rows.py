"""Each row given its neighbours, and the adjoint of that, as loops over rows.

For row i with neighbours N, M = (N, i) and R = K_MM - Phi_M Phi_M' + diag noise_M, the factor R = L L'
holds the whole conditional in its last row: d = L_mm^2 and a = L_NN^-T L_mN. The adjoint needs one more
solve: nothing is differentiated through the factorisation.

Symmetric matrices over M are kept as packed lower triangles, so that the arc functions run over one
long line per row instead of many short ones.
"""

from __future__ import annotations

import math

import numpy as np

from widegp.compute.native_arc import line, line_pullback
from widegp.neighbors.jit import njit

# Sums may be taken in any order. Unlike in native_arc, NaN must survive: a failed pivot shows by it.
ORDER_FREE = {"contract", "reassoc"}
PANEL = 32  # up to two of these, plain loops factor faster than calls to BLAS


@njit(fastmath=ORDER_FREE, error_model="numpy")
def _factor_small(R):
    """Lower Cholesky factor in place by plain loops; False if a pivot is not positive."""
    for j in range(R.shape[0]):
        for p in range(j):
            total = R[j, p]
            for q in range(p):
                total -= R[j, q] * R[p, q]
            R[j, p] = total / R[p, p]
        pivot = R[j, j]
        for q in range(j):
            pivot -= R[j, q] * R[j, q]
        if not pivot > 0:
            return False
        R[j, j] = math.sqrt(pivot)
    return True


@njit(fastmath=ORDER_FREE, error_model="numpy")
def _invert_lower(L):
    """L^-1 of a small lower triangle."""
    out = np.zeros_like(L)
    for j in range(L.shape[0]):
        out[j, j] = 1 / L[j, j]
        for i in range(j + 1, L.shape[0]):
            total = 0.0
            for p in range(j, i):
                total -= L[i, p] * out[p, j]
            out[i, j] = total / L[i, i]
    return out


@njit(error_model="numpy")
def _factor(R):
    """Lower Cholesky factor in place, in panels between which BLAS does the work; False on a bad pivot."""
    size = R.shape[0]
    if size <= 2 * PANEL:
        return _factor_small(R)
    for lo in range(0, size, PANEL):
        hi = min(lo + PANEL, size)
        if lo > 0:
            done = np.ascontiguousarray(R[lo:, :lo])
            R[lo:, lo:hi] -= np.dot(done, done[: hi - lo].T)
        corner = np.ascontiguousarray(R[lo:hi, lo:hi])
        if not _factor_small(corner):
            return False
        R[lo:hi, lo:hi] = corner
        if hi < size:
            R[hi:, lo:hi] = np.dot(np.ascontiguousarray(R[hi:, lo:hi]), _invert_lower(corner).T)
    return True


@njit(fastmath=ORDER_FREE, error_model="numpy")
def _solve_transposed(L, x):
    """x <- L_NN^-T x for all but the last row of L."""
    for j in range(L.shape[0] - 2, -1, -1):
        x[j] /= L[j, j]
        for p in range(j):
            x[p] -= x[j] * L[j, p]


@njit(fastmath=ORDER_FREE, error_model="numpy")
def _solve(L, x):
    """x <- L_NN^-1 x for all but the last row of L."""
    for j in range(L.shape[0] - 1):
        total = x[j]
        for p in range(j):
            total -= L[j, p] * x[p]
        x[j] = total / L[j, j]


@njit(error_model="numpy")
def _gather(source, neighbors, i, own, out):
    """Rows of ``source`` named by M = (N, i); zero where there is no neighbour."""
    m = neighbors.shape[1]
    for j in range(m + 1):
        row = own if j == m else neighbors[i, j]
        for p in range(source.shape[1]):
            out[j, p] = source[row, p] if row >= 0 else 0.0


@njit(error_model="numpy")
def _gather_pairs(scales, neighbors, i, own, single, pair):
    """`row_scales` of M, (m + 1, 3), and their packed products (3, ...).

    A missing neighbour gets values at which every arc function is finite.
    """
    m = neighbors.shape[1]
    for j in range(m + 1):
        row = own if j == m else neighbors[i, j]
        for k in range(3):
            single[j, k] = scales[row, k] if row >= 0 else (1.0 if k == 0 else 0.0)
    for k in range(3):
        p = 0
        for j in range(m + 1):
            for q in range(j + 1):
                pair[k, p] = single[j, k] * single[q, k]
                p += 1


@njit(error_model="numpy")
def _residual(values, low, neighbors, i, own, noise, L):
    """R = K_MM - Phi_M Phi_M' + diag noise_M, lower triangle; a missing neighbour is an unrelated unit."""
    m = neighbors.shape[1]
    p = 0
    for j in range(m + 1):
        for q in range(j + 1):
            L[j, q] = values[p] - low[j, q]
            p += 1
        row = own if j == m else neighbors[i, j]
        L[j, j] += noise[row] if row >= 0 else 0.0
    for j in range(m):
        if neighbors[i, j] < 0:
            L[j, :j] = 0.0
            L[j:, j] = 0.0
            L[j, j] = 1.0


@njit(fastmath=ORDER_FREE, error_model="numpy")
def _finish_row(i, own, L, a, f, y, neighbors, d, coefficients, phi, residual, factors):
    """Read a and d off the factor, and form phi~ and y~."""
    m = neighbors.shape[1]
    d[i] = L[m, m] ** 2
    for j in range(m):
        a[j] = L[m, j]
    _solve_transposed(L, a)
    rest = y[own]
    for p in range(f.shape[1]):
        phi[i, p] = f[m, p]
    for j in range(m):
        coefficients[i, j] = a[j]
        if neighbors[i, j] >= 0:
            rest -= a[j] * y[neighbors[i, j]]
            for p in range(f.shape[1]):
                phi[i, p] -= a[j] * f[j, p]
    residual[i] = rest
    for j in range(m + 1):
        for p in range(j + 1):
            factors[i, j, p] = L[j, p]


@njit(cache=True, nogil=True, error_model="numpy")
def condition(
    lo, hi, points, scales, features, y, neighbors, start, noise, sigma_a2, coefficients,
    a, d, phi, residual, factors, covariances,
):  # fmt: skip
    """a, d, phi~, y~ for rows start + lo .. start + hi of a block; returns how many had no positive pivot.

    points (N, I) already multiplied by sqrt(sigma_u2); scales (N, 3); features (N, r); y (N,);
    noise (N,); neighbors (B, m), -1 where missing. Writes a (B, m), d (B,), phi~ (B, r), y~ (B,), the factors
    L (B, m+1, m+1) and the packed covariances c (B, (m+1)(m+2)/2).
    """
    m, rank, packed = neighbors.shape[1], features.shape[1], covariances.shape[1]
    failed = 0
    # Everything touched in the inner loops belongs to one thread: a view of a shared array costs an
    # atomic count, and two threads counting on one cache line are slower than one.
    x, f = np.empty((m + 1, points.shape[1])), np.empty((m + 1, rank))
    inner, low = np.empty((m + 1, m + 1)), np.zeros((m + 1, m + 1))
    L, own_a = np.empty((m + 1, m + 1)), np.empty(m)
    single, pair = np.empty((m + 1, 3)), np.empty((3, packed))
    c, values = np.empty(packed), np.empty(packed)
    scale, tanh, sigmoid = pair[0], pair[1], pair[2]
    for i in range(lo, hi):
        _gather(points, neighbors, i, start + i, x)
        np.dot(x, x.T, inner)
        p = 0
        for j in range(m + 1):
            for q in range(j + 1):
                c[p] = inner[j, q] + sigma_a2
                p += 1
        for p in range(packed):
            covariances[i, p] = c[p]
        _gather_pairs(scales, neighbors, i, start + i, single, pair)
        line(c, coefficients, scale, tanh, sigmoid, values)
        if rank > 0:
            _gather(features, neighbors, i, start + i, f)
            np.dot(f, f.T, low)
        _residual(values, low, neighbors, i, start + i, noise, L)
        if _factor(L):
            _finish_row(i, start + i, L, own_a, f, y, neighbors, d, a, phi, residual, factors)
        else:
            failed += 1
            _blank_row(i, d, a, phi, residual, factors)
    return failed


@njit(error_model="numpy")
def _blank_row(i, d, a, phi, residual, factors):
    """A row without a factor: the likelihood fails, and what lay in memory before must not be read."""
    d[i], residual[i] = 1.0, 0.0
    for j in range(a.shape[1]):
        a[i, j] = 0.0
    for p in range(phi.shape[1]):
        phi[i, p] = 0.0
    for j in range(factors.shape[1]):
        for p in range(j + 1):
            factors[i, j, p] = 1.0 if p == j else 0.0


@njit(fastmath=ORDER_FREE, error_model="numpy")
def _second_solve(i, features, y, neighbors, factors, phi, phi_bar, y_bar, d_bar, L, s, s_out, v):
    """s = R_NN^-1 g with g = -(Phi_N phi_bar + y_N y_bar), and v = phi_bar - Phi_N' s - 2 d_bar phi~."""
    m, rank = neighbors.shape[1], features.shape[1]
    for j in range(m):
        for p in range(j + 1):
            L[j, p] = factors[i, j, p]
        row = neighbors[i, j]
        total = 0.0
        if row >= 0:
            for p in range(rank):
                total -= features[row, p] * phi_bar[i, p]
            total -= y[row] * y_bar[i]
        s[j] = total
    _solve(L, s)
    _solve_transposed(L, s)
    for p in range(rank):
        v[i, p] = phi_bar[i, p] - 2 * d_bar[i] * phi[i, p]
    for j in range(m):
        s_out[i, j] = s[j]
        row = neighbors[i, j]
        if row >= 0:
            for p in range(rank):
                v[i, p] -= s[j] * features[row, p]


@njit(cache=True, nogil=True, error_model="numpy")
def second_solves(lo, hi, features, y, neighbors, factors, phi, phi_bar, y_bar, d_bar, s, v):
    """s (B, m) and v (B, r) of rows lo to hi, as in `condition_pullback`, which needs more of them."""
    m = neighbors.shape[1]
    L, own = np.empty((m + 1, m + 1)), np.zeros(m + 1)
    for i in range(lo, hi):
        _second_solve(i, features, y, neighbors, factors, phi, phi_bar, y_bar, d_bar, L, own, s, v)


@njit(error_model="numpy")
def _cotangent(d_bar, a, s, T):
    """d_bar a a' - (s a' + a s')/2 packed, off-diagonal entries doubled since they stand for two."""
    p = 0
    for j in range(a.size):
        for i in range(j):
            T[p] = 2 * d_bar * a[j] * a[i] - s[j] * a[i] - a[j] * s[i]
            p += 1
        T[p] = d_bar * a[j] * a[j] - s[j] * a[j]
        p += 1


@njit(fastmath=ORDER_FREE, error_model="numpy")
def _spread(slopes, c_bar, single, d_row, square):
    """dF/dd of each member of M, and c_bar as a full symmetric matrix whose sum is unchanged."""
    d_row[:] = 0.0
    p = 0
    for j in range(d_row.size):
        tanh, sigmoid, root = 0.0, 0.0, 0.0
        for i in range(j + 1):
            tanh += slopes[0, p]
            sigmoid += slopes[1, p]
            root += slopes[2, p]
            d_row[i] += slopes[0, p] * single[i, 1] ** 2
            d_row[i] += slopes[1, p] * single[i, 2] ** 2 + slopes[2, p] / single[i, 0] ** 2
            half = c_bar[p] if i == j else 0.5 * c_bar[p]
            square[j, i] = half
            square[i, j] = half
            p += 1
        d_row[j] += tanh * single[j, 1] ** 2 + sigmoid * single[j, 2] ** 2 + root / single[j, 0] ** 2


@njit(fastmath=ORDER_FREE, error_model="numpy")
def _add_sums(c_bar, c, d_row, single, a, s, d_bar, own_noise, sigma_a2, sums):
    """Derivatives by log sigma_u2, sigma_a2 and log noise; c and d are sigma_a2 plus a share of sigma_u2."""
    by_c, by_a, by_noise = 0.0, 0.0, 0.0
    for p in range(c.size):
        by_c += c_bar[p] * c[p]
        by_a += c_bar[p]
    for j in range(a.size):
        by_c += d_row[j] * single[j, 0] ** 2
        by_a += d_row[j]
        by_noise += (d_bar * a[j] ** 2 - s[j] * a[j]) * own_noise[j]
    sums[5] += by_c - sigma_a2 * by_a
    sums[6] += by_a
    sums[7] += by_noise


@njit(cache=True, nogil=True, error_model="numpy")
def condition_pullback(
    lo, hi, points, scales, features, y, neighbors, start, sigma_a2, coefficients,
    a, factors, covariances, phi, phi_bar, y_bar, d_bar, noise, by_input, s, v, sums, inputs,
):  # fmt: skip
    """Cotangents of rows start + lo .. start + hi given those of phi~ (B, r), y~ (B,) and d (B,).

    With g = -(Phi_N phi_bar + y_N y_bar), s = R_NN^-1 g, a~ = (a, -1) and s~ = (s, 0):
        dF/dR_MM = d_bar a~ a~' - (s~ a~' + a~ s~') / 2,
        v = phi_bar - Phi_N' s - 2 d_bar phi~;   dF/dphi_i = v,   dF/dPhi_N = -a v' - s phi~'.
    Writes s (B, m) and v (B, r); adds to sums (8,) the derivatives by the five coefficients, log sigma_u2,
    sigma_a2 and log noise, and to inputs (I,) those by log sigma_u2 of each input if ``by_input``.
    """
    m, n_inputs, packed = neighbors.shape[1], points.shape[1], covariances.shape[1]
    x, x_bar = np.empty((m + 1, n_inputs)), np.empty((m + 1, n_inputs))
    single, pair, L = np.empty((m + 1, 3)), np.empty((3, packed)), np.empty((m + 1, m + 1))
    c, T, c_bar, slopes = np.empty(packed), np.empty(packed), np.empty(packed), np.zeros((3, packed))
    square, d_row = np.empty((m + 1, m + 1)), np.empty(m + 1)
    a_tilde, s_tilde, own_noise = np.full(m + 1, -1.0), np.zeros(m + 1), np.zeros(m + 1)
    scale, tanh, sigmoid = pair[0], pair[1], pair[2]
    for i in range(lo, hi):
        _second_solve(i, features, y, neighbors, factors, phi, phi_bar, y_bar, d_bar, L, s_tilde, s, v)
        for j in range(m):
            a_tilde[j] = a[i, j]
            own_noise[j] = noise[neighbors[i, j]] if neighbors[i, j] >= 0 else 0.0
        own_noise[m] = noise[start + i]
        for p in range(packed):
            c[p] = covariances[i, p]
        _cotangent(d_bar[i], a_tilde, s_tilde, T)
        _gather_pairs(scales, neighbors, i, start + i, single, pair)
        line_pullback(T, c, coefficients, scale, tanh, sigmoid, c_bar, slopes, sums)
        _spread(slopes, c_bar, single, d_row, square)
        _add_sums(c_bar, c, d_row, single, a_tilde, s_tilde, d_bar[i], own_noise, sigma_a2, sums)
        if by_input:
            _gather(points, neighbors, i, start + i, x)
            np.dot(square, x, x_bar)
            for j in range(m + 1):
                for p in range(n_inputs):
                    inputs[p] += x[j, p] * (x_bar[j, p] + d_row[j] * x[j, p])


@njit(cache=True, nogil=True, fastmath=ORDER_FREE, error_model="numpy")
def scatter(lo, hi, neighbors, start, a, s, phi, v, target):
    """target_i += v_i,  target_N -= a v_i' + s phi~_i' in columns lo to hi: threads own columns, so that no
    two of them collide.
    """
    rows, m = neighbors.shape
    for i in range(rows):
        for p in range(lo, hi):
            target[start + i, p] += v[i, p]
        for j in range(m):
            row = neighbors[i, j]
            if row >= 0:
                for p in range(lo, hi):
                    target[row, p] -= a[i, j] * v[i, p] + s[i, j] * phi[i, p]
