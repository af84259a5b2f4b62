"""log p(y) = log int p(y, z) dz: Laplace's approximation, and importance sampling that checks it.

    Laplace   log p(y, m) + (p/2) log 2 pi - (1/2) log det H    m the mode, H the Hessian of -log p(y, z)
    sampled   log (1/S) sum_s p(y, z_s) / q(z_s)                z_s ~ q = sum_r (S_r / S) q_r

q_1 is a t around m with scale 4 H^-1, each q_r after it a t with the mean and covariance that all draws
before it have under their weights p / q. The largest weights are replaced by the order statistics of the
generalised Pareto distribution fitted to them (Pareto smoothed importance sampling: Vehtari, Simpson, Gelman,
Yao and Gabry). Its shape k tells whether the weights have a variance: below 0.7 the estimate can be relied
on, above it is too low by an unknown amount.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_t

from widegp.inference.density import Mode, PosteriorDensity
from widegp.inference.posterior_points import principal
from widegp.registry import saveable

# Draws of each round: for an evidence, and for an average alone. Degrees of freedom of their t.
DRAWS, FEW_DRAWS = (400, 600, 1000, 2000, 4000), (200, 300, 500)
FREEDOM = 7
# Scale of the first round over H^-1: twice as wide, so that no tail of the posterior is without draws.
WIDER = 4.0
# The shape of the Pareto tail up to which the estimate is relied on, and draws that a tail needs.
RELIABLE = 0.7
LEAST_TAIL = 5


@saveable
@dataclass(frozen=True)
class Evidence:
    """log p(y) in nats by Laplace and by importance sampling, with its standard error and Pareto's k."""

    laplace: float
    sampled: float | None = None
    error: float | None = None
    pareto_k: float | None = None

    @property
    def reliable(self) -> bool:
        """Whether the sample can be relied on."""
        return self.pareto_k is not None and self.pareto_k < RELIABLE

    @property
    def log_evidence(self) -> float:
        """The sampled value where it can be relied on, else the larger of the two.

        A sample that has missed a part of the posterior gives too low a value. Where even that is above
        Laplace's, Laplace's is too low as well.
        """
        if self.sampled is None:
            return self.laplace
        return self.sampled if self.reliable else max(self.laplace, self.sampled)


def evidence_shares(found: Sequence[Evidence | None]) -> np.ndarray:
    """p(M | y) of models that are equally probable before the data, (k,); a single one needs no evidence.

    Sampled values are compared with sampled ones only: Laplace's are often too low. Where one model has no
    reliable sample, Laplace's are used for all.
    """
    if len(found) == 1:
        return np.ones(1)
    known = [one for one in found if one is not None]
    sampled = all(one.reliable for one in known)
    logs = [-np.inf if one is None else one.log_evidence if sampled else one.laplace for one in found]
    return _shares(np.array(logs))


class Weighted(NamedTuple):
    """Draws z (S, p) and their shares (S,) of the posterior."""

    z: np.ndarray
    weights: np.ndarray


class Smoothed(NamedTuple):
    """Log weights (S,), their largest replaced, and the shape k of their tail."""

    log_weights: np.ndarray
    k: float


def laplace_evidence(mode: Mode) -> float:
    """Laplace's log p(y), with standard deviations no wider than those of the points."""
    sds, _ = principal(mode.hessian)
    return float(-mode.value + len(sds) * np.log(2 * np.pi) / 2 + np.log(sds).sum())


def evidence(
    density: PosteriorDensity, mode: Mode, seed: int = 0, rounds: tuple[int, ...] = DRAWS
) -> tuple[Evidence, Weighted]:
    """The evidence, and the draws whose weights made it, by sum(rounds) evaluations."""
    (sds, vectors), rng = principal(mode.hessian), np.random.default_rng(seed)
    proposals = [_Proposal(mode.z, WIDER * (vectors * sds**2) @ vectors.T)]
    z, loss = np.empty((0, mode.z.size)), np.empty(0)
    for count in rounds:
        more = proposals[-1].draws(count, rng)
        z, loss = np.concatenate([z, more]), np.concatenate([loss, _losses(density, more)])
        shares = np.log(np.array(rounds[: len(proposals)]) / len(z))[:, None]
        proposed = logsumexp(shares + np.stack([q.log_density(z) for q in proposals]), axis=0)
        log_weights, k = smoothed(-loss - proposed)
        weights = _shares(log_weights)
        proposals.append(_adapted(proposals[0], z, weights))
    error = float(np.std(len(z) * weights) / np.sqrt(len(z)))
    sampled = float(logsumexp(log_weights) - np.log(len(z)))
    return Evidence(laplace_evidence(mode), sampled, error, k), Weighted(z, weights)


