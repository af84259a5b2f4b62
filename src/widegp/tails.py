"""How targets scatter about their predictions where a Gaussian's tails are too thin, or too thick.

    t = (z - mean_z) / sd_z,     p(t) = sum_k w_k N(t; 0, c_k^2),     sum_k w_k = 1

Under a model that is right, t is standard normal. Where some rows are much easier to predict than others and
no input tells which, it is sharper in the middle and longer in the tails; a few Gaussians of different widths
about the same mean have any such shape. They are learned from rows that were left out of the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from widegp.registry import saveable

# Fewer left-out rows say little about tails.
LEAST_ROWS = 200
MOST_PARTS, FOLDS, ROUNDS = 3, 5, 200
# Standard errors by which a further part must be likelier on rows that it was not fitted to.
CERTAIN = 2.0
NARROWEST, WIDEST, LEAST_WEIGHT = 0.02, 50.0, 1e-6
# Width of the part for rows unlike any seen.
STRAY = 5.0
# Change of the logarithm of a factor below which a round has changed nothing.
SETTLED = 1e-4
# Halvings of an interval after which the ends are neighbouring doubles, for most intervals.
HALVINGS = 60
FIELDS = ("weights", "factors")


@saveable
@dataclass(frozen=True, eq=False)
class Tails:
    """The law of t: weights w (K,) that sum to 1 and factors c (K,)."""

    weights: np.ndarray
    factors: np.ndarray

    @property
    def words(self) -> str:
        """One line for the notes of a fit."""
        pairs = zip(self.weights, self.factors, strict=True)
        if len(self.factors) == 1:
            return f"Errors of left-out rows made the sd of predictions {self.sd:.3g} times what it was."
        parts = ", ".join(f"{weight:.0%} with {factor:.3g} times the sd" for weight, factor in pairs)
        return f"Errors of left-out rows are distributed unlike a Gaussian: {parts}."

    @property
    def sd(self) -> float:
        """sqrt(sum_k w_k c_k^2)."""
        return float(np.sqrt(self.weights @ self.factors**2))

    def widened(self, factor: float) -> Tails:
        """The law of ``factor`` t."""
        return Tails(self.weights, factor * self.factors)

    def with_strays(self, n_rows: int) -> Tails:
        """The same with a part for rows unlike any of the ``n_rows`` seen, STRAY times as wide as the law: by
        Laplace's rule of succession what n rows have not shown has probability 1 / (n + 2).

        It costs 1 / (n + 2) nats a row, and bounds what a row far off can cost: with normal tails a single
        one may outweigh all others.
        """
        share = 1 / (n_rows + 2)
        weights = np.append((1 - share) * self.weights, share)
        return Tails(weights, np.append(self.factors, min(STRAY * self.sd, WIDEST)))

    def widening(self, scores: np.ndarray) -> float:
        """c >= 1 under which scores (n,) are likeliest by the law of c t."""
        found = minimize_scalar(
            lambda log_c: -float(np.mean(self.widened(np.exp(log_c)).log_density(scores))),
            bounds=(0.0, np.log(WIDEST)), method="bounded",
        )  # fmt: skip
        return float(np.exp(found.x))

    def log_density(self, t: ArrayLike) -> np.ndarray:
        """log p(t), of the shape of t."""
        scaled = np.asarray(t, float)[..., None] / self.factors
        parts = -0.5 * (scaled**2 + np.log(2 * np.pi)) + np.log(self.weights / self.factors)
        return np.asarray(logsumexp(parts, axis=-1))

    def log_density_moments(self) -> tuple[float, float]:
        """Mean and standard deviation of log p(t) for t from this law: by 64 Gauss-Hermite nodes a part."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(64)
        values = self.log_density(nodes * self.factors[:, None])
        share = self.weights[:, None] * weights / weights.sum()
        mean = float((share * values).sum())
        return mean, float(np.sqrt((share * (values - mean) ** 2).sum()))

    def to_normal(self, t: ArrayLike) -> np.ndarray:
        """Phi^-1(P(T <= t)): the number of standard deviations that a Gaussian would need for it."""
        t = np.asarray(t, float)
        return -np.sign(t) * ndtri_exp(self._log_beyond(np.abs(t)))

    def from_normal(self, u: ArrayLike) -> np.ndarray:
        """The inverse of `to_normal`, by halving the interval between the narrowest and the widest part."""
        u = np.asarray(u, float)
        size, wanted = np.abs(u), log_ndtr(-np.abs(u))
        lower, upper = size * self.factors.min(), size * self.factors.max()
        for _ in range(HALVINGS):
            middle = (lower + upper) / 2
            short = self._log_beyond(middle) > wanted
            lower, upper = np.where(short, middle, lower), np.where(short, upper, middle)
        return np.sign(u) * (lower + upper) / 2

    def _log_beyond(self, t: np.ndarray) -> np.ndarray:
        """log P(T > t) for t >= 0; as a logarithm it keeps its digits where the probability is tiny."""
        return np.asarray(logsumexp(log_ndtr(-t[..., None] / self.factors), b=self.weights, axis=-1))


