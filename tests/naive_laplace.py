"""Laplace's approximation as written on paper: dense matrices, plain Newton steps, slogdet."""

from __future__ import annotations

import numpy as np


def mode_and_evidence(K, likelihood, y, offset=0.0, weight=1.0, steps=500):
    """f with largest sum w log p(y | f) - f'K^-1 f/2; -log q = -log p(y | f) + f'K^-1 f/2 + log|I + KW|/2."""
    alpha = np.zeros(len(y))
    objective = -np.inf

    def value(a):
        f = K @ a
        return np.sum(weight * likelihood.terms(y, f + offset).log_p) - 0.5 * a @ f

    for _ in range(steps):
        terms = likelihood.terms(y, K @ alpha + offset)
        W, d1 = weight * terms.W, weight * terms.d1
        new = np.linalg.solve(np.eye(len(y)) + W[:, None] * K, W * (K @ alpha) + d1)
        share = 1.0
        while value(alpha + share * (new - alpha)) < objective and share > 1e-8:
            share /= 2
        alpha = alpha + share * (new - alpha)
        objective = value(alpha)
        if np.max(np.abs(alpha - weight * likelihood.terms(y, K @ alpha + offset).d1)) < 1e-12:
            break
    W = weight * likelihood.terms(y, K @ alpha + offset).W
    logdet = np.linalg.slogdet(np.eye(len(y)) + K * W)[1]
    return K @ alpha, -value(alpha) + 0.5 * logdet