class _Proposal(NamedTuple):
    """A t of FREEDOM degrees around ``centre`` (p,) with scale matrix ``scale`` (p, p)."""

    centre: np.ndarray
    scale: np.ndarray

    def draws(self, count: int, rng: np.random.Generator) -> np.ndarray:
        found = multivariate_t(self.centre, self.scale, FREEDOM).rvs(count, random_state=rng)
        return np.reshape(found, (count, -1))

    def log_density(self, z: np.ndarray) -> np.ndarray:
        return np.atleast_1d(multivariate_t(self.centre, self.scale, FREEDOM).logpdf(z))


def _adapted(first: _Proposal, z: np.ndarray, weights: np.ndarray) -> _Proposal:
    """A t with the moments of weighted draws; of few effective draws, largely that of ``first``."""
    mean = weights @ z
    covariance = (z - mean).T @ ((z - mean) * weights[:, None])
    effective = 1 / float(np.sum(weights**2))
    known = effective / (effective + len(mean))
    # The covariance of a t of nu degrees is nu / (nu - 2) times its scale.
    scale = known * covariance * (FREEDOM - 2) / FREEDOM + (1 - known) * first.scale
    return _Proposal(known * mean + (1 - known) * first.centre, scale)


def _shares(log_weights: np.ndarray) -> np.ndarray:
    shares: np.ndarray = np.exp(log_weights - logsumexp(log_weights))
    return shares


def _losses(density: PosteriorDensity, z: np.ndarray) -> np.ndarray:
    """-log p(y, z) of each of the points z (S, p), inf outside the bounds."""
    low, high = density.bounds.T
    inside = np.all((z >= low) & (z <= high), axis=1)
    return np.array([density.value(one) if ok else np.inf for one, ok in zip(z, inside, strict=True)])


def smoothed(log_weights: np.ndarray) -> Smoothed:
    """Pareto smoothing of log w (S,): the largest min(S/5, 3 sqrt S) become quantiles of a fitted tail."""
    S = len(log_weights)
    tail = int(min(S / 5, 3 * np.sqrt(S)))
    order = np.argsort(log_weights)
    top = log_weights.max()
    if tail < LEAST_TAIL or not np.isfinite(log_weights[order[-tail - 1]]):
        return Smoothed(log_weights, np.inf)
    cut = np.exp(log_weights[order[-tail - 1]] - top)
    k, sigma = pareto_tail(np.exp(log_weights[order[-tail:]] - top) - cut)
    levels = (np.arange(tail) + 0.5) / tail
    excess = -sigma * np.log1p(-levels) if abs(k) < 1e-12 else sigma * np.expm1(-k * np.log1p(-levels)) / k
    replaced = log_weights.copy()
    # No smoothed weight lies above the largest that was seen.
    replaced[order[-tail:]] = np.minimum(np.log(cut + excess), 0.0) + top
    return Smoothed(replaced, k)


def pareto_tail(x: np.ndarray) -> tuple[float, float]:
    """Shape k and scale of a generalised Pareto distribution for ascending x (n,) > 0 (Zhang and Stephens).

    F(x) = 1 - (1 - b x)^(-1/k), b = -k / sigma. b is averaged over a grid with the weights of its profile
    likelihood, and k is drawn to 1/2 as by ten further draws.
    """
    x = np.maximum(np.sort(x), 1e-300)
    n, m = len(x), 30 + int(np.sqrt(len(x)))
    quartile = x[int(n / 4 + 0.5) - 1]
    b = 1 / x[-1] + (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3 * quartile)
    k = np.log1p(-b[:, None] * x).mean(1)
    profile = n * (np.log(-b / k) - k - 1)
    b_mean = float(_shares(profile) @ b)
    shape = float(np.log1p(-b_mean * x).mean())
    return (n * shape + 10 * 0.5) / (n + 10), -shape / b_mean
