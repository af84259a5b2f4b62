"""Numbers of which single values mean something: a code, a round sum, a zero among amounts.

    x -> (x, m(x)),    m(v) = mean of the target where the column is v, shrunk to that of all rows

A kernel is smooth in x and cannot tell a value from the next one. Where training rows show that the mean at a
value tells more than those at the values beside it, the mean becomes an input of its own. A training row gets
it from the rows of other folds, so that its own target does not enter its inputs. Where a value has so many
rows that one of them hardly matters, all get the mean of all, as new rows do: means that differ by fold would
tell which fold a row is in, and so which targets are not in its mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from widegp.data.kinds import FOLDS
from widegp.data.level_means import level_means
from widegp.registry import saveable

# A column qualifies with more values than a few levels have, and with rows enough for each on average.
FEWEST, MOST, ROWS_PER_VALUE = 12, 1000, 20
# The mean of so many rows is the same with and without one of them.
ENOUGH_ROWS = 30
# Values on either side that speak for one where the target is smooth; the best of these counts.
BESIDE = (1, 2, 4)
# What the mean at a value must gain over that: standard errors, and a share of the target's variance.
CERTAIN, LEAST_GAIN = 2.0, 0.01


@saveable
@dataclass(frozen=True, eq=False)
class ValueMeans:
    """X (n, I) -> (X, m_1, ..., m_k) (n, I + k), for the columns ``columns`` (k,) of X.

    values, means : (T,) of all such columns, one after the other, values increasing; between them m is
    interpolated.    starts : (k + 1,) where those of each begin.
    """

    columns: np.ndarray
    values: np.ndarray
    means: np.ndarray
    starts: np.ndarray

    def transform(self, X: ArrayLike) -> np.ndarray:
        X = np.asarray(X, float)
        added = []
        for k, column in enumerate(self.columns):
            own = slice(self.starts[k], self.starts[k + 1])
            added.append(np.interp(X[:, column], self.values[own], self.means[own]))
        return np.column_stack([X, *added])

    def inverse(self, X: ArrayLike) -> np.ndarray:
        """The columns as they were."""
        X = np.asarray(X, float)
        return X[:, : X.shape[1] - len(self.columns)]


class Valued(NamedTuple):
    """The map for new rows, and what it makes of the training rows, (n, I + k)."""

    map: ValueMeans
    X: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, target: np.ndarray, weight: np.ndarray, seed: int) -> Self | None:
        """Of training rows X (n, I), their target (n,) and weights (n,); None where no column qualifies."""
        folds = np.random.default_rng(seed).permutation(len(X)) % FOLDS
        found = {j: _column(x, target, weight, folds) for j, x in enumerate(X.T)}
        kept = {j: column for j, column in found.items() if column is not None}
        if not kept:
            return None
        starts = np.cumsum([0, *(len(column.values) for column in kept.values())])
        values, means = (np.concatenate(parts) for parts in zip(*(c[:2] for c in kept.values()), strict=True))
        rows = np.column_stack([X, *(column.rows for column in kept.values())])
        return cls(ValueMeans(np.array([*kept]), values, means, starts), rows)


class _Column(NamedTuple):
    """Values (L,), their means (L,), standardised over the rows, and the left-out means of the rows (n,)."""

    values: np.ndarray
    means: np.ndarray
    rows: np.ndarray


def _column(x: np.ndarray, target: np.ndarray, weight: np.ndarray, folds: np.ndarray) -> _Column | None:
    """The means of a column x (n,), or None where they tell no more than those of values beside them."""
    values, place = np.unique(x, return_inverse=True)
    if not FEWEST < len(values) <= min(MOST, len(x) / ROWS_PER_VALUE):
        return None
    cell = place * FOLDS + folds
    powers = [np.bincount(cell, weight * target**k, len(values) * FOLDS) for k in range(3)]
    sums = np.reshape(powers, (3, len(values), FOLDS))
    whole, share = sums.sum(axis=2), weight / weight.sum()
    own = np.empty(len(x))
    beside = np.empty((len(BESIDE), len(x)))
    for k in range(FOLDS):
        here, others = folds == k, whole - sums[:, :, k]
        own[here] = level_means(others)[0][place[here]]
        for smooth, reach in zip(beside, BESIDE, strict=True):
            smooth[here] = level_means(_beside(others, reach))[0][place[here]]
    gains = (target - beside) ** 2 - (target - own) ** 2
    gain = gains[np.argmin(gains @ share)]
    mean = float(gain @ share)
    error = float(np.sqrt(np.sum((share * (gain - mean)) ** 2)))
    variance = float((target - target @ share) ** 2 @ share)
    if mean < max(CERTAIN * error, LEAST_GAIN * variance):
        return None
    means = level_means(whole)[0]
    own = np.where(whole[0][place] >= ENOUGH_ROWS, means[place], own)
    level = float(own @ share)
    sd = float(np.sqrt((own - level) ** 2 @ share))
    return _Column(values, (means - level) / sd, (own - level) / sd)


def _beside(sums: np.ndarray, reach: int) -> np.ndarray:
    """Sums (3, L) over the ``reach`` values before and after each, itself left out."""
    total = np.cumsum(np.pad(sums, ((0, 0), (reach + 1, reach))), axis=1)
    return total[:, 2 * reach + 1 :] - total[:, : -2 * reach - 1] - sums
