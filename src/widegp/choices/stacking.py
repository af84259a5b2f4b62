"""The share of one of two models in their average, by rows that neither was fitted to.

    p(y_i | w) = (1 - w) p_1(y_i) + w p_2(y_i),     share = E[w | y],  w ~ Beta(2 q, 2 (1 - q))

p_1(y_i), p_2(y_i) are the densities of held-out targets. Of many rows the share is the w under which the
average is likeliest (stacking of predictive distributions: Yao, Vehtari, Simpson and Gelman); few rows leave
it near q, by default 1/2, and w is then uniform. The evidence would give nearly all to one model, also where
neither is right and the other predicts held-out rows better.

Two kernels may predict held-out rows alike and yet not be equally credible: one of them may need parameters
that were next to impossible before the data were seen. There q is what the evidence tells, but no further
than DOUBT from 0 and 1: held-out rows that do tell kernels apart still decide.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import betainc

# Cells of w over which it is integrated: their ends and middles.
ENDS = np.arange(1001) / 1000
VALUES = (np.arange(1000) + 0.5) / 1000
# The evidence is believed up to 19 to 1.
DOUBT = 0.05


def stacked_share(first: np.ndarray, second: np.ndarray, before: float = 0.5) -> float:
    """The share of the second model, from minus the log densities (h,) of held-out targets under each;
    ``before`` is q.
    """
    least = np.minimum(first, second)
    w = VALUES[:, None]
    log_density = np.log((1 - w) * np.exp(least - first) + w * np.exp(least - second)).sum(1)
    # By the cells, since the density of w may be infinite at their outer ends.
    mass = np.diff(betainc(2 * before, 2 * (1 - before), ENDS))
    likely = mass * np.exp(log_density - log_density.max())
    return float(likely @ VALUES / likely.sum())


def averaged_loss(first: np.ndarray, second: np.ndarray, share: float) -> np.ndarray:
    """-log[(1 - share) p_1 + share p_2] (h,), from minus the log densities."""
    return -np.logaddexp(np.log1p(-share) - first, np.log(share) - second)


def nested_shares(losses: Sequence[Sequence[np.ndarray]], evidence: Sequence[float]) -> list[np.ndarray]:
    """Shares of the one or two metrics of one or two kernels, which sum to 1.

    losses : minus the log densities (h,) of held-out targets, by kernel and metric.
    evidence : of each kernel, shares as well.

    First the metrics of a kernel share out, then the kernels with their averages.
    """
    within, averages = [], []
    for one, *other in losses:
        share = stacked_share(one, other[0]) if other else 0.0
        within.append(np.array([1 - share, share] if other else [1.0]))
        averages.append(averaged_loss(one, other[0], share) if other else one)
    if len(losses) == 1:
        return within
    second = stacked_share(averages[0], averages[1], float(np.clip(evidence[1], DOUBT, 1 - DOUBT)))
    return [(1 - second) * within[0], second * within[1]]
