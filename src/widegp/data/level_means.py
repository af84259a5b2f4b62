"""Means of a target by level, each shrunk to the mean of all rows."""

from __future__ import annotations

import numpy as np

# How many rows of its own a level needs for its mean to count as much as that of all rows.
LEAST_SHRINKAGE, MOST_SHRINKAGE = 1.0, 1000.0


def level_means(sums: np.ndarray) -> tuple[np.ndarray, float]:
    """(s_l + m s / n) / (n_l + m) per level from sums (3, L) of 1, y, y^2, and s / n.

    m = W / B, the variance within levels over that between them, as in a one-way layout of random effects.
    """
    n, s, q = sums
    total, mean = max(n.sum(), 1.0), s.sum() / max(n.sum(), 1.0)
    levels = n > 0
    within = (q[levels] - s[levels] ** 2 / n[levels]).sum() / max(total - levels.sum(), 1)
    between = max(q.sum() / total - mean**2 - within, 0.0)
    m = np.clip(within / between if between > 0 else np.inf, LEAST_SHRINKAGE, MOST_SHRINKAGE)
    return (s + m * mean) / (n + m), float(mean)
