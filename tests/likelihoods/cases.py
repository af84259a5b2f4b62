"""Likelihoods with several parameters, targets they can make, and mpmath's log densities of them."""

from __future__ import annotations

import mpmath as mp
import numpy as np

from widegp.likelihoods import Bernoulli, Gamma, Gaussian, NegativeBinomial, Poisson, StudentT

LIKELIHOODS = [
    Gaussian(0.3),
    StudentT(2.1, 0.7),
    StudentT(30.0, 2.0),
    Bernoulli("logit"),
    Bernoulli("probit"),
    Poisson(),
    NegativeBinomial(0.4),
    NegativeBinomial(20.0),
    NegativeBinomial(1e-3),
    Gamma(0.7),
    Gamma(2.0),
    Gamma(400.0),
]
IDS = [f"{l.name}{l.psi.tolist()}" for l in LIKELIHOODS]


def targets(likelihood, n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """f (n,) between -4 and 4, and draws of y given it."""
    rng = np.random.default_rng(seed)
    f = rng.uniform(-4, 4, n_rows)
    return likelihood.sample(f, rng), f


def mp_log_p(likelihood, y: float, f, psi=None):
    """log p(y | f) as written on paper, in mpmath."""
    y, f = mp.mpf(float(y)), mp.mpf(f) if isinstance(f, float) else f
    psi = [mp.mpf(v) for v in (likelihood.psi.tolist() if psi is None else psi)]
    match likelihood.name:
        case "gaussian":
            return -((y - f) ** 2) / (2 * psi[0]) - mp.log(2 * mp.pi * psi[0]) / 2
        case "student-t":
            nu, s = psi
            c = mp.gamma((nu + 1) / 2) / (mp.gamma(nu / 2) * mp.sqrt(mp.pi * nu) * s)
            return mp.log(c) - (nu + 1) / 2 * mp.log(1 + (y - f) ** 2 / (nu * s**2))
        case "logit":
            return -mp.log(1 + mp.exp(-f if y == 1 else f))
        case "probit":
            return mp.log(mp.erfc(-(f if y == 1 else -f) / mp.sqrt(2)) / 2)
        case "poisson":
            return y * f - mp.exp(f) - mp.loggamma(y + 1)
        case "negative-binomial":
            r, mu = 1 / psi[0], mp.exp(f)
            binomial = mp.loggamma(y + r) - mp.loggamma(r) - mp.loggamma(y + 1)
            return binomial + y * mp.log(mu / (mu + r)) + r * mp.log(r / (mu + r))
        case "gamma":
            (k,) = psi
            return k * mp.log(k) - mp.loggamma(k) + (k - 1) * mp.log(y) - k * f - k * y * mp.exp(-f)
    raise AssertionError(likelihood.name)
