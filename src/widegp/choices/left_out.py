"""Each training row predicted from the others: what metric and noise are judged and learned by.

    exact        r_i = alpha_i / [K~^-1]_ii,   variance 1 / [K~^-1]_ii
    neighbours   r_i = y_i - mu(x_i | nearest of nine tenths of the rows)
    anchors      r_i = (y_i - mu_i) / (1 - t_i),   t_i = Var f_i / d_i

The first is exact. In the other two the weights of the features were estimated from all rows, row i among
them. With anchors alone its share t_i in its own prediction is taken out; beside neighbours it, of the order
r / n, is left in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widegp.approximations.dense import DensePosterior
from widegp.approximations.evaluation import Observed
from widegp.compute.backend import choose_backend
from widegp.conditioning import TrainingRows
from widegp.neighbors.search import EXACT_ROWS
from widegp.noise_model import LeftOut
from widegp.prediction import make_predictor

# Neighbours that a row is predicted from here; with more, scores would differ little.
NEIGHBORS = 100
FOLDS = 10
# Largest share that a row may have in its own prediction.
LARGEST_SHARE = 0.95


def left_out(
    posterior: Any, rows: TrainingRows | None, X: np.ndarray, observed: Observed, chosen: np.ndarray
) -> LeftOut:
    """The rows ``chosen`` (q,) of the table X (n, I), predicted from the others; ``rows`` are those of the
    table, in its order, where predictions condition on neighbours.
    """
    if isinstance(posterior, DensePosterior):
        return left_out_exactly(posterior, observed.variances()).of(chosen)
    if rows is not None:
        return left_out_rows(posterior, rows, chosen)
    own = observed.of(chosen)
    return left_out_with_anchors(posterior, X[chosen], own.y, own.variances())


def left_out_exactly(posterior: DensePosterior, noise: np.ndarray) -> LeftOut:
    """All rows of an exact fit with noise variances (n,)."""
    backend = choose_backend(posterior.kernel)
    with backend.scope():
        half = np.asarray(backend.invert_lower(backend.xp.asarray(posterior.L)))
    precision = np.einsum("ij,ij->j", half, half)
    return LeftOut(posterior.alpha / precision, np.maximum(1 / precision - noise, 0.0), noise)


def left_out_rows(posterior: Any, rows: TrainingRows, chosen: np.ndarray) -> LeftOut:
    """The rows ``chosen`` (q,) of the training rows, a tenth of the table at a time, from the other nine."""
    spread = np.ones(len(chosen)) if rows.spread is None else rows.spread[chosen]
    residual, latent = np.empty(len(chosen)), np.empty(len(chosen))
    groups = -(-len(chosen) // max(1, len(rows.X) // FOLDS))
    for group in range(groups):
        out = np.arange(group, len(chosen), groups)
        kept = np.setdiff1d(np.arange(len(rows.X)), chosen[out])
        others = TrainingRows(
            rows.X[kept], rows.y[kept], rows.kernel, min(NEIGHBORS, len(kept)),
            None if rows.spread is None else rows.spread[kept],
        )  # fmt: skip
        if len(out) * len(kept) <= EXACT_ROWS**2:
            # Searching exactly takes less time than building an index for so few rows.
            others = others.searched_exactly()
        mean, latent[out] = make_predictor(posterior, others).predict(rows.X[chosen[out]])
        residual[out] = rows.y[chosen[out]] - mean
    return LeftOut(residual, latent, posterior.noise * spread)


def left_out_with_anchors(posterior: Any, X: np.ndarray, y: np.ndarray, noise: np.ndarray) -> LeftOut:
    """Rows X (q, I) of the training rows with targets y (q,), under a posterior without neighbours."""
    mean, latent = make_predictor(posterior, None).predict(X)
    share = np.minimum(latent / (latent + noise), LARGEST_SHARE)
    return LeftOut((y - mean) / (1 - share), latent / (1 - share), noise)
