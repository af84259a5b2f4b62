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
        # Near the mode values differ by rounding alone, and a step is not to be cut short for that.
        while value(alpha + share * (new - alpha)) < objective - 1e-10 and share > 1e-8:
            share /= 2
        alpha = alpha + share * (new - alpha)
        objective = value(alpha)
        if np.max(np.abs(alpha - weight * likelihood.terms(y, K @ alpha + offset).d1)) < 1e-12:
            break
    W = weight * likelihood.terms(y, K @ alpha + offset).W
    logdet = np.linalg.slogdet(np.eye(len(y)) + K * W)[1]
    return K @ alpha, -value(alpha) + 0.5 * logdet


def softmax_mode_and_evidence(K, y, level, weight=1.0, steps=200):
    """f (n, C) with largest sum w log p(y | f) - sum_c f_c'K^-1 f_c/2, -log q(y), and the covariance of f.

    Dense in all n C latents, stacked class by class (R&W, section 3.5, without its tricks).
    """
    n, C = len(y), len(level)
    weight = np.broadcast_to(weight, n)
    big = np.kron(np.eye(C), K)
    seen = np.eye(C)[np.asarray(y, int)]
    a = np.zeros(n * C)

    def at(a):
        f = (big @ a).reshape(C, n).T + level
        log_P = f - np.log(np.sum(np.exp(f - f.max(1, keepdims=True)), axis=1, keepdims=True))
        log_P = log_P - f.max(1, keepdims=True)
        return np.exp(log_P), np.sum(weight * np.sum(seen * log_P, axis=1)) - 0.5 * a @ big @ a

    for _ in range(steps):
        P, value = at(a)
        W = np.zeros((n * C, n * C))
        for c in range(C):
            for k in range(C):
                block = weight * ((c == k) * P[:, c] - P[:, c] * P[:, k])
                W[c * n : (c + 1) * n, k * n : (k + 1) * n] = np.diag(block)
        d1 = (weight[:, None] * (seen - P)).T.ravel()
        if np.max(np.abs(a - d1)) < 1e-11:
            break
        new = np.linalg.solve(np.eye(n * C) + W @ big, W @ (big @ a) + d1)
        size = 1.0
        while at(a + size * (new - a))[1] < value - 1e-9 and size > 1e-8:
            size /= 2
        a = a + size * (new - a)
    logdet = np.linalg.slogdet(np.eye(n * C) + W @ big)[1]
    covariance = big - big @ np.linalg.solve(np.eye(n * C) + W @ big, W @ big)
    return (big @ a).reshape(C, n).T, -value + 0.5 * logdet, covariance
