"""Each row given its neighbours, and the adjoint of that, as loops over rows (DESIGN: one family).

For row i with neighbours N, M = (N, i) and R = K_MM - Phi_M Phi_M' + noise I, the factor R = L L'
holds the whole conditional in its last row: d = L_mm^2 and a = L_NN^-T L_mN. The adjoint needs one more
solve: nothing is differentiated through the factorisation.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from widegp.compute.native_arc import line, line_pullback

ORDER_FREE = {"contract", "reassoc"}


@njit(inline="always", fastmath=ORDER_FREE, error_model="numpy")
def _dot(u, v, count):
    total = 0.0
    for p in range(count):
        total += u[p] * v[p]
    return total


@njit(inline="always", fastmath=ORDER_FREE, error_model="numpy")
def _add_multiple(target, factor, source):
    for p in range(target.size):
        target[p] += factor * source[p]


@njit(cache=True, error_model="numpy")
def _factor(R):
    """Lower Cholesky factor in place; False if a pivot is not positive."""
    for j in range(R.shape[0]):
        for p in range(j):
            R[j, p] = (R[j, p] - _dot(R[j], R[p], p)) / R[p, p]
        pivot = R[j, j] - _dot(R[j], R[j], j)
        if not pivot > 0:
            return False
        R[j, j] = math.sqrt(pivot)
    return True


@njit(inline="always", error_model="numpy")
def _solve_transposed(L, x, count):
    """x <- L^-T x for the leading ``count`` rows of L."""
    for j in range(count - 1, -1, -1):
        x[j] /= L[j, j]
        for p in range(j):
            x[p] -= L[j, p] * x[j]


@njit(inline="always", error_model="numpy")
def _solve(L, x, count):
    """x <- L^-1 x for the leading ``count`` rows of L."""
    for j in range(count):
        x[j] = (x[j] - _dot(L[j], x, j)) / L[j, j]


@njit(inline="always", error_model="numpy")
def _gather(source, neighbors, i, own, out):
    """Rows of ``source`` named by M = (N, i); zero where there is no neighbour."""
    m = neighbors.size
    for j in range(m):
        if neighbors[j] >= 0:
            out[j] = source[neighbors[j]]
        else:
            out[j] = 0.0
    out[m] = source[own + i]


@njit(cache=True, parallel=True, error_model="numpy")
def condition(points, scales, features, y, neighbors, start, noise, sigma_a2, coefficients, threads):
    """a, d, phi~, y~ for rows start .. start + len(neighbors) of a block.

    points (N, I) already multiplied by sqrt(sigma_u2); scales (N, 3); features (N, r); y (N,);
    neighbors (B, m), -1 where missing. Returns a (B, m), d (B,), phi~ (B, r), y~ (B,), the factors
    L (B, m+1, m+1), the inner products (B, m+1, m+1), and how many rows had no positive pivot.
    """
    rows, m = neighbors.shape
    n_inputs, rank = points.shape[1], features.shape[1]
    a = np.zeros((rows, m))
    d = np.ones(rows)
    phi = np.empty((rows, rank))
    residual = np.empty(rows)
    factors = np.empty((rows, m + 1, m + 1))
    inner = np.empty((rows, m + 1, m + 1))
    failed = np.zeros(threads, np.int64)
    for t in prange(threads):
        x = np.empty((m + 1, n_inputs))
        f = np.empty((m + 1, rank))
        low = np.empty((m + 1, m + 1))
        z = np.empty((3, m + 1))
        for i in range(rows * t // threads, rows * (t + 1) // threads):
            _gather(points, neighbors[i], i, start, x)
            np.dot(x, x.T, inner[i])
            _gather_scales(scales, neighbors[i], i, start, z)
            L = factors[i]
            for j in range(m + 1):
                line(
                    inner[i, j, : j + 1] + sigma_a2, coefficients, z[0, j], z[1, j], z[2, j],
                    z[0], z[1], z[2], L[j, : j + 1],
                )  # fmt: skip
            if rank > 0:
                _gather(features, neighbors[i], i, start, f)
                np.dot(f, f.T, low)
                for j in range(m + 1):
                    _add_multiple(L[j, : j + 1], -1.0, low[j, : j + 1])
            for j in range(m):
                if neighbors[i, j] < 0:
                    L[j, :j] = 0.0
                    L[j + 1 :, j] = 0.0
                    L[j, j] = 1.0
                else:
                    L[j, j] += noise
            L[m, m] += noise
            if not _factor(L):
                failed[t] += 1
                phi[i] = 0.0
                residual[i] = 0.0
                continue
            d[i] = L[m, m] ** 2
            a[i] = L[m, :m]
            _solve_transposed(L, a[i], m)
            residual[i] = y[start + i]
            for j in range(m):
                if neighbors[i, j] >= 0:
                    residual[i] -= a[i, j] * y[neighbors[i, j]]
            if rank > 0:
                phi[i] = f[m]
                for j in range(m):
                    _add_multiple(phi[i], -a[i, j], f[j])
    return a, d, phi, residual, factors, inner, failed.sum()


@njit(inline="always", error_model="numpy")
def _gather_scales(scales, neighbors, i, start, out):
    """`row_scales` of M; a missing neighbour gets values at which every arc function is finite."""
    m = neighbors.size
    for k in range(3):
        missing = 1.0 if k == 0 else 0.0
        for j in range(m):
            out[k, j] = scales[neighbors[j], k] if neighbors[j] >= 0 else missing
        out[k, m] = scales[start + i, k]


@njit(cache=True, parallel=True, error_model="numpy")
def condition_pullback(
    points, scales, features, y, neighbors, start, sigma_a2, coefficients,
    a, factors, inner, phi, phi_bar, y_bar, d_bar, by_input, threads,
):  # fmt: skip
    """Cotangents given those of phi~ (B, r), y~ (B,) and d (B,).

    With g = -(Phi_N phi_bar + y_N y_bar), s = R_NN^-1 g, a~ = (a, -1) and s~ = (s, 0):
        dF/dR_MM = d_bar a~ a~' - (s~ a~' + a~ s~') / 2,
        v = phi_bar - Phi_N' s - 2 d_bar phi~;   dF/dphi_i = v,   dF/dPhi_N = -a v' - s phi~'.
    Returns s (B, m), v (B, r), and per thread the sums (t, 8): five coefficients, sum c_bar * inner,
    sigma_a2, noise; and the derivative by log sigma_u2 (t, I), filled when ``by_input``.
    """
    rows, m = neighbors.shape
    n_inputs, rank = points.shape[1], features.shape[1]
    s = np.zeros((rows, m))
    v = np.empty((rows, rank))
    sums = np.zeros((threads, 8))
    inputs = np.zeros((threads, n_inputs))
    for t in prange(threads):
        x = np.empty((m + 1, n_inputs))
        x_bar = np.empty((m + 1, n_inputs))
        z = np.empty((3, m + 1))
        T = np.empty(m + 1)
        c_bar = np.empty((m + 1, m + 1))
        d_row = np.empty(m + 1)
        a_tilde = np.empty(m + 1)
        s_tilde = np.zeros(m + 1)
        for i in range(rows * t // threads, rows * (t + 1) // threads):
            N = neighbors[i]
            v[i] = phi_bar[i]
            for j in range(m):
                if N[j] >= 0:
                    s_tilde[j] = -_dot(features[N[j]], phi_bar[i], rank) - y[N[j]] * y_bar[i]
                else:
                    s_tilde[j] = 0.0
            _solve(factors[i], s_tilde, m)
            _solve_transposed(factors[i], s_tilde, m)
            s[i] = s_tilde[:m]
            for j in range(m):
                if N[j] >= 0:
                    _add_multiple(v[i], -s_tilde[j], features[N[j]])
            _add_multiple(v[i], -2 * d_bar[i], phi[i])
            a_tilde[:m] = a[i]
            a_tilde[m] = -1.0
            _gather_scales(scales, N, i, start, z)
            d_row[:] = 0.0
            for j in range(m + 1):
                if j < m and N[j] < 0:
                    c_bar[j] = 0.0
                    continue
                for p in range(m + 1):
                    T[p] = d_bar[i] * a_tilde[j] * a_tilde[p]
                    T[p] -= 0.5 * (s_tilde[j] * a_tilde[p] + a_tilde[j] * s_tilde[p])
                # Not `d_row[j] += ...`: the call itself adds to d_row.
                by_own = line_pullback(
                    T, inner[i, j] + sigma_a2, coefficients, z[0, j], z[1, j], z[2, j],
                    z[0], z[1], z[2], c_bar[j], d_row, sums[t, :5],
                )  # fmt: skip
                d_row[j] += by_own
                sums[t, 5] += _dot(c_bar[j], inner[i, j], m + 1)
                sums[t, 6] += c_bar[j].sum()
                sums[t, 7] += T[j]
            for j in range(m + 1):
                sums[t, 5] += d_row[j] * inner[i, j, j]
                sums[t, 6] += d_row[j]
            if by_input:
                _gather(points, N, i, start, x)
                np.dot(c_bar, x, x_bar)
                for j in range(m + 1):
                    for p in range(n_inputs):
                        inputs[t, p] += x[j, p] * (x_bar[j, p] + d_row[j] * x[j, p])
    return s, v, sums, inputs


@njit(cache=True, parallel=True, error_model="numpy")
def scatter(neighbors, start, a, s, phi, v, target, threads):
    """target_i += v_i,  target_N -= a v_i' + s phi~_i'; threads own columns, so no two collide."""
    rows, m = neighbors.shape
    rank = target.shape[1]
    for t in prange(threads):
        lo, hi = rank * t // threads, rank * (t + 1) // threads
        for i in range(rows):
            _add_multiple(target[start + i, lo:hi], 1.0, v[i, lo:hi])
            for j in range(m):
                if neighbors[i, j] >= 0:
                    row = target[neighbors[i, j], lo:hi]
                    _add_multiple(row, -a[i, j], v[i, lo:hi])
                    _add_multiple(row, -s[i, j], phi[i, lo:hi])


