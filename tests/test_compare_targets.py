"""Baselines of classes and counts against scikit-learn, SciPy and simulated truths."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk
from sklearn.linear_model import LogisticRegression

from widegp.compare_targets import (
    CLASS_BASELINES,
    COUNT_BASELINES,
    ClassScore,
    NegativeBinomials,
    _dispersed,
)
from widegp.table_split import Split


def make_split(kind, n=500, q=100, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + q, 2))
    if kind == "classes":
        f = 2 * np.column_stack([X[:, 0], X[:, 1], -X.sum(1)])
        y = np.argmax(f + rng.gumbel(size=f.shape), axis=1).astype(float)
    else:
        y = rng.poisson(rng.gamma(2, 0.5, n + q) * np.exp(1 + 0.5 * X[:, 0])).astype(float)
    return Split(None, X, y, n, np.arange(len(X)) + 1)


def test_probabilities_of_classes_are_scikit_learns_and_scores_too():
    split = make_split("classes")
    found = CLASS_BASELINES["logistic regression"](split, 3, 0)
    Z, Z_test = ((rows - split.X.mean(0)) / split.X.std(0) for rows in (split.X, split.X_test))
    want = LogisticRegression(max_iter=1000).fit(Z, split.y).predict_proba(Z_test)
    np.testing.assert_allclose(found, want, atol=1e-6)
    score = ClassScore.of("x", split.y_test, found, 1.0)
    assert score.log_loss == pytest.approx(sk.log_loss(split.y_test, found))
    assert score.auc == pytest.approx(sk.roc_auc_score(split.y_test, found, multi_class="ovr"))
    shares = CLASS_BASELINES["share"](split, 3, 0)
    np.testing.assert_allclose(shares[0], np.bincount(split.y.astype(int)) / 500)


def test_a_class_without_training_rows_has_a_small_probability_and_no_auc():
    split = make_split("classes", n=60)
    targets = np.where(np.arange(160) < 60, split.targets % 2, split.targets)
    few = Split(None, split.rows, targets, 60, split.numbers)
    for predict in CLASS_BASELINES.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = predict(few, 3, 0)
        np.testing.assert_allclose(p.sum(axis=1), 1)
        assert np.all(p[:, 2] < 1e-9)
        assert np.isfinite(ClassScore.of("x", few.y_test, p, 0.0).log_loss)


def test_scores_of_counts_are_scipys():
    rng = np.random.default_rng(0)
    mean, y = rng.uniform(0.5, 9, 40), rng.poisson(4, 40).astype(float)
    one = NegativeBinomials(mean, 0.4)
    score = one.score("x", y, 0.9, 0.0)
    law = stats.nbinom(2.5, 2.5 / (2.5 + mean))
    assert law.var() == pytest.approx(mean + 0.4 * mean**2)
    assert score.log_score == pytest.approx(-np.mean(law.logpmf(y)))
    assert score.deviance == pytest.approx(sk.mean_poisson_deviance(y, mean))
    k = np.arange(400)
    crps = [
        np.sum((stats.nbinom.cdf(k, 2.5, 2.5 / (2.5 + m)) - (t <= k)) ** 2)
        for m, t in zip(mean, y, strict=True)
    ]
    assert score.crps == pytest.approx(np.mean(crps), rel=1e-6)
    assert NegativeBinomials(mean, 0.0).score("x", y, 0.9, 0.0).log_score == pytest.approx(
        -np.mean(stats.poisson.logpmf(y, mean))
    )


def test_the_dispersion_of_a_right_mean_is_found():
    """Counts of a gamma rate of shape 2 have variance m + m^2 / 2."""
    split = make_split("counts", n=4000)
    found = _dispersed(split, COUNT_BASELINES["Poisson regression"](0), 0)
    assert found.dispersion == pytest.approx(0.5, abs=0.1)
    np.testing.assert_allclose(found.mean, np.exp(1 + 0.5 * split.X_test[:, 0]), rtol=0.15)
