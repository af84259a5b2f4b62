"""Several classes: P(y = c | f) = e^f_c / sum_k e^f_k, with one latent function for each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax, ndtri, softmax
from scipy.stats import qmc

from widegp.data.arrays import Floats
from widegp.likelihoods.base import finite_rows, per_row, refuse
from widegp.likelihoods.quadrature import chunks
from widegp.registry import saveable

LOG2_POINTS = 9  # 2^9 Sobol points integrate over the latents of a row


class SoftmaxTerms(NamedTuple):
    """log p (n,); with P (n, C) the probabilities and Y (n, C) ones at the classes seen:

    d1 = Y - P (n, C); W = P (1 - P) (n, C), the diagonal of -d2 = diag(P) - P P' (``hessian``);
    dW (n, C), the derivative of W_c by f_c.
    """

    log_p: Floats
    d1: Floats
    W: Floats
    dW: Floats
    P: Floats

    @property
    def hessian(self) -> Floats:
        """-d2 log p / df df' = diag(P) - P P', (n, C, C)."""
        return self.P[:, :, None] * np.eye(self.P.shape[1]) - self.P[:, :, None] * self.P[:, None, :]

    @property
    def third(self) -> Floats:
        """d3 log p / df_a df_b df_c, (n, C, C, C): minus the third cumulants of the one-hot class."""
        P, eye = self.P, np.eye(self.P.shape[1])
        pairs: Floats = np.einsum("na,nb,ac->nabc", P, P, eye)
        pairs = pairs + np.einsum("na,nb,bc->nabc", P, P, eye) + np.einsum("na,nc,ab->nabc", P, P, eye)
        same: Floats = np.einsum("na,ab,bc->nabc", P, eye, eye)
        triples: Floats = np.einsum("na,nb,nc->nabc", P, P, P)
        return pairs - same - 2 * triples


@saveable
@dataclass(frozen=True)
class Softmax:
    """log p(y = c | f) = f_c - log sum_k e^f_k, for ``n_classes`` classes numbered from 0 on; f (n, C)."""

    n_classes: int

    name = "softmax"
    parameters = ()

    @property
    def psi(self) -> Floats:
        """It has no parameters, (0,)."""
        return np.zeros(0)

    psi_by_z = psi

    def check(self, y: ArrayLike) -> Floats:
        y = finite_rows(y, self.name)
        bad = (y < 0) | (y >= self.n_classes) | (y != np.floor(y))
        refuse(bad, y, f"{self.n_classes} classes are numbered 0 to {self.n_classes - 1}; number them so")
        return y

    def terms(self, y: Floats, f: Floats) -> SoftmaxTerms:
        seen = np.asarray(y, int)
        log_P = log_softmax(f, axis=1)
        P = np.exp(log_P)
        rows, rest = np.arange(len(seen)), 1 - P
        # 1 - P of the likeliest class is the sum of the others, which keeps its digits as P -> 1.
        top, others = P.argmax(axis=1), P.copy()
        others[rows, top] = 0.0
        rest[rows, top] = others.sum(axis=1)
        d1 = -P
        d1[rows, seen] = rest[rows, seen]
        return SoftmaxTerms(log_P[rows, seen], d1, P * rest, P * rest * (rest - P), P)

    def level(self, y: Floats, weight: ArrayLike = 1.0) -> Floats:
        """Log shares of the classes with mean 0, (C,); half a row of each added so that they are finite."""
        counts = np.bincount(np.asarray(y, int), per_row(weight, y), self.n_classes) + 0.5
        log_share: Floats = np.log(counts)
        return log_share - float(np.mean(log_share))

    def start(self, y: Floats) -> Floats:
        return np.zeros((len(y), self.n_classes))

    def sample(self, f: Floats, rng: np.random.Generator) -> Floats:
        """A class for each row of f (..., C): the largest of f plus Gumbel noise."""
        return np.asarray(np.argmax(f + rng.gumbel(size=f.shape), axis=-1), np.float64)

    def predictive(self, mean: ArrayLike, variance: ArrayLike) -> SoftmaxPredictive:
        """The distribution of the class where f_c ~ N(mean_c, variance_c) independently; both (n, C)."""
        m, v = np.broadcast_arrays(np.asarray(mean, float), np.asarray(variance, float))
        if m.ndim == 1:
            raise ValueError("One class of several has no distribution of its own; use predict_proba.")
        if m.ndim != 2 or m.shape[1] != self.n_classes or not (np.all(np.isfinite(m)) and np.all(v >= 0)):
            raise ValueError(
                f"The latent means have shape {m.shape}; pass finite means and variances >= 0,"
                f" (n, {self.n_classes})."
            )
        return SoftmaxPredictive(self, m, v)


@dataclass(frozen=True)
class SoftmaxPredictive:
    """P(y = c) = E softmax(f)_c over f ~ N(mean_f, diag var_f), by 512 Sobol points and their mirrors."""

    likelihood: Softmax
    mean_f: Floats
    var_f: Floats

    @property
    def probabilities(self) -> Floats:
        """(n, C); rows add up to 1."""
        sobol = qmc.Sobol(self.likelihood.n_classes, scramble=True, seed=0).random_base2(LOG2_POINTS)
        normal = ndtri(sobol)
        nodes = np.concatenate([normal, -normal])
        sd = np.sqrt(self.var_f)
        out = np.zeros_like(self.mean_f)
        for rows in chunks(len(out)):
            for t in nodes:
                out[rows] += softmax(self.mean_f[rows] + sd[rows] * t, axis=1)
        return out / len(nodes)

    def log_density(self, y: ArrayLike) -> Floats:
        """log P(y_i), (n,)."""
        seen = self.likelihood.check(y).astype(int)
        probability: Floats = self.probabilities[np.arange(len(seen)), seen]
        return np.log(probability)

    def sample(self, rng: np.random.Generator, size: int = 1) -> Floats:
        """Draws of classes, (size, n)."""
        f = self.mean_f + np.sqrt(self.var_f) * rng.standard_normal((size, *self.mean_f.shape))
        return self.likelihood.sample(f, rng)
