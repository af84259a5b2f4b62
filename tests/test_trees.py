"""Boosted trees as an input: which model predicts which row, and that no row sees its own target."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from widegp import boosting, trees
from widegp.trees import FOLDS, TreesInput, row_keys, table_keys, told_apart


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 4))
    return X, np.where(X[:, 0] > 0, 2.0, -1.0) + X[:, 1] + 0.1 * rng.standard_normal(900)


def test_predictions_are_those_of_the_models_that_have_not_seen_a_row(table, monkeypatch):
    X, y = table
    monkeypatch.setattr(boosting, "COMPILED", False)
    targets = np.column_stack([y, y, np.arcsinh(y)])
    made = TreesInput.fit(X, targets, seed=3)
    new = np.random.default_rng(1).standard_normal((200, 4))
    fold = made.fold
    np.testing.assert_array_equal(made.seen, row_keys(X))
    assert made.columns == 3
    for j, size in enumerate((trees.SMALL, trees.LARGE, trees.LARGE)):
        # As many trees as the first model has: they do best on the fold that it has not seen.
        count = int(made.starts[j + 1] - made.starts[j])
        models = [
            HistGradientBoostingRegressor(
                learning_rate=size.rate, max_leaf_nodes=size.leaves, min_samples_leaf=size.least_rows,
                max_features=size.inputs, max_iter=count, early_stopping=False, random_state=3,
            ).fit(X[fold != k], targets[fold != k, j])
            for k in range(FOLDS)
        ]  # fmt: skip
        mean = np.mean([model.predict(new) for model in models], axis=0)
        np.testing.assert_allclose(unscaled(made, made.transform(new))[:, j], mean, rtol=1e-10)
        own = np.choose(fold, [model.predict(X) for model in models])
        np.testing.assert_allclose(unscaled(made, made.training(X))[:, j], own, rtol=1e-10)


def test_as_many_trees_as_are_asked_for_and_otherwise_as_many_as_do_best(table):
    X, y = table
    made = TreesInput.fit(X, y, seed=0)
    asked = TreesInput.fit(X, y, seed=0, counts=[7, 3])
    assert asked.counts == [7, 3]
    assert len(asked.roots) == FOLDS * 10
    again = TreesInput.fit(X, y, seed=0, counts=made.counts)
    np.testing.assert_array_equal(again.transform(X), made.transform(X))


def unscaled(made: TreesInput, rows: np.ndarray) -> np.ndarray:
    """g (n, J) of rows that have it beside their inputs."""
    return rows[:, -made.columns :] * made.scale + made.shift


def test_a_training_row_is_not_predicted_from_its_own_target(table):
    X, y = table
    noise = np.random.default_rng(2).standard_normal(len(y))
    made = TreesInput.fit(X, noise, seed=0)
    # Trees that had seen the noise would correlate with it; by chance the correlation has sd 1/30.
    for j in (-2, -1):
        assert abs(np.corrcoef(made.training(X)[:, j], noise)[0, 1]) < 0.12
        assert np.corrcoef(made.transform(X)[:, j], noise)[0, 1] > 0.3


def test_equal_rows_are_told_apart_by_their_order_and_new_ones_do_not_depend_on_their_company(table):
    X, y = table
    twice = np.concatenate([X, X[:100]])
    made = TreesInput.fit(twice, np.append(y, y[:100] + 1), seed=0)
    both = made.training(twice)
    np.testing.assert_array_equal(made.training(twice[::-1])[:, :-2], twice[::-1])
    ends = np.sort(np.stack([both[:100, -1], both[900:, -1]]), axis=0)
    turned = made.training(twice[::-1])[::-1]
    np.testing.assert_array_equal(np.sort(np.stack([turned[:100, -1], turned[900:, -1]]), axis=0), ends)
    new = made.transform(X)
    np.testing.assert_array_equal(new[7], made.transform(X[7:8])[0])
    np.testing.assert_array_equal(made.inverse(new), X)
    np.testing.assert_array_equal(row_keys(np.array([[0.0, 1.0]])), row_keys(np.array([[-0.0, 1.0]])))


def test_many_rows_are_sampled_and_the_others_get_the_mean(table, monkeypatch):
    X, y = table
    monkeypatch.setattr(trees, "MOST_ROWS", 600)
    made = TreesInput.fit(X, y, seed=0)
    assert len(made.seen) == 600
    rest = np.isin(table_keys(X), made.seen, invert=True)
    np.testing.assert_array_equal(made.training(X)[rest], made.transform(X)[rest])
    some = np.arange(0, len(X), 7)
    part = made.training(X, some)
    np.testing.assert_array_equal(part[some], made.training(X)[some])
    np.testing.assert_array_equal(made.inverse(part), X)
    assert np.all(np.delete(part, some, axis=0)[:, -2:] == 0)
    assert np.all(np.std(unscaled(made, made.training(X)).T - y, axis=1) < 0.5 * y.std())


@pytest.mark.parametrize("loss, of_g", [("log_loss", lambda g: 1 / (1 + np.exp(-g))), ("poisson", np.exp)])
def test_classes_and_counts_have_losses_of_their_own(table, loss, of_g):
    X, _ = table
    rng = np.random.default_rng(5)
    mean = of_g(1.5 * X[:, 0])
    y = rng.poisson(mean) if loss == "poisson" else (rng.uniform(size=len(X)) < mean) * 1.0
    made = TreesInput.fit(X, y.astype(float), 0, loss, np.ones(len(X)))
    found = of_g(unscaled(made, made.transform(X))[:, 0])
    assert abs(np.mean(found) - np.mean(y)) < 0.1 * np.mean(y)
    # Coins tell less of their odds than counts do of their mean: 0.847 with these draws of inputs.
    assert np.corrcoef(np.log(found), np.log(mean))[0, 1] > 0.8


def test_rows_that_are_seen_again_and_again_stay_together():
    """Were their copies dealt into all folds, g would tell which fold a row is in."""
    rng = np.random.default_rng(0)
    kinds = rng.standard_normal((150, 3))
    X = np.concatenate([np.repeat(kinds[:100], 8, axis=0), np.repeat(kinds[100:], 2, axis=0)])
    made = TreesInput.fit(X, rng.standard_normal(len(X)), seed=0)
    several = [len(np.unique(made.fold[row_keys(X) == key])) for key in row_keys(kinds)]
    assert several[:100] == [1] * 100 and max(several[100:]) == 2
    # A weight of eight is eight rows.
    pairs = X[800:]
    weighed = TreesInput.fit(pairs, rng.standard_normal(100), 0, weight=np.full(100, 8.0))
    assert all(len(np.unique(weighed.fold[row_keys(pairs) == key])) == 1 for key in row_keys(kinds[100:]))


def test_a_row_that_grew_trees_is_not_taken_for_its_equal_that_did_not():
    """Of two equal rows the first may be held out: the second must not get the mean of models that saw it."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((300, 3)), 2, axis=0)
    noise, growing = rng.standard_normal(600), rng.uniform(size=600) < 0.6
    made = TreesInput.fit(X, noise, seed=0, weight=growing.astype(float))
    g, alone = made.training(X), TreesInput.fit(X[growing], noise[growing], seed=0)
    np.testing.assert_array_equal(made.value, alone.value)
    mistaken = growing & np.tile([False, True], 300) & ~np.repeat(growing[::2], 2)
    assert mistaken.sum() > 50
    # By chance the correlation has sd 1 / sqrt(70) = 0.12; of rows predicted by their own trees it is 0.9.
    assert abs(np.corrcoef(g[mistaken, -1], noise[mistaken])[0, 1]) < 0.4
    np.testing.assert_array_equal(g[~growing], made.transform(X)[~growing])


def test_a_table_that_goes_on_gives_its_first_rows_what_they_had(table):
    X, y = table
    made = TreesInput.fit(X, y, seed=0)
    longer = made.training(np.concatenate([X, X[:50]]))
    np.testing.assert_array_equal(longer[:900], made.training(X))
    np.testing.assert_array_equal(longer[900:], made.transform(X[:50]))


def test_keys_of_older_files_are_told_apart_by_their_order():
    keys = row_keys(np.repeat(np.random.default_rng(0).standard_normal((5, 2)), 3, axis=0))
    apart = told_apart(keys)
    assert len(np.unique(apart)) == 15
    np.testing.assert_array_equal(apart[::3], keys[::3])
    np.testing.assert_array_equal(told_apart(apart), apart)


def test_a_table_of_few_different_rows_grows_no_trees():
    X = np.random.default_rng(0).integers(0, 3, (5000, 4)).astype(float)
    assert trees.too_few_kinds(X)
    assert not trees.too_few_kinds(X + np.arange(5000)[:, None] % 2 * 0.1)
