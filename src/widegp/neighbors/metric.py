"""The space in which nearest neighbours are those the kernel correlates most."""

from __future__ import annotations

import numpy as np

from widegp.kernels.base import Kernel


def embed(kernel: Kernel, X: np.ndarray) -> np.ndarray:
    """u(x) = (sqrt(sigma_a2), sqrt(sigma_u2) x) / sqrt(d): X (n, I) -> (n, I + 1).

    |u - u'|^2 = 2 (1 - rho): Euclidean distance orders rows by the correlation rho of their
    pre-activations, which every limit kernel increases with. Under ARD the inputs are weighed by sigma_u2.
    """
    scaled = X * np.sqrt(np.asarray(kernel.sigma_u2, float))
    d = float(kernel.sigma_a2) + (scaled * scaled).sum(1)
    root = np.sqrt(np.maximum(d, np.finfo(float).tiny))
    bias = np.full((len(X), 1), np.sqrt(float(kernel.sigma_a2)))
    return np.concatenate([bias, scaled], axis=1) / root[:, None]


def unembed(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    """Back from (homogeneous) coordinates u (r, I + 1) to inputs (r, I), for means of embedded rows too.

    The mean of u over a cluster comes back as the mean of its rows, weighted by 1 / sqrt(d).
    """
    bias = np.sqrt(float(kernel.sigma_a2))
    return points[:, 1:] / np.sqrt(np.asarray(kernel.sigma_u2, float)) / (points[:, :1] / bias)
