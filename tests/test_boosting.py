"""Compiled boosted trees beside scikit-learn's, tree by tree, and when they stop."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from widegp.boosting import LOSSES, Model, Rows, Size, bin_edges, grow, grown_plainly
from widegp.jit import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="Numba is not installed")
SIZE = Size(0.1, 15, 10, 1.0)


def rows(loss: str, n: int = 1500, seed: int = 0, weighted: bool = False) -> Rows:
    """Inputs of at most 150 values each, so that every value has a bin."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 150, (n, 4)) / 30
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] - 1
    y = {
        "squared_error": f + 0.3 * rng.standard_normal(n),
        "log_loss": (rng.uniform(size=n) < 1 / (1 + np.exp(-f))).astype(float),
        "poisson": rng.poisson(np.exp(f)).astype(float),
    }[loss]
    return Rows(X, y, rng.uniform(0.5, 2.0, n) if weighted else np.ones(n))


def predicted(model: Model, X: np.ndarray) -> np.ndarray:
    """base + the leaves that each row falls into, by walking the arrays of the model."""
    out = []
    for x in X:
        total = model.base
        for root in model.roots:
            node = root
            while model.feature[node] >= 0:
                below = x[model.feature[node]] <= model.threshold[node]
                node = model.left[node] if below else model.right[node]
            total += model.value[node]
        out.append(total)
    return np.array(out)


def of_scikit_learn(part: Rows, loss: str, count: int) -> np.ndarray:
    """F of its first rows, on the scale of the link."""
    kind = HistGradientBoostingClassifier if loss == "log_loss" else HistGradientBoostingRegressor
    model = kind(
        loss=loss, learning_rate=SIZE.rate, max_iter=count, early_stopping=False, max_leaf_nodes=SIZE.leaves,
        min_samples_leaf=SIZE.least_rows,
    ).fit(*part)  # fmt: skip
    return np.ravel(model._raw_predict(part.X[:200]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_trees_are_those_of_scikit_learn(loss, weighted):
    part = rows(loss, weighted=weighted)
    own = predicted(grow(part, 20, loss, 0, SIZE), part.X[:200])
    # Its derivatives have single precision, so that the last of nearly equal splits may be another one.
    other = of_scikit_learn(part, loss, 20)
    assert np.mean(np.abs(own - other) < 1e-5) > 0.97
    np.testing.assert_allclose(own, other, atol=0.05)


@pytest.mark.parametrize("loss", LOSSES)
def test_trees_stop_where_other_rows_gain_no_more(loss):
    part, held = rows(loss), rows(loss, 500, seed=1)
    model = grow(part, held, loss, 0, SIZE)
    count = len(model.roots)
    assert 1 < count < 1000

    def mean_loss(F: np.ndarray) -> float:
        each = {
            "squared_error": (held.y - F) ** 2 / 2,
            "log_loss": np.log1p(np.exp(-(2 * held.y - 1) * F)),
            "poisson": np.exp(F) - held.y * F,
        }[loss]
        return float(each.mean())

    least = mean_loss(predicted(model, held.X))
    for other in (count - 1, count + 1, count + 20):
        assert mean_loss(predicted(grow(part, other, loss, 0, SIZE), held.X)) >= least - 1e-12


def test_a_seed_repeats_its_draws_of_inputs_and_another_makes_others():
    part = rows("squared_error")
    some = SIZE._replace(inputs=0.5)
    first, again, other = (grow(part, 10, "squared_error", seed, some) for seed in (0, 0, 1))
    for one, two in zip(first[:-1], again[:-1], strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(first.feature, other.feature)


def test_leaves_hold_their_least_rows_and_constant_inputs_are_left_alone():
    part = rows("squared_error")
    flat = part._replace(X=np.column_stack([np.ones(len(part.X)), part.X]))
    model = grow(flat, 5, "squared_error", 0, SIZE)
    assert 0 not in model.feature
    for root, end in zip(model.roots, [*model.roots[1:], len(model.feature)], strict=True):
        assert np.sum(model.feature[root:end] < 0) <= SIZE.leaves
        falls = np.full(len(flat.X), root)
        while (inner := model.feature[falls] >= 0).any():
            at = falls[inner]
            below = flat.X[inner, model.feature[at]] <= model.threshold[at]
            falls[inner] = np.where(below, model.left[at], model.right[at])
        assert np.unique(falls, return_counts=True)[1].min() >= SIZE.least_rows


@pytest.mark.parametrize("n, slope", [(300, 0.0), (2 * SIZE.least_rows - 1, 1.0)])
def test_a_constant_target_and_too_few_rows_leave_one_leaf(n, slope):
    X = np.arange(float(n))[:, None]
    model = grow(Rows(X, 1 + slope * X[:, 0], np.ones(n)), 3, "squared_error", 0, SIZE)
    assert model.base == pytest.approx(1 + slope * X.mean())
    assert len(model.feature) == 3 and np.all(model.feature == -1)
    np.testing.assert_allclose(model.value, 0.0, atol=1e-12)
    assert (grow(Rows(X, X[:, 0], np.ones(n)), 3, "squared_error", 0, SIZE).feature >= 0).any() == (
        n >= 2 * SIZE.least_rows
    )


def test_bins_part_every_value_where_they_are_few_and_equal_shares_where_they_are_many():
    few, many = np.repeat([3.0, 1.0, 2.0], 10), np.random.default_rng(0).standard_normal(30)
    edges = bin_edges(np.column_stack([few, many]))
    np.testing.assert_array_equal(edges[0], [1.5, 2.5])
    assert len(edges[1]) == 29
    column = np.random.default_rng(1).exponential(size=10_000)
    counts = np.bincount(np.searchsorted(bin_edges(column[:, None])[0], column))
    assert len(counts) == 255 and counts.max() <= 1.1 * counts.min() + 2


def test_without_numba_scikit_learn_grows_the_trees():
    part, held = rows("squared_error"), rows("squared_error", 500, seed=1)
    own, plain = (make(part, held, "squared_error", 0, SIZE) for make in (grow, grown_plainly))
    errors = [np.std(held.y - predicted(one, held.X)) for one in (own, plain)]
    assert errors[0] == pytest.approx(errors[1], rel=0.02)
