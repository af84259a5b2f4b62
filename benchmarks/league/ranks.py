"""Ranks of models over tables, and what of their differences chance explains (Demsar 2006, JMLR 7)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, rankdata, studentized_range


def ranks(scores: np.ndarray) -> np.ndarray:
    """Rank of each model on each table, 1 for the lowest score; (tables, models) -> the same.

    Equal scores share the mean of their ranks. A model without a score, NaN or infinite, comes after all that
    have one.
    """
    known = np.where(np.isfinite(scores), scores, np.inf)
    return np.stack([rankdata(row) for row in known])


class Friedman(NamedTuple):
    """The statistic, and the probability of one as large if all models were alike."""

    statistic: float
    p_value: float


def friedman(found: np.ndarray) -> Friedman:
    """(k - 1) N V / S: V the variance of the mean ranks about (k + 1) / 2, S that of the ranks themselves.

    found : ranks (N, k). Without ties S = (k^2 - 1) / 12, which gives the form of the textbooks; chi^2 with
    k - 1 degrees of freedom.
    """
    tables, models = found.shape
    centre = (models + 1) / 2
    between = np.mean((found.mean(axis=0) - centre) ** 2)
    within = np.mean((found - centre) ** 2)
    if within == 0:
        return Friedman(0.0, 1.0)
    statistic = (models - 1) * tables * between / within
    return Friedman(float(statistic), float(chi2.sf(statistic, models - 1)))


def critical_difference(models: int, tables: int, alpha: float = 0.05) -> float:
    """CD = q sqrt(k (k + 1) / (6 N)), Nemenyi: mean ranks that differ by less may differ by chance.

    q is the quantile of the studentized range of k models with infinitely many degrees of freedom, over
    sqrt(2).
    """
    q = studentized_range.ppf(1 - alpha, models, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(models * (models + 1) / (6 * tables)))


def cliques(mean_ranks: np.ndarray, difference: float) -> list[tuple[int, int]]:
    """Longest runs of sorted mean ranks (k,) within ``difference``: (first, last), each of two or more."""
    order = np.sort(mean_ranks)
    found: list[tuple[int, int]] = []
    for first in range(len(order)):
        last = int(np.searchsorted(order, order[first] + difference, side="right")) - 1
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
