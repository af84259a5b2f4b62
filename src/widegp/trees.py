"""Boosted trees as further inputs: what they predict of the target, never from a row's own target.

    x -> (x, g_1(x), ..., g_J(x)),     g_j(x) = mean over the models k that have not seen x of g_jk(x)

Small trees make g_1, large ones the others. Rows are split into K folds, and models k are grown on the other
folds. A training row gets the predictions of the models that have not seen it, a new row the mean of all. A
process on (x, g) is free to follow the trees where they are good, to weigh one kind against the other, to
correct them where they are not, and to leave them alone.

Trees are added to the first model while they better its left-out fold; the others get as many, so that all of
them grow on every row of their folds.

Folds are random, but equal rows seen FOLDS times or more share one: else g, which differs by fold, would tell
which fold a row is in, and so which targets g has not seen.

A row is known by its values and, among equal rows of a table, by its place: maps and trees of a table must be
given its rows in one order, whether all of them grow trees or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from widegp.boosting import Model, Rows, Size, grow
from widegp.forests import Forest
from widegp.registry import saveable
from widegp.threads import in_threads

FOLDS = 5
# Rows that trees are grown on, at most: more of them better a single number little, and take long.
MOST_ROWS = 100_000
# Fewer different rows need no trees: a process knows each of them.
LEAST_KINDS = 100
# Which trees are better depends on the table, both are better than one.
SMALL, LARGE = Size(0.08, 31, 10, 0.3), Size(0.05, 127, 5, 0.3)


@saveable
@dataclass(frozen=True, eq=False)
class TreesInput:
    """X (n, I) -> (X, (g(X) - shift) / scale), (n, I + J); J is 2 or 3, in older files 1.

    Fields
    ------
    feature, threshold, left, right, value : (T,) the nodes of all trees; leaves have feature -1.
    roots : where each tree starts.    starts : (K J + 1,) the trees of each model, those of a fold together.
    bases : (K J,).    seen, fold : `table_keys` of the rows that have grown the trees, and their folds; in
        older files the keys of equal rows are equal.
    shift, scale : (J,) mean and sd of g at the training rows.    size : in older files only, and not used.
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    roots: np.ndarray
    starts: np.ndarray
    bases: np.ndarray
    seen: np.ndarray
    fold: np.ndarray
    shift: np.ndarray = field(default_factory=lambda: np.zeros(1))
    scale: np.ndarray = field(default_factory=lambda: np.ones(1))
    size: int = 0

    @property
    def columns(self) -> int:
        """J, the inputs that are added."""
        return len(self.bases) // FOLDS

    @property
    def counts(self) -> list[int]:
        """How many trees each model of a fold has, (J,)."""
        return [int(count) for count in np.diff(self.starts[: self.columns + 1])]

    @classmethod
    def fit(
        cls, X: np.ndarray, target: np.ndarray, seed: int, loss: str = "squared_error", weight: Any = None,
        counts: Sequence[int] | None = None,
    ) -> Self:  # fmt: skip
        """Trees for a table X (n, I), its ``target`` and weight (n,), if not 1, by a loss of
        `widegp.boosting.LOSSES`; of a target (n, J) small trees predict the first column, large ones each
        of the others. Rows of weight 0 grow no trees. ``counts`` (J,) : how many trees each model gets, where
        that is known.
        """
        rng = np.random.default_rng(seed)
        growing = np.arange(len(X)) if weight is None else np.flatnonzero(weight)
        some = growing[np.sort(rng.permutation(len(growing))[:MOST_ROWS])]
        rows, own = X[some], np.ones(len(some)) if weight is None else weight[some]
        fold = _folds(row_keys(rows), own, rng)
        y = target[some] if target.ndim > 1 else np.column_stack([target[some], target[some]])
        columns = range(y.shape[1])

        def grown(job: tuple[int, int]) -> Model:
            k, j = job
            kept, out = (Rows(rows[side], y[side, j], own[side]) for side in (fold != k, fold == k))
            return grow(kept, out if counts is None else counts[j], loss, seed, LARGE if j else SMALL)

        jobs = [(k, j) for k in range(FOLDS) for j in columns]
        first: list[Model] = []
        if counts is None:
            first, jobs = in_threads(grown, jobs[: len(columns)], _alone), jobs[len(columns) :]
            counts = [len(model.roots) for model in first]
        made = cls._of([*first, *in_threads(grown, jobs, _alone)], table_keys(X)[some], fold)
        g = made.training(X, growing)[growing, X.shape[1] :]
        sd = g.std(axis=0)
        scaled = replace(made, shift=g.mean(axis=0), scale=np.where(sd > 0, sd, 1.0))
        vars(scaled)["forest"] = made.forest
        return scaled

    @classmethod
    def _of(cls, models: list[Model], seen: np.ndarray, fold: np.ndarray) -> Self:
        nodes = np.cumsum([0, *(len(model.feature) for model in models)])[:-1]

        def joined(name: str, dtype: Any = None, shifted: bool = False) -> np.ndarray:
            pairs = zip(models, nodes, strict=True)
            parts = [getattr(model, name) + shifted * start for model, start in pairs]
            return np.concatenate(parts, dtype=dtype)

        # Millions of nodes: half the bytes in memory and in files.
        left, right = (joined(name, np.int32, shifted=True) for name in ("left", "right"))
        return cls(
            joined("feature", np.int32), joined("threshold"), left, right, joined("value"),
            joined("roots", shifted=True), np.cumsum([0, *(len(model.roots) for model in models)]),
            np.array([model.base for model in models]), seen, fold,
        )  # fmt: skip

    def transform(self, X: ArrayLike) -> np.ndarray:
        """(X, scaled g) of new rows, X (n, I) -> (n, I + J)."""
        rows = np.ascontiguousarray(X, float)
        return self._beside(rows, self._mean(rows))

    def training(self, X: ArrayLike, only: np.ndarray | None = None) -> np.ndarray:
        """The same of the table that trees were grown for, or of one that begins with it: g of the rows that
        have grown them is cross-fitted.

        ``only`` (b,) : the rows whose g is asked for; that of all others is 0.
        """
        rows = np.ascontiguousarray(X, float)
        asked = np.arange(len(rows)) if only is None else only
        seen, seen_fold = self._seen_in_order
        keys = table_keys(rows)[asked]
        place = np.minimum(np.searchsorted(seen, keys), len(seen) - 1)
        fold, some = np.where(seen[place] == keys, seen_fold[place], -1), rows[asked]
        g = np.empty((len(asked), self.columns))
        for k in np.unique(fold):
            g[fold == k] = self._mean(some[fold == k]) if k < 0 else self.by_model(some[fold == k], int(k))
        out = np.column_stack([rows, np.zeros((len(rows), self.columns))])
        out[asked] = self._beside(some, g)
        return out

    @cached_property
    def _seen_in_order(self) -> tuple[np.ndarray, np.ndarray]:
        """Keys of the rows that have grown the trees, sorted, and the fold of each."""
        keys = told_apart(self.seen)
        order = np.argsort(keys)
        return keys[order], self.fold[order]

    def _mean(self, rows: np.ndarray) -> np.ndarray:
        return self.by_model(rows).reshape(len(rows), FOLDS, self.columns).mean(axis=1)

    def _beside(self, rows: np.ndarray, g: np.ndarray) -> np.ndarray:
        return np.column_stack([rows, (g - self.shift) / self.scale])

    def inverse(self, X: ArrayLike) -> np.ndarray:
        """The inputs without what the trees make of them; (n, I + J) -> (n, I)."""
        return np.asarray(X, float)[:, : -self.columns]

    def by_model(self, X: np.ndarray, only: int | None = None) -> np.ndarray:
        """g_jk of the rows X (n, I), (n, K J); ``only`` those of one fold, (n, J)."""
        count = self.columns
        models = slice(0, len(self.bases)) if only is None else slice(only * count, (only + 1) * count)
        return self.forest.sums(X, self.starts[models.start : models.stop + 1]) + self.bases[models]

    @cached_property
    def forest(self) -> Forest:
        """The trees, laid out to be asked; not part of a file."""
        trees = (self.feature, self.threshold, self.left, self.right, self.value, self.roots)
        return Forest.of(*trees, int(self.feature.max(initial=0)) + 1)


