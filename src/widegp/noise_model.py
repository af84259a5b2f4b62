"""Noise whose variance depends on the inputs, learned from residuals of rows that were left out.

    r_i ~ N(0, l_i + sigma_eps2 exp(c + h(x_i))),     h ~ GP(0, K_h)

r_i is the residual of row i predicted from the others, l_i the variance of that prediction without noise.
In a first pass log r_i^2 is a noisy log variance: its noise has the known variance pi^2/2 (that of the
logarithm of a chi-square of one degree), and the evidence of that regression chooses K_h. Then h is the mode
of the model above, by Fisher scoring: with f = noise share of the variance, a Gaussian regression on the
working response h + (r^2 / variance - 1) / f of variance 2 / f^2, which uses the residuals 2.5 times
as well.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg
import scipy.optimize

from widegp.compute.backend import Backend, choose_backend
from widegp.kernels.closed import Tanh
from widegp.registry import saveable
from widegp.threads import in_threads

# E log chi^2_1 and Var log chi^2_1.
LOG_CHI_MEAN, LOG_CHI_VARIANCE = -1.2703628454614782, math.pi**2 / 2
# sigma_u2 times |x|^2, and variances of h, that the evidence chooses among; on so many rows.
ROUGHNESS, AMPLITUDES = (0.1, 1.0, 10.0), (0.03, 0.1, 0.3, 1.0, 3.0)
EVIDENCE_ROWS = 800
# Nats by which noise that varies must be likelier to be worth a model.
LEAST_GAIN = 1.0
ROUNDS = 8
# log variances may differ by so much from the common one; a residual is worth at most so many variances.
LIMIT, LARGEST = 5.0, 20.0
# Rows whose noise a thread finds at a time.
PART_ROWS = 512
# The same of a program that JAX compiles.
DEVICE_ROWS = 2048


@saveable
@dataclass(frozen=True, eq=False)
class NoiseModel:
    """spread(x) = exp(strength h(x)), h(x) = K_h(x, points) weights: Var eps(x) = sigma_eps2 spread(x).

    points (p, I) as the kernel sees them, weights (p,); K_h is the limit kernel of tanh units with these
    two variances. before (J, I) : rows x are taken as x before, where they were seen under another metric
    than that of now; None where it is the same.
    """

    points: np.ndarray
    weights: np.ndarray
    sigma_u2: float
    sigma_v2: float
    strength: float = 1.0
    before: np.ndarray | None = None

    def spread(self, X: np.ndarray) -> np.ndarray:
        """Noise variances of the rows X (q, I), in units of sigma_eps2: (q,)."""
        X = X if self.before is None else X @ self.before
        backend, kernel, points = self._beside
        size = DEVICE_ROWS if backend.pads else PART_ROWS
        parts = [slice(start, start + size) for start in range(0, len(X), size)]

        def of(part: slice) -> np.ndarray:
            return np.asarray(backend.cross(kernel, X[part], points) @ self.weights)

        with backend.scope():
            # JAX's precision belongs to a thread, and its programs have threads of their own.
            made = [of(part) for part in parts] if backend.pads else in_threads(of, parts)
        h = np.concatenate([np.empty(0), *made])
        return np.exp(self.strength * np.clip(h, -LIMIT, LIMIT))

    @cached_property
    def _beside(self) -> tuple[Backend, Tanh, Any]:
        """What sets rows beside the points, K_h, and the points as it takes them."""
        kernel = self.kernel
        backend = choose_backend(kernel)
        with backend.scope():
            return backend, kernel, backend.fixed(kernel, self.points)

    @property
    def kernel(self) -> Tanh:
        """K_h."""
        return _kernel(self.sigma_u2, self.sigma_v2)

    def under(self, metric: np.ndarray | None, old: np.ndarray | None) -> Self:
        """The same noise of the same rows, where x A replaces x A_old: A ``metric``, A_old ``old``, (I, I) or
        None for the identity.
        """
        if metric is old:
            return self
        maps = [None if metric is None else np.linalg.pinv(metric), old, self.before]
        known = [part for part in maps if part is not None]
        return replace(self, before=functools.reduce(np.matmul, known))

    def with_strength(self, strength: float) -> Self:
        return replace(self, strength=strength)


@dataclass(frozen=True)
class LeftOut:
    """Residuals (n,) of rows predicted from the others, and the variances of these predictions, (n,) each:
    of f alone, and of the noise."""

    residual: np.ndarray
    latent: np.ndarray
    noise: np.ndarray

    def of(self, rows: np.ndarray) -> LeftOut:
        return LeftOut(self.residual[rows], self.latent[rows], self.noise[rows])

    def scaled(self, factor: np.ndarray) -> LeftOut:
        """The same rows, had their noise been so many times as large, (n,)."""
        return LeftOut(self.residual, self.latent, self.noise * factor)

    def scores(self) -> np.ndarray:
        """r / sqrt(latent + noise), (n,): standard normal under a model that is right."""
        return self.residual / np.sqrt(self.latent + self.noise)

    def log_density(self) -> np.ndarray:
        """log N(r; 0, latent + noise), (n,)."""
        variance = self.latent + self.noise
        return -0.5 * (np.log(2 * np.pi * variance) + self.residual**2 / variance)


def fit_noise(X: np.ndarray, left_out: LeftOut) -> NoiseModel | None:
    """The noise model of rows X (n, I) from what predicting each without itself left over; None where the
    residuals show no more than noise of one size.
    """
    variance = left_out.latent + left_out.noise
    ratio = np.maximum(left_out.residual**2 / variance, math.exp(-2 * LIMIT))
    log_ratio = np.log(ratio) - LOG_CHI_MEAN
    chosen = _likeliest_kernel(X[:EVIDENCE_ROWS], log_ratio[:EVIDENCE_ROWS])
    if chosen is None:
        return None
    sigma_u2, sigma_v2 = chosen
    K = _matrix(_kernel(sigma_u2, sigma_v2), X, X)
    weights = _fisher_scoring(K, left_out)
    return NoiseModel(np.array(X), weights, sigma_u2, sigma_v2)


def likeliest_factor(left_out: LeftOut, spread: np.ndarray) -> float:
    """c that makes residuals likeliest under noise c spread (n,): what sigma_eps2 would move by."""
    log_c = scipy.optimize.minimize_scalar(
        lambda log_c: -float(left_out.scaled(np.exp(log_c) * spread).log_density().mean()),
        bounds=(-LIMIT, LIMIT), method="bounded",
    ).x  # fmt: skip
    return float(np.exp(log_c))


def _matrix(kernel: Tanh, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """K(X, Y), (n, p), by the loops that fits use: no program is compiled for these shapes."""
    backend = choose_backend(kernel)
    with backend.scope():
        return np.array(backend.cross(kernel, X, Y))


def _kernel(sigma_u2: float, sigma_v2: float) -> Tanh:
    return Tanh(sigma_a2=1.0, sigma_u2=sigma_u2, sigma_b2=0.0, sigma_v2=sigma_v2)


def _likeliest_kernel(X: np.ndarray, t: np.ndarray) -> tuple[float, float] | None:
    """sigma_u2 and sigma_v2 of K_h by the evidence of t ~ N(c, K_h + pi^2/2), c estimated."""
    best, chosen = -np.inf, None
    typical = max(float(np.mean(np.sum(X * X, axis=1))), 1e-12)
    centred = t - t.mean()
    plain = -0.5 * (centred @ centred / LOG_CHI_VARIANCE + len(t) * math.log(LOG_CHI_VARIANCE))
    for rough in ROUGHNESS:
        values, vectors = np.linalg.eigh(_matrix(_kernel(rough / typical, 1.0), X, X))
        squares = (vectors.T @ centred) ** 2
        for amplitude in AMPLITUDES:
            spectrum = amplitude * np.maximum(values, 0.0) + LOG_CHI_VARIANCE
            evidence = -0.5 * float(np.sum(np.log(spectrum) + squares / spectrum))
            if evidence > best:
                best, chosen = evidence, (rough / typical, amplitude)
    return chosen if best > plain + LEAST_GAIN else None


def _fisher_scoring(K: np.ndarray, left_out: LeftOut) -> np.ndarray:
    """Weights (n,) with h = K weights at the mode; the constant c is left to sigma_eps2."""
    n = len(K)
    h, c, weights = np.zeros(n), 0.0, np.zeros(n)
    for _ in range(ROUNDS):
        noise = left_out.noise * np.exp(np.clip(c + h, -LIMIT, LIMIT))
        variance = left_out.latent + noise
        share = noise / variance
        surprise = np.clip(left_out.residual**2 / variance - 1, None, LARGEST)
        response = c + h + np.clip(surprise / share, -LIMIT, LARGEST)
        factor = scipy.linalg.cho_factor(K + np.diag(2 / share**2), lower=True)
        ones, solved = scipy.linalg.cho_solve(factor, np.stack([np.ones(n), response], axis=1)).T
        c = float(solved.sum() / ones.sum())
        weights = solved - c * ones
        moved, h = h, K @ weights
        if np.abs(moved - h).max() < 1e-3:
            break
    return weights
