"""Covariance matrices of a few rows out of many, fast enough to be formed once per row of a table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from widegp.compute import native_arc
from widegp.jit import COMPILED, njit
from widegp.kernels.arc import ArcForm
from widegp.kernels.base import Kernel

RowCovariance = Callable[[np.ndarray], np.ndarray]
"""Rows M (s,) -> their covariance (s, s), lower triangle; C order, and free to be overwritten."""


def row_covariance(kernel: Kernel, X: np.ndarray, features: np.ndarray | None = None) -> RowCovariance:
    """M -> K(X_M, X_M) - Phi_M Phi_M' for rows X (n, I) and features Phi (n, r), if given.

    Closed forms let go of the interpreter lock, so threads may call it side by side.
    """
    if features is None:
        features = np.empty((len(X), 0))
    form = kernel.native_form()
    if form is not None and COMPILED:
        return _closed(form, X, features)

    def general(rows: np.ndarray) -> np.ndarray:
        phi = features[rows]
        return np.ascontiguousarray(kernel(X[rows]) - phi @ phi.T)

    return general


def _closed(arc: ArcForm, X: np.ndarray, features: np.ndarray) -> RowCovariance:
    points = np.ascontiguousarray(X * np.sqrt(np.asarray(arc.sigma_u2, float)))
    sigma_a2 = float(arc.sigma_a2)
    scales = native_arc.row_scales(sigma_a2 + (points * points).sum(1)).T.copy()
    coefficients = tuple(float(k) for k in arc.coefficients)
    features = np.ascontiguousarray(features)

    def closed(rows: np.ndarray) -> np.ndarray:
        return _lower_triangle(points, scales, features, rows, sigma_a2, coefficients)

    return closed


@njit(cache=True, nogil=True, error_model="numpy")
def _lower_triangle(points, scales, features, rows, sigma_a2, coefficients):
    """Lower triangle of K_MM - Phi_M Phi_M', a line at a time; points (n, I), scales (n, 3)."""
    size = rows.size
    x = points[rows]
    own = scales[rows].T.copy()
    K = np.dot(x, x.T)
    c, pair = np.empty(size), np.empty((3, size))
    for i in range(size):
        n = i + 1
        for k in range(3):
            for p in range(n):
                pair[k, p] = own[k, i] * own[k, p]
        for p in range(n):
            c[p] = K[i, p] + sigma_a2
        native_arc.line(c[:n], coefficients, pair[0, :n], pair[1, :n], pair[2, :n], K[i, :n])
    if features.shape[1] > 0:
        phi = features[rows]
        K -= np.dot(phi, phi.T)
    return K