def row_keys(X: np.ndarray) -> np.ndarray:
    """A number for each row of X (n, I), the same for equal rows: a 64-bit hash of its entries, (n,)."""
    bits = np.ascontiguousarray(np.asarray(X, float) + 0.0).view(np.uint64)  # -0 becomes 0
    keys = np.full(len(bits), 0xCBF29CE484222325, np.uint64)
    for column in bits.T:
        keys = (keys ^ column) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return keys.view(np.int64)


def told_apart(keys: np.ndarray) -> np.ndarray:
    """Other keys in place of those that have come before, (n,); keys that all differ stay as they are."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    nth = np.empty(len(keys), np.uint64)
    nth[order] = np.arange(len(keys)) - np.searchsorted(ranked, ranked)
    return (keys.view(np.uint64) + nth * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def table_keys(X: np.ndarray) -> np.ndarray:
    """A number for each row of X (n, I) that tells the k-th of equal rows from the others, (n,)."""
    return told_apart(row_keys(X))


def too_few_kinds(X: np.ndarray) -> bool:
    """Whether X (n, I) has too few different rows to grow trees on."""
    return len(np.unique(row_keys(X))) < LEAST_KINDS


def _folds(keys: np.ndarray, weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The fold of each row, (n,): at random, the same for equal rows that are seen FOLDS times or more."""
    alone = rng.permutation(len(keys)) % FOLDS
    kinds, kind = np.unique(keys, return_inverse=True)
    together = rng.permutation(len(kinds)) % FOLDS
    return np.where(np.bincount(kind, weight)[kind] >= FOLDS, together[kind], alone)


def _alone() -> None:
    """OpenMP's threads are set to one where this is called: models are grown side by side instead."""
    threadpool_limits(1, user_api="openmp")
