"""The baselines against textbook formulas, scikit-learn and simulated truths."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.ensemble import HistGradientBoostingRegressor

from widegp.compare import (
    BASELINES,
    WIDEGP,
    Gaussian,
    boosted_quantiles,
    boosting,
    compare,
    linear_regression,
)
from widegp.table_split import Split


def make_split(n=400, q=200, noise=lambda X: 0.5, seed=0) -> Split:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + q, 3)) * [1.0, 100.0, 0.01] + [0.0, 500.0, 3.0]
    y = X[:, 0] + 0.02 * X[:, 1] + noise(X) * rng.normal(size=n + q)
    return Split(None, X, y, n, np.arange(len(X)) + 1)


def test_linear_regression_is_the_textbooks():
    split = make_split(30)
    found = linear_regression(split, 0.9, 0)
    A, A_test = (np.column_stack([np.ones(len(X)), X]) for X in (split.X, split.X_test))
    inverse = np.linalg.inv(A.T @ A)
    weights = inverse @ A.T @ split.y
    s2 = np.sum((split.y - A @ weights) ** 2) / (30 - 4)
    sd = [np.sqrt(s2 * (1 + a @ inverse @ a)) for a in A_test]
    np.testing.assert_allclose(found.mean, A_test @ weights, rtol=1e-8)
    np.testing.assert_allclose(found.sd, sd, rtol=1e-6)


def test_linear_regression_takes_redundant_columns():
    split = make_split(30)
    flags = np.eye(2)[np.arange(230) % 2]
    wide = Split(None, np.hstack([split.rows, flags]), split.targets, 30, split.numbers)
    narrow = Split(None, wide.rows[:, :4], split.targets, 30, split.numbers)
    for name in ("mean", "sd"):
        redundant, plain = (getattr(linear_regression(part, 0.9, 0), name) for part in (wide, narrow))
        np.testing.assert_allclose(redundant, plain, rtol=1e-6)


def test_boosting_predicts_as_scikit_learn_and_admits_its_error():
    split = make_split()
    found = boosting(split, 0.95, 0)
    model = HistGradientBoostingRegressor(random_state=0).fit(split.X, split.y)
    np.testing.assert_array_equal(found.mean, model.predict(split.X_test))
    in_sample = np.std(split.y - model.predict(split.X))
    actual = np.sqrt(np.mean((split.y_test - found.mean) ** 2))
    assert found.sd[0] > 1.2 * in_sample and found.sd[0] == pytest.approx(actual, rel=0.2)


def test_boosted_quantiles_see_noise_that_changes():
    split = make_split(3000, 1000, noise=lambda X: np.where(X[:, 0] > 0, 2.0, 0.2))
    found = boosted_quantiles(split, 0.9, 0)
    loud = split.X_test[:, 0] > 0
    assert np.median(found.sd[loud]) > 3 * np.median(found.sd[~loud])
    # Its intervals are those of its quantiles, at every level that is shown.
    score = found.score("it", split.y_test, 0.9, 1.0)
    for level, told in ((0.5, score.coverage_50), (0.8, score.coverage_80), (0.9, score.coverage)):
        lower, upper = found.own[level]
        assert told == np.mean((lower <= split.y_test) & (split.y_test <= upper))


def test_scores_of_a_gaussian():
    mean, sd, y = np.array([0.0, 2.0]), np.array([1.0, 0.5]), np.array([0.3, 4.0])
    score = Gaussian(mean, sd).score("it", y, 0.9, 1.5)
    predictive = stats.norm(mean, sd)
    crps = np.mean([
        integrate.quad(lambda t, i=i: (stats.norm.cdf(t, mean[i], sd[i]) - (t >= y[i])) ** 2, -12, 16,
                       points=[y[i]], limit=200)[0]
        for i in range(2)
    ])  # fmt: skip
    assert score.crps == pytest.approx(crps, rel=1e-6)
    assert score.nll == pytest.approx(-np.mean(predictive.logpdf(y)))
    assert score.rmse == pytest.approx(np.sqrt((0.09 + 4.0) / 2))
    assert score.coverage == 0.5 and score.seconds == 1.5
    assert score.width == pytest.approx(np.mean(predictive.ppf(0.95) - predictive.ppf(0.05)))


def test_all_models_are_scored_once_and_honestly():
    split = make_split(150, 150)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"approximation": "vfe", "rank": 8}
        scores = list(compare(split, settings, progress=lambda event: seen.append(event.stage)))
    assert [score.model for score in scores] == [*BASELINES, WIDEGP]
    assert list(dict.fromkeys(seen)) == [*BASELINES, "choices", "whole", "posterior", "curvature"]
    by_name = {score.model: score for score in scores}
    # The truth is linear with noise of sd 0.5: nothing does better, and the mean does much worse.
    assert by_name["mean"].rmse > 4 * by_name["linear regression"].rmse
    for name in ("linear regression", WIDEGP):
        assert by_name[name].rmse == pytest.approx(0.5, rel=0.2)
        assert 0.9 <= by_name[name].coverage <= 1


def test_a_perfect_fit_has_finite_scores():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    split = Split(None, X, X[:, 0], 40, np.arange(len(X)) + 1)
    score = linear_regression(split, 0.95, 0).score("linear", split.y_test, 0.95, 0.0)
    assert np.isfinite([score.nll, score.crps, score.rmse]).all()
