"""A metric of the inputs learned from gradients: which directions the function varies along.

    M = (1/n) sum_i grad mu(x_i) grad mu(x_i)',     x -> x A,     A = s ((1 - t) M + t mean(eig M) I)^p

The limit kernels weigh all directions of the inputs alike: hidden weights are N(0, sigma_u2 I). With x A in
front they are N(0, sigma_u2 A A'), a covariance learned from the average gradient outer product M of a first
fit. The power p is 1/4 or 1/2, t is the share that every direction keeps, and s keeps the mean square of x.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import block_diag

# Directions that hold less than this share of the mean square of x A, all together, may be left out.
NEGLIGIBLE = 1e-4


def gradient_moment(gradients: np.ndarray, linear: np.ndarray | None = None) -> np.ndarray:
    """M (I, I) from gradients (n, q) by u = x A, with A = ``linear`` (I, q): d/dx = A d/du."""
    by_input = gradients if linear is None else gradients @ linear.T
    return by_input.T @ by_input / len(by_input)


def learned_map(
    moment: np.ndarray, X: np.ndarray, power: float, shrinkage: float = 0.0, low_rank: bool = False
) -> np.ndarray:
    """A (I, q) from M (I, I) and the scaled rows X (n, I); q = I unless ``low_rank`` leaves directions out.

    At full rank A is symmetric, the map nearest to the inputs as they are; at low rank its columns are the
    leading directions. A kernel of one sigma_u2 sees no difference. Rotated inputs have a rotated A.
    """
    values, directions = np.linalg.eigh(moment)
    values = np.maximum(values, 0.0)
    values = (1 - shrinkage) * values + shrinkage * values.mean()
    if not values.max() > 0:
        return np.eye(len(moment))
    weights = (values / values.max()) ** power
    square = np.mean((X @ directions) ** 2, axis=0)
    weights *= np.sqrt(square.sum() / (square @ weights**2)) if square @ weights**2 > 0 else 1.0
    if not low_rank:
        return (directions * weights) @ directions.T
    share = np.cumsum(square * weights**2) / square.sum()
    return (directions * weights)[:, share > NEGLIGIBLE][:, ::-1]


def weights_as_map(weights: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, float]:
    """Diagonal A (I, I) and sigma_u2 with sigma_u2 A A' = diag(weights); A keeps the mean square of X (n, I).
    """
    square = np.mean(X * X, axis=0)
    sigma_u2 = float(square @ weights / square.sum()) if square.sum() > 0 else float(weights.mean())
    return np.diag(np.sqrt(weights / sigma_u2)), sigma_u2


def beside_trees(linear: np.ndarray | None, X: np.ndarray, columns: int) -> np.ndarray:
    """A (I + J, q + J) for rows (x, g): half of the mean square of x A, A = ``linear`` or I, goes to g.

    X (n, I) are the rows without g, whose J ``columns`` have mean square 1.
    """
    own = np.eye(X.shape[1]) if linear is None else linear
    square = float(np.mean(np.sum((X @ own) ** 2, axis=1)))
    return np.asarray(block_diag(own * np.sqrt(0.5), np.eye(columns) * np.sqrt(0.5 * square / columns)))


def direction_shares(linear: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leading directions (I, q) of the metric A A' and their shares of its trace (q,), largest first."""
    left, singular, _ = np.linalg.svd(linear, full_matrices=False)
    return left, singular**2 / np.sum(singular**2)
