"""Input designs in the cube [-0.5, 0.5]^I: uniform, stratified by norm and angle, Latin hypercube.

In high dimension the norms |x| and the angles between rows of a uniform design concentrate, and with them
what the kernel shows of its parameters: its diagonal sees |x| alone, the rest the angles besides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Seed = np.random.Generator | int | None

RADIAL_SPREAD = 0.5
ANGULAR_SPREAD = 1.0

_PAIRS = 100_000
_BISECTIONS = 60
_ROWS = 16_384


def uniform(n: int, I: int, rng: Seed = None) -> np.ndarray:
    """n rows, independent and uniform in [-0.5, 0.5]^I: (n, I)."""
    _check_size(n, I)
    return np.random.default_rng(rng).uniform(-0.5, 0.5, (n, I))


def latin_hypercube(n: int, I: int, rng: Seed = None) -> np.ndarray:
    """n rows of which each column has exactly one in every n-th part of [-0.5, 0.5]: (n, I)."""
    from scipy.stats import qmc

    _check_size(n, I)
    return qmc.LatinHypercube(d=I, seed=np.random.default_rng(rng)).random(n) - 0.5


def stratified(
    n: int,
    I: int,
    rng: Seed = None,
    *,
    radial_spread: float = RADIAL_SPREAD,
    angular_spread: float = ANGULAR_SPREAD,
) -> np.ndarray:
    """n rows in [-0.5, 0.5]^I whose norms and angles fill strata, section (stratification_ident): (n, I).

    Radial:   |x|^2 = (I / 12) t, t in each n-th part of [1 - s, 1 + s] once; the uniform design has mean
              I / 12.
    Angular:  (1 + q) I / 2 coordinates, rounded at random, have the sign of a direction g in {-1, 1}^I, and q
              is in each n-th part of [-a, a] once; so cos(x, g) fills its range, and cos(x, x') that of q q'.

    t and q form a Latin hypercube, g and which coordinates agree with it are random. The sizes
    |x_i| = v_i^p / 2 come from uniform v_i; the power p, one per row, is what gives |x| its stratum without
    leaving the cube.

    Parameters
    ----------
    radial_spread : s in [0, 1); 0 puts all rows on one sphere.
    angular_spread : a in [0, 1]; 0 balances the signs of every row.
    """
    from scipy.stats import qmc

    _check_size(n, I)
    if not 0 <= radial_spread < 1 or not 0 <= angular_spread <= 1:
        raise ValueError(
            "radial_spread must lie in [0, 1) and angular_spread in [0, 1];"
            f" got {radial_spread} and {angular_spread}."
        )
    rng = np.random.default_rng(rng)
    strata = 2 * qmc.LatinHypercube(d=2, seed=rng).random(n) - 1
    mean_square = (1 + radial_spread * strata[:, 0]) / 12
    direction = rng.choice([-1.0, 1.0], I)
    X = np.empty((n, I))
    for start in range(0, n, _ROWS):
        rows = slice(start, start + _ROWS)
        sizes = _sizes(mean_square[rows], rng.uniform(size=(len(mean_square[rows]), I)))
        X[rows] = sizes * _signs(angular_spread * strata[rows, 1], I, rng) * direction
    return X


def _sizes(mean_square: np.ndarray, v: np.ndarray) -> np.ndarray:
    """v^p / 2 with p > 0 per row such that mean_i (v_i^p / 2)^2 = mean_square; v (n, I) in (0, 1).

    The mean falls from 1/4 to 0 as p grows, so bisection in log p finds it.
    """
    log_v = np.log(np.maximum(v, np.finfo(float).tiny))
    low, high = np.full(len(v), -12.0), np.full(len(v), 12.0)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        too_long = np.mean(np.exp(2 * np.exp(middle)[:, None] * log_v), axis=1) / 4 > mean_square
        low, high = np.where(too_long, middle, low), np.where(too_long, high, middle)
    return np.exp(np.exp((low + high) / 2)[:, None] * log_v) / 2


def _signs(q: np.ndarray, I: int, rng: np.random.Generator) -> np.ndarray:
    """Signs (n, I) of which (1 + q) I / 2 per row, rounded up or down at random, are +1, in random places."""
    agreeing = np.floor((1 + q) * I / 2 + rng.uniform(size=len(q)))
    rank = np.argsort(rng.uniform(size=(len(q), I)), axis=1)
    return np.where(rank < agreeing[:, None], 1.0, -1.0)


@dataclass(frozen=True)
class DesignStatistics:
    """Spread of the two things that the kernel sees of a design; quantiles are at 5%, 50% and 95%.

    norm_mean, norm_sd, norm_quantiles : of |x| over rows.
    cosine_mean, cosine_sd, cosine_quantiles : of cos(x, x') over pairs of different rows.
    angle_sd : of the angle arccos cos(x, x'), in radians.
    """

    norm_mean: float
    norm_sd: float
    norm_quantiles: tuple[float, float, float]
    cosine_mean: float
    cosine_sd: float
    cosine_quantiles: tuple[float, float, float]
    angle_sd: float


def design_statistics(X: np.ndarray, rng: Seed = 0) -> DesignStatistics:
    """Norms of the rows of X (n, I), and angles of all pairs of rows, or of 100,000 random pairs if more."""
    X = np.asarray(X, float)
    n = len(X)
    if X.ndim != 2 or n < 2:
        raise ValueError(f"Angles need a table of at least two rows, (n, I); got shape {X.shape}.")
    norms = np.linalg.norm(X, axis=1)
    if n * (n - 1) // 2 <= _PAIRS:
        left, right = np.triu_indices(n, 1)
    else:
        rng = np.random.default_rng(rng)
        left = rng.integers(n, size=_PAIRS)
        right = (left + rng.integers(1, n, size=_PAIRS)) % n
    # A row at the origin has no direction; its cosines are taken as 0.
    lengths = np.maximum(norms, np.finfo(float).tiny)
    cosines = np.concatenate([_cosines(X, lengths, *part) for part in _parts(left, right)])
    return DesignStatistics(
        float(norms.mean()), float(norms.std()), _quantiles(norms), float(cosines.mean()),
        float(cosines.std()), _quantiles(cosines), float(np.arccos(np.clip(cosines, -1, 1)).std()),
    )  # fmt: skip


def _parts(left: np.ndarray, right: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(left[k : k + _ROWS], right[k : k + _ROWS]) for k in range(0, len(left), _ROWS)]


def _cosines(X: np.ndarray, lengths: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", X[left], X[right]) / (lengths[left] * lengths[right])


def _quantiles(values: np.ndarray) -> tuple[float, float, float]:
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    return float(low), float(median), float(high)


def _check_size(n: int, I: int) -> None:
    if n < 1 or I < 1:
        raise ValueError(f"A design needs at least one row and one input; got n={n}, I={I}.")


DESIGNS = {"uniform": uniform, "stratified": stratified, "latin_hypercube": latin_hypercube}
