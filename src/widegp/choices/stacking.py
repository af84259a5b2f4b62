"""The share of one of two models in their average, by rows that neither was fitted to.

    p(y_i | w) = (1 - w) p_1(y_i) + w p_2(y_i),     share = E[w | y],  w ~ U(0, 1)

p_1(y_i), p_2(y_i) are the densities of held-out targets. Of many rows the share is the w under which the
average is likeliest (stacking of predictive distributions: Yao, Vehtari, Simpson and Gelman); few rows leave
it near 1/2. The evidence would give nearly all to one model, also where neither is right and the other
predicts held-out rows better.
"""

from __future__ import annotations

import numpy as np

# Values of w over which it is integrated.
VALUES = (np.arange(1000) + 0.5) / 1000


def stacked_share(first: np.ndarray, second: np.ndarray) -> float:
    """The share of the second model, from minus the log densities (h,) of held-out targets under each."""
    least = np.minimum(first, second)
    w = VALUES[:, None]
    log_density = np.log((1 - w) * np.exp(least - first) + w * np.exp(least - second)).sum(1)
    likely = np.exp(log_density - log_density.max())
    return float(likely @ VALUES / likely.sum())
