"""Which columns a model needs: what becomes of its predictions when a column is shuffled between rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from scipy.special import entr
from scipy.stats import rankdata

from widegp.fitted import FittedGP
from widegp.metrics.classes import floored
from widegp.progress import Listener, Progress
from widegp.sources import Source

# With several hundred neighbours a prediction costs milliseconds, so their number is bounded, not the rows.
PREDICTIONS = 40_000
PREDICTIONS_SLOW = 6_000
LEAST_ROWS = 40
MOST_REPEATS = 32
# Held-out rows that a table model keeps.
KEPT_ROWS = 2_000
TOGETHER = 0.9
# Fewer rows show high rank correlations by chance.
LEAST_CORRELATED_ROWS = 30


class WithError(NamedTuple):
    """A mean over rows and its standard error."""

    value: float
    se: float


class Shuffles(NamedTuple):
    """Rows X (N, I) in random order, y or None, and what the model says of them; N is even.

    mean : (N, M), predictions of each output in units of its scale, or probabilities of each class.
    seen : (N, M), what came: y in the same units, or a one at the class.    log_loss : (N,), -log p(y).
    shifts : (K,); the k-th shuffle gives row i the values of row i - shifts[k], counted round. Each has its
        opposite among them, so that any two rows give to each other or not at all.
    """

    X: np.ndarray
    y: np.ndarray | None
    mean: np.ndarray
    log_loss: np.ndarray | None
    shifts: tuple[int, ...]
    seen: np.ndarray | None = None

    @property
    def opposite(self) -> list[int]:
        """Where the opposite of each shift stands."""
        return [self.shifts.index(-shift % len(self.X)) for shift in self.shifts]

    def given(self, values: np.ndarray) -> np.ndarray:
        """Of ``values`` (N, ...), what each row is given by each shuffle: (K, N, ...)."""
        return np.stack([np.roll(values, shift, axis=0) for shift in self.shifts])

    def returned(self, terms: np.ndarray) -> np.ndarray:
        """Of ``terms`` (K, N, ...) by pairs (row, giver), those of the pairs (giver, row)."""
        return np.stack(
            [np.roll(terms[k], s, axis=0) for k, s in zip(self.opposite, self.shifts, strict=True)]
        )


class Sample(NamedTuple):
    """Which rows are drawn to shuffle; ``most`` bounds the predictions further than `prepare` does."""

    seed: int = 0
    most: int | None = None


DRAWN = Sample()


@dataclass(frozen=True, eq=False)
class ColumnStudy:
    """What a model of a table keeps to explain itself by rows that its fit has not seen.

    X : (s, I), some of the held-out rows.    ranking : `rank_columns` of them, by the model that was scored.
    """

    X: np.ndarray
    ranking: dict[str, Any]

    @classmethod
    def of(cls, fitted: Any, X: np.ndarray, y: np.ndarray, sources: Sequence[Source], sample: Sample) -> Self:
        """Of held-out rows X (s, I) with targets y."""
        kept = np.sort(np.random.default_rng(sample.seed).permutation(len(X))[:KEPT_ROWS])
        return cls(X[kept], rank_columns(fitted, X, y, sources, sample))


def rank_columns(
    fitted: Any,
    X: np.ndarray,
    y: np.ndarray | None,
    sources: Sequence[Source],
    sample: Sample = DRAWN,
    progress: Listener | None = None,
) -> dict[str, Any]:
    """`shuffle` of each column, and of columns that move together as one; JSON-able.

    fitted : a `FittedGP`; a tuple of them, one for each output; or what has ``predict_proba``.
    X (N, I), y (N,) or None: rows that the fit has not seen, y (N, T) for several outputs and the places of
        classes among the columns of ``predict_proba``; ``progress`` is told before each column.
    "inputs" are in the order of ``sources``; "together" names groups with a rank correlation of at least
    TOGETHER between any two (see `correlations`).
    """
    groups = groups_together(correlations(X[:KEPT_ROWS], [source.inputs for source in sources]))
    joint = [tuple(j for k in group for j in sources[k].inputs) for group, _ in groups]
    shuffled = [source.inputs for source in sources] + joint
    base = prepare(fitted, X, y, len(shuffled), sample)
    found = []
    for done, inputs in enumerate(shuffled):
        if progress is not None:
            progress(Progress.step("shuffling", done, len(shuffled)))
        found.append(shuffle(fitted, base, inputs))
    together = [
        {"names": [sources[k].name for k in group], "correlation": least} | measured
        for (group, least), measured in zip(groups, found[len(sources) :], strict=True)
    ]
    alone = [{"name": s.name} | measured for s, measured in zip(sources, found, strict=False)]
    return {"inputs": alone, "together": together, "rows": len(base.X), "repeats": len(base.shifts)}


def prepare(
    fitted: Any, X: np.ndarray, y: np.ndarray | None, n_groups: int, sample: Sample = DRAWN
) -> Shuffles:
    """As many rows and repeats as the bounds on predictions allow for ``n_groups`` columns."""
    held = getattr(fitted, "fitted_", fitted)
    first = held[0] if isinstance(held, tuple) else held
    predictions = PREDICTIONS if first.rows is None else PREDICTIONS_SLOW
    predictions = predictions if sample.most is None else min(sample.most, predictions)
    rows = np.random.default_rng(sample.seed).permutation(len(X))[: max(LEAST_ROWS, predictions // n_groups)]
    rows = rows[: len(rows) // 2 * 2]
    X, y = X[rows], None if y is None else np.asarray(y, float)[rows]
    shifts = _shifts(len(X), predictions // (len(X) * n_groups))
    mean, log_loss = _predicted(fitted, X, y)
    return Shuffles(X, y, mean, log_loss, shifts, None if y is None else _seen(fitted, y, mean.shape[1]))


def _shifts(n_rows: int, repeats: int) -> tuple[int, ...]:
    """1, -1, 2, -2, ... round ``n_rows``, at most ``repeats``; half way round is its own opposite."""
    pairs = min(repeats, MOST_REPEATS, n_rows - 2) // 2
    return tuple(s for k in range(1, pairs + 1) for s in (k, n_rows - k)) or (n_rows // 2,)


def shuffle(fitted: Any, base: Shuffles, inputs: Sequence[int]) -> dict[str, float | None]:
    """Row i gets the ``inputs`` of row k, all at once, and becomes x_ik. Means over pairs (i, k) of

    error_rise     (y_i - f(x_ik))^2 - (y_i - f(x_i))^2             permutation importance
    importance     error_rise over (y_i - y_k)^2: where f(x) is E[y | x], the share of Var y that needs it
    log_loss_rise  log p(y_i | x_i) - log p(y_i | x_ik)
    effect         (f(x_i) - f(x_ik))^2 over (f(x_i) - f(x_k))^2    total Sobol index, Jansen's estimator
    interactions   (f(x_i) - f(x_ik) - f(x_ki) + f(x_k))^2 over 2 (f(x_i) - f(x_k))^2    less first order

    where "over" is between means; squared differences of two rows estimate twice the variance. The last is 0
    for any sum of a function of the column and one of the others, correlated or not. f is the predictive
    mean, or the probabilities of classes; squares add up over outputs or classes. The importance of classes
    is log_loss_rise over the entropy of their shares, what there is to know of them. Each has a standard
    error, ``..._se``. What cannot be told, without y or where y or f is constant, is None.
    """
    mean, log_loss = _changed(fitted, base, list(inputs))
    one = np.ones(mean.shape[:2])
    error = None if base.seen is None else _square(base.seen - mean) - _square(base.seen - base.mean)
    rise = None if log_loss is None else log_loss - base.log_loss
    both = base.mean - mean - base.returned(mean) + base.given(base.mean)
    unit: Any = 0 if base.seen is None else _square(base.seen - base.given(base.seen))
    share = (error, unit)
    if base.seen is not None and hasattr(fitted, "predict_proba"):
        share = (rise, float(np.sum(entr(base.seen.mean(axis=0)))) * one)
    measured: dict[str, tuple[Any, Any]] = {
        "error_rise": (error, one),
        "importance": share,
        "log_loss_rise": (rise, one),
        "effect": (_square(mean - base.mean), _square(base.mean - base.given(base.mean))),
        "interactions": (_square(both), 2 * _square(base.mean - base.given(base.mean))),
    }
    out: dict[str, float | None] = {}
    for name, (terms, unit) in measured.items():
        known = terms is not None and np.mean(unit) > 0 and bool(np.isfinite(terms).all())
        out[name], out[f"{name}_se"] = pair_ratio(base, terms, unit) if known else (None, None)
    return out


def pair_ratio(base: Shuffles, terms: np.ndarray, unit: np.ndarray) -> WithError:
    """R = mean of ``terms`` over mean of ``unit``, (K, N) each, one for each row and giver; by linearisation

    the standard error is that of the mean of (terms - R unit) / mean of unit.
    """
    ratio = float(terms.mean() / unit.mean())
    return WithError(ratio, pair_mean(base, (terms - ratio * unit) / unit.mean()).se)


def pair_mean(base: Shuffles, terms: np.ndarray) -> WithError:
    """Mean of ``terms`` (K, N), one for each row and giver, and its standard error.

    var = (sum_i s_i^2 - sum_p e_p^2) / (N K)^2,  e_p the sum of the two centred terms of a pair p of rows and
    s_i that over all pairs of row i: pairs are correlated where they share a row. They share two with
    themselves, hence the second sum.
    """
    pairs = terms - terms.mean()
    # Squares of large numbers would overflow.
    largest = float(np.abs(pairs).max()) or 1.0
    pairs = pairs / largest
    pairs = pairs + base.returned(pairs)
    # Each pair stands here twice, once for each of its rows.
    squares = np.sum(pairs**2) / 2
    # By chance the difference may be small or negative: never less than for independent pairs.
    variance = max(np.sum(pairs.sum(0) ** 2) - squares, squares) / pairs.size**2
    return WithError(float(terms.mean()), largest * float(np.sqrt(variance)))


def correlations(X: np.ndarray, groups: Sequence[Sequence[int]]) -> np.ndarray:
    """How well ranks of one column tell those of another, and back: (G, G), between 0 and 1.

    r_ab = sqrt(min(R2(a | b), R2(b | a))), R2 the share of the variance of the ranked inputs of a that a
    linear regression on those of b explains: |Spearman's rho| of two numbers, for two categories the root of
    Goodman and Kruskal's tau. X (N, I); ``groups`` lists the inputs of each column.
    """
    ranks = rankdata(X, axis=0)
    ranks -= ranks.mean(0)
    blocks = [ranks[:, list(group)] for group in groups]
    bases = [_basis(block) for block in blocks]
    products = (np.hstack(bases).T @ np.hstack(blocks)) ** 2
    totals = np.array([np.sum(block**2) for block in blocks])
    explained = _owners(blocks).T @ products.T @ _owners(bases) / np.where(totals > 0, totals, 1)[:, None]
    return np.sqrt(np.clip(np.minimum(explained, explained.T), 0, 1)) * (len(X) >= LEAST_CORRELATED_ROWS)


def groups_together(r: np.ndarray) -> list[tuple[list[int], float]]:
    """Columns of which any two have r (G, G) of at least TOGETHER, and the least r of the group."""
    if len(r) < 2:
        return []
    distance = squareform(1 - r, checks=False)
    labels = fcluster(linkage(distance, "complete"), 1 - TOGETHER, "distance")
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return [(list(map(int, m)), float(r[np.ix_(m, m)][~np.eye(len(m), dtype=bool)].min()))
            for m in members if len(m) > 1]  # fmt: skip


def _square(values: np.ndarray) -> np.ndarray:
    """Squares summed over outputs, the last axis."""
    total: np.ndarray = np.sum(values**2, axis=-1)
    return total


def _changed(fitted: Any, base: Shuffles, inputs: list[int]) -> tuple[np.ndarray, np.ndarray | None]:
    """Predictions (K, N, M), and log losses (K, N), of the changed rows; those that stay have theirs."""
    given = np.concatenate(base.given(base.X[:, inputs]))
    rows = np.tile(np.arange(len(base.X)), len(base.shifts))
    moved = np.flatnonzero(np.any(given != base.X[rows][:, inputs], axis=1))
    mean = base.mean[rows]
    log_loss = None if base.log_loss is None else base.log_loss[rows]
    if len(moved):
        X = base.X[rows[moved]]
        X[:, inputs] = given[moved]
        mean[moved], losses = _predicted(fitted, X, None if base.y is None else base.y[rows[moved]])
        if log_loss is not None:
            log_loss[moved] = losses
    shape = (len(base.shifts), len(base.X))
    return mean.reshape(*shape, -1), None if log_loss is None else log_loss.reshape(shape)


def _predicted(fitted: Any, X: np.ndarray, y: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """``mean`` (q, M) and ``log_loss`` (q,) of `Shuffles`."""
    if hasattr(fitted, "predict_proba"):
        p = fitted.predict_proba(X)
        return p, None if y is None else -np.log(floored(p)[np.arange(len(p)), y.astype(int)])
    parts = fitted if isinstance(fitted, tuple) else (fitted,)
    found = [part.predictive(X) for part in parts]
    mean = np.stack([one.mean for one in found], axis=1) / _scales(parts)
    if y is None:
        return mean, None
    columns = y.reshape(len(y), -1).T
    return mean, -np.sum([one.log_density(c) for one, c in zip(found, columns, strict=True)], axis=0)


def _seen(fitted: Any, y: np.ndarray, width: int) -> np.ndarray:
    """``seen`` (q, M) of `Shuffles`; ``width`` is M."""
    if hasattr(fitted, "predict_proba"):
        return np.eye(width)[y.astype(int)]
    return y.reshape(len(y), -1) / _scales(fitted if isinstance(fitted, tuple) else (fitted,))


def _scales(parts: Sequence[FittedGP]) -> np.ndarray:
    """What makes outputs comparable: their sd; one alone keeps its unit."""
    return np.array([part.target.sd for part in parts]) if len(parts) > 1 else np.ones(1)


def _basis(block: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span those of ``block`` (N, k); levels of a category are dependent."""
    U, s, _ = np.linalg.svd(block, full_matrices=False)
    return U[:, s > 1e-8 * max(s.max(initial=0.0), 1.0)]


def _owners(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """(columns of all blocks, G): 1 where a column stands in the block."""
    owner = np.repeat(np.arange(len(blocks)), [block.shape[1] for block in blocks])
    return np.asarray(owner[:, None] == np.arange(len(blocks)), float)
