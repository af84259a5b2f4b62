"""Means of the target by value: where single values matter, and only there."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from widegp.data.value_means import Valued

RNG = np.random.default_rng(0)
CODES = np.sort(RNG.choice(np.arange(100.0, 10_000.0), 60, replace=False))
EFFECT = RNG.normal(size=60)


def table(n, seed=0):
    """A column of codes with effects of their own, one in which the target is smooth, one of noise."""
    rng = np.random.default_rng(seed)
    code, smooth = rng.integers(0, 60, n), rng.integers(0, 40, n)
    y = EFFECT[code] + np.sin(smooth / 8) + 0.5 * rng.normal(size=n)
    return np.column_stack([CODES[code], smooth, rng.integers(0, 30, n)]), y, code


def test_only_the_column_of_codes_gets_means_and_they_are_its_effects():
    X, y, code = table(4000)
    found = Valued.of(X, y, np.ones(4000), 0)
    assert found.map.columns.tolist() == [0]
    np.testing.assert_array_equal(found.X[:, :3], X)
    # Standardised: the same as the effects up to level and scale.
    assert np.corrcoef(found.map.means, EFFECT)[0, 1] > 0.98
    assert np.corrcoef(found.X[:, 3], EFFECT[code])[0, 1] > 0.98
    np.testing.assert_allclose([found.X[:, 3].mean(), found.X[:, 3].std()], [0, 1], atol=1e-12)
    new = found.map.transform(X[:7])
    assert new.shape == (7, 4) and np.array_equal(found.map.inverse(new), X[:7])


def test_a_row_does_not_enter_its_own_mean_where_few_rows_share_its_value():
    X, y, code = table(4000)
    # Two codes lose all rows but twenty.
    rank = np.array([np.sum(code[:i] == c) for i, c in enumerate(code)])
    kept = (code > 1) | (rank < 20)
    X, y, code = X[kept], y[kept], code[kept]
    before = Valued.of(X, y, np.ones(len(y)), 0)
    row = int(np.flatnonzero(code == 1)[5])
    moved = y.copy()
    moved[row] += 3.0
    after = Valued.of(X, moved, np.ones(len(y)), 0)
    fold = np.random.default_rng(0).permutation(len(y)) % 5
    alike = (code == 1) & (np.arange(len(y)) != row)
    told = after.X[:, 3] - before.X[:, 3]
    # Rows of its own fold are told what it is told itself, without its target; all others are told of it.
    np.testing.assert_array_equal(told[alike & (fold == fold[row])], told[row])
    assert np.all(told[alike & (fold != fold[row])] > told[row] + 0.1)


def test_rows_of_a_value_that_many_share_are_told_the_same_as_new_ones():
    X, y, code = table(4000)
    found = Valued.of(X, y, np.ones(4000), 0)
    assert np.bincount(code).min() >= 30
    np.testing.assert_allclose(found.X[:, 3], found.map.transform(X)[:, 3], rtol=1e-12)


def test_weights_are_repeated_rows_and_smooth_tables_stay_as_they_are():
    X, y, _ = table(3000)
    assert Valued.of(X[:, 1:], y, np.ones(3000), 0) is None
    assert Valued.of(RNG.normal(size=(500, 2)), RNG.normal(size=500), np.ones(500), 0) is None
    heavy = Valued.of(X, y, np.full(3000, 7.0), 0)
    once = Valued.of(X, y, np.ones(3000), 0)
    # Seven times as many rows of each value are shrunk less, and say the same otherwise.
    assert np.corrcoef(heavy.map.means, once.map.means)[0, 1] > 0.999


def test_a_file_may_hold_the_map():
    """In a process that has fitted nothing, too."""
    code = "import widegp.persist; from widegp.registry import saved_class; saved_class('ValueMeans')"
    subprocess.run([sys.executable, "-c", code], check=True)
