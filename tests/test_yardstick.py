"""Gradient boosting beside a model: its errors against scikit-learn's, its test against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor

from widegp import yardstick
from widegp.yardstick import Yardstick, measure, paired_t


def steps(n, seed):
    """A function of steps, which trees take easily."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sign(X[:, 0]) * np.sign(X[:, 1]) + 0.1 * rng.normal(size=n)


def test_its_errors_are_those_of_scikit_learn_and_its_test_that_of_scipy():
    train, (X, y) = steps(400, 0), steps(150, 1)
    mean = np.zeros(150)
    found = measure(train, (X, y), mean, seed=3)
    boosted = y - HistGradientBoostingRegressor(random_state=3).fit(*train).predict(X)
    assert found.rmse == pytest.approx(np.sqrt(np.mean(boosted**2)))
    assert found.rmse_model == pytest.approx(np.sqrt(np.mean(y**2)))
    assert found.r2 == pytest.approx(1 - np.mean(boosted**2) / np.var(y))
    paired = stats.ttest_rel(y**2, boosted**2, alternative="greater")
    assert 1 - found.surely_better == pytest.approx(paired.pvalue, abs=1e-12)
    assert found.is_much_better and (found.rows, found.rows_held_out) == (400, 150)
    assert Yardstick(**found.to_dict()) == found


def test_a_model_that_is_as_good_is_not_beaten():
    train, (X, y) = steps(400, 0), steps(150, 1)
    mean = HistGradientBoostingRegressor(random_state=0).fit(*train).predict(X)
    found = measure(train, (X, y), mean)
    assert found.t == 0 and not found.is_much_better
    assert not measure(train, (X, y), y).is_much_better


def test_equal_models_are_seldom_called_beaten():
    """Squared errors of two models with independent errors of one size."""
    rng = np.random.default_rng(0)
    beaten = 0
    for _ in range(1000):
        own, other = rng.normal(size=(2, 100)) ** 2
        found = Yardstick(
            rmse=np.sqrt(other.mean()), rmse_model=np.sqrt(own.mean()), r2=None, t=paired_t(own - other),
            rows=1, rows_held_out=100, seconds=0.0,
        )  # fmt: skip
        beaten += found.is_much_better
    assert beaten <= 40


def test_large_tables_are_thinned(monkeypatch):
    monkeypatch.setattr(yardstick, "MOST_CELLS", 300)
    assert measure(steps(400, 0), steps(20, 1), np.zeros(20)).rows == 150


def test_one_row_and_a_constant_target_are_no_evidence():
    X, y = steps(100, 0)
    found = measure((X, y), (X[:1], y[:1]), np.zeros(1))
    assert found.t == 0 and found.r2 is None and not found.is_much_better
