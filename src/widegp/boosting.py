"""Boosted trees, grown by compiled code that leaves Python's lock alone.

    F_0 = base,    F_t(x) = F_{t-1}(x) + rate v_t(leaf of x),    v = -G / H

G and H are sums over a leaf of the first and second derivatives of the loss by F. A tree begins with all rows
in one leaf; the leaf whose best split x_j <= s gains most, G_l^2/H_l + G_r^2/H_r - G^2/H, is split next.
Inputs are cut into at most 255 bins, so that s is found by sums over these. So do LightGBM and scikit-learn's
histogram gradient boosting, which is the oracle of the tests, and grows the trees where there is no Numba. It
walks from node to node in Python, so that models which are grown side by side take turns; these do not
(``benchmarks/boosting.py``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from widegp.jit import COMPILED, njit

MOST_BINS = 255
# Least sum of second derivatives in a leaf.
LEAST_CURVATURE = 1e-3
# What trees minimise, and so what F is: a mean, log-odds of a class 1, the logarithm of a mean count.
LOSSES = ("squared_error", "log_loss", "poisson")
# Trees are added until the rows that say when to stop have not gained by the last so many.
MOST_TREES, PATIENCE = 2000, 50
# What scikit-learn calls these rows.
HELD = ("X_val", "y_val", "sample_weight_val")


class Rows(NamedTuple):
    """Rows X (n, I), their targets (n,) and weights (n,)."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray


class Size(NamedTuple):
    """How trees are grown: the share of each that is added, leaves, rows in a leaf, inputs a split sees."""

    rate: float
    leaves: int
    least_rows: int
    inputs: float


class Model(NamedTuple):
    """Trees one after the other: a split x[feature] <= threshold leads to the node ``left``, else ``right``;
    a leaf has feature -1 and a ``value``. ``roots``: where each tree starts; ``base``: added to their sum.
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    roots: np.ndarray
    base: float


def grow(rows: Rows, until: Rows | int, loss: str, seed: int, size: Size) -> Model:
    """Trees of ``rows`` by a loss of `LOSSES`: so many, or as many as do best on the rows of ``until``."""
    return (_grown if COMPILED else grown_plainly)(rows, until, loss, seed, size)


def _grown(rows: Rows, until: Rows | int, loss: str, seed: int, size: Size) -> Model:
    edges = bin_edges(rows.X)
    none = Rows(*(part[:0] for part in rows))
    held, most = (none, until) if isinstance(until, int) else (until, MOST_TREES)
    feature, code, left, right, value, roots, losses, base = _boost(
        bin_codes(rows.X, edges), rows.y, rows.weight, bin_codes(held.X, edges), held.y, held.weight,
        LOSSES.index(loss), seed % 2**31, most, max(1, round(size.inputs * rows.X.shape[1])),
        max(len(one) for one in edges) + 1, size.leaves, size.least_rows, size.rate,
    )  # fmt: skip
    # Without rows that say when to stop all losses are 0, and all trees are kept.
    count = int(np.argmin(losses)) + 1 if len(held.y) else most
    end = roots[count] if count < len(roots) else len(feature)
    threshold = np.zeros(end)
    inner = np.flatnonzero(feature[:end] >= 0)
    threshold[inner] = [edges[feature[node]][code[node]] for node in inner]
    return Model(feature[:end], threshold, left[:end], right[:end], value[:end], roots[:count], base)


def grown_plainly(rows: Rows, until: Rows | int, loss: str, seed: int, size: Size) -> Model:
    """`grow` by scikit-learn, for machines without Numba: other draws of inputs, the same otherwise."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind: Any = HistGradientBoostingClassifier if loss == "log_loss" else HistGradientBoostingRegressor
    held, most = ((), until) if isinstance(until, int) else (until, MOST_TREES)
    model = kind(
        loss=loss, learning_rate=size.rate, max_iter=most, early_stopping=bool(held),
        n_iter_no_change=PATIENCE, max_leaf_nodes=size.leaves, min_samples_leaf=size.least_rows,
        max_features=size.inputs, random_state=seed % 2**31,
    )  # fmt: skip
    model.fit(*rows, **dict(zip(HELD, held, strict=False)))
    count = int(np.argmax(model.validation_score_[1:])) + 1 if held else most
    # No public attribute holds the trees; the tests compare what is read here with ``model.predict``.
    trees = [predictors[0].nodes for predictors in model._predictors[:count]]
    roots = np.cumsum([0, *(len(tree) for tree in trees)])
    nodes: Any = np.concatenate(trees)
    shift = np.repeat(roots[:-1], np.diff(roots))
    leaf = nodes["is_leaf"].astype(bool)
    return Model(
        np.where(leaf, -1, nodes["feature_idx"]).astype(np.int32), nodes["num_threshold"].astype(float),
        (nodes["left"] + shift).astype(np.int64), (nodes["right"] + shift).astype(np.int64),
        np.where(leaf, nodes["value"], 0.0), roots[:-1], float(np.ravel(model._baseline_prediction)[0]),
    )  # fmt: skip


