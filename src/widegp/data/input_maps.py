"""Fitted maps of the inputs beside the affine ones: by rank, and linear in all columns at once.

    X~ = z(X)  column by column,     X~ = (scaled X) A

Like `InputScaler` they are frozen, hold no rows, and offer ``transform`` and ``inverse``, so that whatever
follows them (kernel, anchors, neighbours, files) need not know which of them made its inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from widegp.data.preprocessing import InputScaler, as_matrix, columns_of, finite, mean_sd
from widegp.registry import saveable

# Knots of a column, at most: evenly spaced in its normal scores.
KNOTS = 512
# Beyond the training rows a column goes on straight, as steeply as its outermost twentieth does on average,
# but at most so many times as steeply as the whole: outermost values may differ by rounding alone.
TAIL, STEEPEST = 0.05, 100.0


class InputMap(Protocol):
    """X (n, I) -> X~ (n, q), and back: exactly where q = I, else to the nearest X.

    A map that has learned from targets has ``training`` too, for rows whose targets it has seen; see
    `of_training_rows`.
    """

    def transform(self, X: ArrayLike) -> np.ndarray: ...

    def inverse(self, X: ArrayLike) -> np.ndarray: ...


@saveable
@dataclass(frozen=True, eq=False)
class QuantileScaler:
    """x~ = z(x), the standardised normal score of x: z = (Phi^-1(F(x)) - mean) / sd, column by column.

    F is the share of training rows below x plus half of those at x, so that equal values share one score and
    a column of two values becomes what standardising makes of it. z is linear between knots, increasing, and
    goes on straight beyond the training rows. A constant column becomes x minus its value.

    Fields
    ------
    knots, scores : (T,) the x and z of all columns' knots, one column after the other.
    starts : (I + 1,) where the knots of each column start.
    """

    knots: np.ndarray
    scores: np.ndarray
    starts: np.ndarray

    @classmethod
    def fit(cls, X: ArrayLike) -> Self:
        """The scores of training rows X (n, I), n >= 1."""
        X = as_matrix(X)
        if X.shape[0] == 0:
            raise ValueError("X has no rows; pass at least one training row.")
        curves = [_curve(finite(x, f"X, column {j}")) for j, x in enumerate(columns_of(X))]
        starts = np.cumsum([0, *(len(knots) for knots, _ in curves)])
        empty = np.zeros(0)
        knots, scores = (np.concatenate([empty, *(curve[k] for curve in curves)]) for k in (0, 1))
        return cls(knots, scores, starts)

    def transform(self, X: ArrayLike) -> np.ndarray:
        """z(x), X (n, I) -> (n, I)."""
        return self._through(X, self.knots, self.scores, self._forward)

    def inverse(self, X: ArrayLike) -> np.ndarray:
        """The x with z(x) = x~; X~ (n, I) -> (n, I)."""
        return self._through(X, self.scores, self.knots, 1 / self._forward)

    @property
    def _own(self) -> list[slice]:
        """Where the knots of each column are."""
        return [slice(*ends) for ends in itertools.pairwise(self.starts)]

    @cached_property
    def _forward(self) -> np.ndarray:
        """Slopes of z below and above the knots of each column, (I, 2)."""
        found = [tail_slopes(self.knots[own], self.scores[own]) for own in self._own]
        return np.array(found).reshape(-1, 2)

    def _through(self, X: ArrayLike, left: np.ndarray, right: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        X = as_matrix(X)
        if X.shape[1] != len(self.starts) - 1:
            raise ValueError(
                f"X has {X.shape[1]} columns but the scaler was fitted on {len(self.starts) - 1};"
                " pass the same columns in the same order."
            )
        # Imported where it is needed: it brings the compiler along.
        from widegp.data.piecewise import lines

        return lines(X, left, right, self.starts, slopes)


@saveable
@dataclass(frozen=True, eq=False)
class LinearMap:
    """x~ = x A, for a matrix A (I, q): a metric |x A|, fitted, in front of the kernel."""

    matrix: np.ndarray

    def transform(self, X: ArrayLike) -> np.ndarray:
        """X A; X (n, I) -> (n, q)."""
        return np.asarray(X, float) @ self.matrix

    def inverse(self, X: ArrayLike) -> np.ndarray:
        """The shortest X with X A nearest to X~; X~ (n, q) -> (n, I)."""
        return np.asarray(X, float) @ np.linalg.pinv(self.matrix)


@saveable
@dataclass(frozen=True, eq=False)
class ChainedMaps:
    """Maps one after the other: a scaler of single columns first, a linear map of all of them last."""

    parts: tuple[Any, ...]

    def transform(self, X: ArrayLike) -> np.ndarray:
        return np.asarray(reduce(lambda rows, part: part.transform(rows), self.parts, X))

    def training(self, X: ArrayLike) -> np.ndarray:
        return np.asarray(reduce(lambda rows, part: of_training_rows(part, rows), self.parts, X))

    def inverse(self, X: ArrayLike) -> np.ndarray:
        return np.asarray(reduce(lambda rows, part: part.inverse(rows), reversed(self.parts), X))


def each_transformed(maps: Sequence[Any], X: np.ndarray) -> list[np.ndarray]:
    """[map.transform(X) for each of the maps]; what others have in common with the first is made once."""

    def step(rows: np.ndarray, part: Any) -> np.ndarray:
        return np.asarray(part.transform(rows))

    first, *others = (one.parts if isinstance(one, ChainedMaps) else (one,) for one in maps)
    steps = list(itertools.accumulate(first, step, initial=X))
    shared = [len(list(itertools.takewhile(_same, zip(first, chain, strict=False)))) for chain in others]
    return [steps[-1], *(reduce(step, chain[k:], steps[k]) for chain, k in zip(others, shared, strict=True))]


def _same(pair: tuple[Any, Any]) -> bool:
    """Whether two maps are of one kind, with equal fields."""
    one, other = pair
    return one is other or (
        type(one) is type(other)
        and all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    )


def of_training_rows(inputs: Any, X: ArrayLike) -> np.ndarray:
    """X~ of rows among which are training rows: where the map has seen their targets, cross-fitted."""
    return np.asarray(getattr(inputs, "training", inputs.transform)(X))


def fit_scaler(X: ArrayLike, kind: str | None, weight: np.ndarray | None = None) -> Any:
    """The scaler of ``kind`` for training rows X (n, I): ``"quantile"``, or one of `InputScaler`'s."""
    return QuantileScaler.fit(X) if kind == "quantile" else InputScaler.fit(X, kind, weight)


