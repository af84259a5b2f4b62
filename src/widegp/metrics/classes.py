"""Scores of class probabilities.

y (n,) holds classes 0, 1, ..., C - 1. p is P(y = 1), (n,), for two classes, or (n, C) with rows that add up
to 1.
Smaller is better for all but AUC and accuracy. Log loss and Brier score are proper; ECE looks at calibration
only.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import roc_auc_score


def log_loss(y: ArrayLike, p: ArrayLike) -> float:
    """-(1/n) sum_i log p_i,y_i in nats; +inf where a class that came was given probability 0."""
    y, p = _checked(y, p)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(p[np.arange(y.size), y])))


def brier(y: ArrayLike, p: ArrayLike) -> float:
    """(1/n) sum_i (p_i - y_i)^2 for two classes; (1/n) sum_i sum_c (p_ic - 1{y_i = c})^2 for more."""
    y, p = _checked(y, p)
    squares = (p - np.eye(p.shape[1])[y]) ** 2
    return float(np.mean(squares[:, 1] if p.shape[1] == 2 else squares.sum(axis=1)))


def accuracy(y: ArrayLike, p: ArrayLike) -> float:
    """Share of rows whose likeliest class came; larger is better. Of equal ones the first counts."""
    y, p = _checked(y, p)
    return float(np.mean(p.argmax(axis=1) == y))


def auc(y: ArrayLike, p: ArrayLike) -> float:
    """P(p_i > p_j | y_i = 1, y_j = 0), ties half; for more classes the mean over each against the rest."""
    y, p = _checked(y, p)
    if np.unique(y).size < p.shape[1]:
        raise ValueError("AUC compares rows of different classes, but a class has no row; pass some of each.")
    if p.shape[1] == 2:
        return float(roc_auc_score(y, p[:, 1]))
    return float(roc_auc_score(y, p, multi_class="ovr", average="macro"))


def ece(y: ArrayLike, p: ArrayLike, bins: int = 15) -> float:
    """sum_b (n_b/n) |mean of p - share of ones| over bins b that hold equally many rows, sorted by p.

    For two classes p is P(y = 1) and "one" is y = 1; for more, p is that of the likeliest class and "one" is
    that it came. It is above 0 even if all probabilities are right: ``ece_by_chance`` says how far.
    """
    y, p = _checked(y, p)
    confidence, hit = _confidence(p, y[None])
    return float(_binned(confidence, hit, bins)[0])


def ece_by_chance(
    p: ArrayLike, bins: int = 15, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """The central ``level`` range of ``ece`` if every row's class were drawn from its probabilities p."""
    _, p = _checked(np.zeros(len(np.asarray(p))), p)
    rng, found = np.random.default_rng(seed), []
    edges = np.cumsum(p, axis=1)[:, :-1]
    for start in range(0, draws, 100):
        u = rng.random((min(100, draws - start), len(p), 1))
        confidence, hit = _confidence(p, np.sum(u > edges, axis=2))
        found.append(_binned(confidence, hit, bins))
    low, high = np.quantile(np.concatenate(found), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def floored(p: np.ndarray) -> np.ndarray:
    """p (n, C) with no entry below about 1e-15: a class that no training row has would decide a log loss."""
    p = np.maximum(p, 1e-15)
    return p / p.sum(axis=1, keepdims=True)


def _confidence(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is checked for calibration, (n,), and whether it came, (s, n), for s draws of all classes."""
    if p.shape[1] == 2:
        return p[:, 1], y == 1
    top = p.argmax(axis=1)
    return p[np.arange(len(p)), top], y == top


def _binned(confidence: np.ndarray, hit: np.ndarray, bins: int) -> np.ndarray:
    """sum_b |sum over the bin of (confidence - hit)| / n for each draw, (s,)."""
    order = np.argsort(confidence, kind="stable")
    starts = np.unique(np.linspace(0, order.size, min(bins, order.size) + 1).astype(int)[:-1])
    gaps = np.add.reduceat((confidence - hit)[:, order], starts, axis=1)
    return np.abs(gaps).sum(axis=1) / order.size


def _checked(y: ArrayLike, p: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Classes (n,) as integers and probabilities (n, C)."""
    p, y = np.asarray(p, float), np.asarray(y)
    p = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
    if p.ndim != 2 or y.shape != (len(p),) or len(p) == 0 or p.shape[1] < 2:
        raise ValueError(f"y has shape {y.shape} and p {p.shape}; pass a class and probabilities per row.")
    bad = ~np.all((p >= 0) & (p <= 1), axis=1) | ~(np.abs(p.sum(axis=1) - 1) < 1e-6)
    if np.any(bad):
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"p is {p[row]} in row {row}; pass probabilities in [0, 1] that add up to 1.")
    whole = y.astype(int)
    if np.any((whole != y) | (whole < 0) | (whole >= p.shape[1])):
        raise ValueError(f"y must hold classes 0 to {p.shape[1] - 1}; number the classes so.")
    return whole, p