def bin_edges(X: np.ndarray) -> list[np.ndarray]:
    """For each input of X (n, I) the ends of its bins but the last: half-way between its values, or between
    quantiles where these are many.
    """
    out = []
    for column in X.T:
        values = np.unique(column)
        if len(values) > MOST_BINS:
            levels = np.linspace(0, 1, MOST_BINS + 1)[1:-1]
            edges = np.unique(np.quantile(column, levels, method="midpoint"))
            edges = edges[edges < values[-1]]
        else:
            edges = values[:-1] + (values[1:] - values[:-1]) / 2
        out.append(edges)
    return out


def bin_codes(X: np.ndarray, edges: list[np.ndarray], dtype: Any = np.uint8) -> np.ndarray:
    """How many of the ``edges`` of its input lie below each entry of X (n, I), input by input: (I, n)."""
    out = np.empty((len(edges), len(X)), dtype)
    for j, (ends, own) in enumerate(zip(edges, out, strict=True)):
        own[:] = np.searchsorted(ends, X[:, j])
    return out


@njit(cache=True, nogil=True)
def _slopes(y, weight, F, loss, G, H):  # type: ignore[no-untyped-def]
    """First and second derivatives of the loss by F, (n,) each."""
    for i in range(y.size):
        if loss == 0:
            G[i], H[i] = weight[i] * (F[i] - y[i]), weight[i]
        elif loss == 1:
            p = 1 / (1 + np.exp(-F[i]))
            G[i], H[i] = weight[i] * (p - y[i]), weight[i] * p * (1 - p)
        else:
            mean = np.exp(F[i])
            G[i], H[i] = weight[i] * (mean - y[i]), weight[i] * mean


@njit(cache=True, nogil=True)
def _loss(y, weight, F, loss):  # type: ignore[no-untyped-def]
    """The mean loss."""
    total = 0.0
    for i in range(y.size):
        if loss == 0:
            total += weight[i] * (y[i] - F[i]) ** 2 / 2
        elif loss == 1:
            total += weight[i] * (np.log1p(np.exp(-abs(F[i]))) + max(F[i], 0.0) - y[i] * F[i])
        else:
            total += weight[i] * (np.exp(F[i]) - y[i] * F[i])
    return total / weight.sum()


@njit(cache=True, nogil=True)
def _base(y, weight, loss):  # type: ignore[no-untyped-def]
    """The constant F that fits best."""
    mean = (weight * y).sum() / weight.sum()
    if loss == 0:
        return mean
    if loss == 1:
        mean = min(max(mean, 1e-10), 1 - 1e-10)
        return np.log(mean / (1 - mean))
    return np.log(max(mean, 1e-10))


@njit(cache=True, nogil=True)
def _add_sums(one, two, rows, g, h, sums):  # type: ignore[no-untyped-def]
    """sums (2, B, 2 or 3): of g, h and 1 over the ``rows`` in each bin of two inputs; without h where all of
    it is 1. Two at a time, since an addition must wait for the one before where both are to the same bin.
    """
    sums[:] = 0.0
    first, second = sums
    if sums.shape[2] == 2:
        for i in range(rows.size):
            a, b, own = one[rows[i]], two[rows[i]], g[i]
            first[a, 0] += own
            second[b, 0] += own
            first[a, 1] += 1.0
            second[b, 1] += 1.0
    else:
        for i in range(rows.size):
            for of, b in ((first, one[rows[i]]), (second, two[rows[i]])):
                of[b, 0] += g[i]
                of[b, 1] += h[i]
                of[b, 2] += 1.0


@njit(cache=True, nogil=True)
def _best_split(codes, rows, G, H, order, seen, least_rows, sums):  # type: ignore[no-untyped-def]
    """Gain, input and bin of the best split of the leaf of these ``rows``, by ``seen`` inputs drawn at
    random, which come first in ``order``; gain 0 where there is none.
    """
    best, at, cut, last, n = 0.0, -1, -1, sums.shape[2] - 1, float(rows.size)
    if n < 2 * least_rows:
        return best, at, cut
    g_rows, h_rows = G[rows], H[rows]
    G_all, H_all = g_rows.sum(), h_rows.sum()
    own = G_all * G_all / max(H_all, LEAST_CURVATURE)
    for s in range(seen if seen < order.size else 0):
        k = np.random.randint(s, order.size)
        order[s], order[k] = order[k], order[s]
    for s in range(seen):
        if s % 2 == 0:
            _add_sums(codes[order[s]], codes[order[min(s + 1, seen - 1)]], rows, g_rows, h_rows, sums)
        of, g, h, m = sums[s % 2], 0.0, 0.0, 0.0
        for b in range(of.shape[0] - 1):
            if of[b, last] == 0.0:
                continue
            g, h, m = g + of[b, 0], h + of[b, 1], m + of[b, last]
            if m < least_rows or h < LEAST_CURVATURE:
                continue
            if n - m < least_rows or H_all - h < LEAST_CURVATURE:
                break
            gain = g * g / h + (G_all - g) * (G_all - g) / (H_all - h) - own
            if gain > best:
                best, at, cut = gain, order[s], b
    return best, at, cut