def _curve(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Knots and scores of one column x (n,), both strictly increasing."""
    mean, sd, _ = mean_sd(x)
    if sd == 0:
        return np.array([mean]), np.zeros(1)
    knots, counts = np.unique(x, return_counts=True)
    scores = ndtri((np.cumsum(counts) - 0.5 * counts) / len(x))
    scores = scores - counts @ scores / len(x)
    scores /= np.sqrt(counts @ scores**2 / len(x))
    if len(knots) > KNOTS:
        even = np.linspace(scores[0], scores[-1], KNOTS)
        kept = np.unique(np.searchsorted(scores, even).clip(0, len(knots) - 1))
        knots, scores = knots[kept], scores[kept]
    return knots, scores


def tail_slopes(knots: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """Slopes of the scores below and above the knots of a column; 1 where there is but one."""
    if len(knots) == 1:
        return 1.0, 1.0
    tail = TAIL * (scores[-1] - scores[0])
    low = max(1, int(np.searchsorted(scores, scores[0] + tail)))
    high = min(len(knots) - 2, int(np.searchsorted(scores, scores[-1] - tail)))
    below = (scores[low] - scores[0]) / (knots[low] - knots[0])
    above = (scores[-1] - scores[high]) / (knots[-1] - knots[high])
    most = STEEPEST * (scores[-1] - scores[0]) / (knots[-1] - knots[0])
    return float(min(below, most)), float(min(above, most))