# t standard normal, as under a model that is right.
NORMAL = Tails(np.ones(1), np.ones(1))


class JudgedTails(NamedTuple):
    """The law of scores, None for the standard normal; log p of each (n,), under that of the other folds."""

    tails: Tails | None
    log_density: np.ndarray


def judged_tails(scores: np.ndarray, most_parts: int = MOST_PARTS) -> JudgedTails:
    """The law of left-out scores t (n,), and how likely each of them is under what the others say.

    Each further part must make rows likelier that its own fit has not seen, by `CERTAIN` standard errors.
    """
    chosen, before = None, -0.5 * (scores**2 + np.log(2 * np.pi))
    for n_parts in range(1, most_parts + 1 if len(scores) >= LEAST_ROWS else 1):
        law = _likeliest(scores, _spread_out(scores, n_parts))
        after = _cross_fitted(scores, law)
        gain = after - before
        if gain.mean() > CERTAIN * gain.std() / np.sqrt(len(gain)):
            chosen, before = law, after
    return JudgedTails(chosen, before)


def tails_together(
    scores: Sequence[np.ndarray], log_scales: Sequence[np.ndarray], laws: Sequence[Tails]
) -> list[Tails]:
    """The laws of J models whose average is to predict, from where each alone has ``laws``:

        p(y_i) = sum_j exp(a_ij) sum_k w_jk N(t_ij; 0, c_jk^2)

    at its likeliest. An average of laws that are right one by one is wider than its errors, of which some
    cancel. scores : t_j (n,) of the same left-out rows under each model.    log_scales : a_j (n,), from
    the density of a score to that of its target, times the model's share in the average.
    """
    if len(scores[0]) < LEAST_ROWS:
        return list(laws)
    member = np.repeat(np.arange(len(laws)), [len(law.weights) for law in laws])
    weights, factors = (np.concatenate([getattr(law, name) for law in laws]) for name in FIELDS)
    t, a = np.stack(scores)[member], np.stack(log_scales)[member]
    weights, factors = _maximised(t, a, member, weights, factors)
    return [Tails(weights[member == j], factors[member == j]) for j in range(len(laws))]


def _cross_fitted(scores: np.ndarray, law: Tails) -> np.ndarray:
    """log p of each score under the law of the other folds, (n,); that of all rows is where they begin."""
    fold = np.arange(len(scores)) % FOLDS
    out = np.empty(len(scores))
    for k in range(FOLDS):
        out[fold == k] = _likeliest(scores[fold != k], law).log_density(scores[fold == k])
    return out


def _spread_out(scores: np.ndarray, n_parts: int) -> Tails:
    """Equal parts whose factors lie about the root mean square."""
    size = max(float(np.sqrt(np.mean(scores**2))), NARROWEST)
    factors = size * np.geomspace(0.4, 2.5, n_parts) if n_parts > 1 else np.array([size])
    return Tails(np.full(n_parts, 1 / n_parts), factors)


def _likeliest(scores: np.ndarray, start: Tails) -> Tails:
    """The law of one model alone."""
    parts = len(start.weights)
    t = np.broadcast_to(scores, (parts, len(scores)))
    return Tails(*_maximised(t, np.zeros(1), np.zeros(parts, int), start.weights, start.factors))


def _maximised(
    t: np.ndarray, a: np.ndarray, member: np.ndarray, weights: np.ndarray, factors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """By expectation and maximisation: of P parts, part p of model ``member`` (P,), the weights and factors
    (P,); t and a (P, n) are those of its model.
    """
    square = t**2
    for _ in range(ROUNDS):
        before = factors
        parts = np.log(weights / factors)[:, None] + a - 0.5 * square / factors[:, None] ** 2
        share = np.exp(parts - parts.max(0))
        share /= share.sum(0)
        held = share.sum(1)
        weights = np.maximum(held / np.bincount(member, held)[member], LEAST_WEIGHT)
        weights = weights / np.bincount(member, weights)[member]
        factors = np.sqrt(np.maximum(np.einsum("pn,pn->p", share, square) / np.maximum(held, 1e-300), 0.0))
        factors = np.clip(factors, NARROWEST, WIDEST)
        if np.max(np.abs(np.log(factors / before))) < SETTLED:
            break
    return weights, factors