@njit(cache=True, nogil=True)
def _parted(column, rows, cut, spare):  # type: ignore[no-untyped-def]
    """Rows of bins up to ``cut`` first, in their order; how many these are."""
    left, right = 0, 0
    for i in range(rows.size):
        if column[rows[i]] <= cut:
            rows[left] = rows[i]
            left += 1
        else:
            spare[right] = rows[i]
            right += 1
    rows[left:] = spare[:right]
    return left


@njit(cache=True, nogil=True)
def _tree(  # type: ignore[no-untyped-def]
    codes, rows, G, H, order, seen, sums, spare, leaves, least_rows, nodes, value, ends
):
    """One tree: its ``nodes`` (feature, bin, left, right), the values of its leaves; how many nodes it has.
    ``ends`` (nodes, 2) are their parts of ``rows``, which are put in order.
    """
    gain, split = np.zeros(2 * leaves - 1), np.zeros((2 * leaves - 1, 2), np.int64)
    nodes[0], ends[0, 0], ends[0, 1] = -1, 0, rows.size
    gain[0], split[0, 0], split[0, 1] = _best_split(codes, rows, G, H, order, seen, least_rows, sums)
    count = 1
    while count < 2 * leaves - 1:
        node = int(np.argmax(gain[:count]))
        if gain[node] <= 0.0:
            break
        first, last = ends[node]
        middle = first + _parted(codes[split[node, 0]], rows[first:last], split[node, 1], spare)
        nodes[node, 0], nodes[node, 1], nodes[node, 2], nodes[node, 3] = (
            split[node, 0], split[node, 1], count, count + 1,
        )  # fmt: skip
        nodes[count : count + 2], gain[node] = -1, 0.0
        ends[count, 0], ends[count, 1], ends[count + 1, 0], ends[count + 1, 1] = first, middle, middle, last
        for side in range(2):
            child = count + side
            part = rows[ends[child, 0] : ends[child, 1]]
            found = _best_split(codes, part, G, H, order, seen, least_rows, sums)
            gain[child], split[child, 0], split[child, 1] = found
        count += 2
    for node in range(count):
        value[node] = 0.0
        if nodes[node, 0] < 0:
            g, h = 0.0, 0.0
            for i in rows[ends[node, 0] : ends[node, 1]]:
                g, h = g + G[i], h + H[i]
            value[node] = -g / max(h, LEAST_CURVATURE)
    return count


@njit(cache=True, nogil=True)
def _boost(  # type: ignore[no-untyped-def]
    codes, y, weight, held, y_held, weight_held, loss, seed, most, seen, n_bins, leaves, least_rows, rate
):
    """Trees until the rows ``held``, if any, have gained nothing by the last of them: their nodes, where each
    starts, and the loss of these rows after each.
    """
    np.random.seed(seed)
    n, per_tree = y.size, 2 * leaves - 1
    base = _base(y, weight, loss)
    F, F_held, G, H = np.full(n, base), np.full(y_held.size, base), np.empty(n), np.empty(n)
    rows, spare, order = np.arange(n).astype(np.uint32), np.empty(n, np.uint32), np.arange(codes.shape[0])
    flat = loss == 0 and np.all(weight == 1.0)
    sums = np.empty((2, n_bins, 2 if flat else 3))
    nodes, ends = np.empty((per_tree, 4), np.int64), np.empty((per_tree, 2), np.int64)
    value = np.empty(per_tree)
    all_nodes, all_values = np.empty((most * per_tree, 4), np.int32), np.empty(most * per_tree)
    roots, losses, best, total, made = np.empty(most, np.int64), np.zeros(most), 0, 0, 0
    for tree in range(most):
        _slopes(y, weight, F, loss, G, H)
        count = _tree(codes, rows, G, H, order, seen, sums, spare, leaves, least_rows, nodes, value, ends)
        for node in range(count):
            value[node] *= rate
            if nodes[node, 0] < 0:
                for i in rows[ends[node, 0] : ends[node, 1]]:
                    F[i] += value[node]
            all_values[total + node] = value[node]
            for part in range(4):
                moved = total if part > 1 and nodes[node, 0] >= 0 else 0
                all_nodes[total + node, part] = nodes[node, part] + moved
        for i in range(y_held.size):
            node = 0
            while nodes[node, 0] >= 0:
                node = nodes[node, 2] if held[nodes[node, 0], i] <= nodes[node, 1] else nodes[node, 3]
            F_held[i] += value[node]
        roots[tree], total, made = total, total + count, tree + 1
        if y_held.size:
            losses[tree] = _loss(y_held, weight_held, F_held, loss)
            best = tree if losses[tree] < losses[best] else best
            if tree - best >= PATIENCE:
                break
    parts = all_nodes[:total]
    return (
        parts[:, 0].copy(), parts[:, 1].copy(), parts[:, 2].astype(np.int64), parts[:, 3].astype(np.int64),
        all_values[:total].copy(), roots[:made].copy(), losses[:made].copy(), base,
    )  # fmt: skip
