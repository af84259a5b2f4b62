"""Scores of classes, counts and several outputs against scikit-learn, loops and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from widegp import metrics

RNG = np.random.default_rng(0)
P = RNG.uniform(0.02, 0.98, 300)
Y = (RNG.random(300) < P).astype(int)
P3 = RNG.dirichlet([1, 2, 3], 300)
Y3 = np.array([RNG.choice(3, p=p) for p in P3])


def test_scores_of_classes_are_scikit_learns():
    assert metrics.log_loss(Y, P) == pytest.approx(sk.log_loss(Y, P))
    assert metrics.log_loss(Y3, P3) == pytest.approx(sk.log_loss(Y3, P3))
    assert metrics.brier(Y, P) == pytest.approx(sk.brier_score_loss(Y, P))
    assert metrics.brier(Y3, P3) == pytest.approx(np.mean(((np.eye(3)[Y3] - P3) ** 2).sum(1)))
    assert metrics.auc(Y3, P3) == pytest.approx(sk.roc_auc_score(Y3, P3, multi_class="ovr"))
    pairs = [(a > b) + 0.5 * (a == b) for a in P[Y == 1] for b in P[Y == 0]]
    assert metrics.auc(Y, P) == pytest.approx(np.mean(pairs))
    assert metrics.log_loss([1], [0.0]) == math.inf


def test_ece_against_a_loop():
    order = np.argsort(P, kind="stable")
    bins = [order[k * 30 : (k + 1) * 30] for k in range(10)]
    want = sum(abs(P[b].mean() - Y[b].mean()) * len(b) / 300 for b in bins)
    assert metrics.ece(Y, P, bins=10) == pytest.approx(want)
    top, hit = P3.max(1), P3.argmax(1) == Y3
    order = np.argsort(top, kind="stable")
    want = sum(abs(top[b].mean() - hit[b].mean()) / 10 for b in np.split(order, 10))
    assert metrics.ece(Y3, P3, bins=10) == pytest.approx(want)


@pytest.mark.parametrize("p", [P, P3], ids=["two classes", "three classes"])
def test_range_of_chance_holds_calibrated_classes_and_not_others(p):
    low, high = metrics.ece_by_chance(p, draws=1000)
    assert 0 < low < high
    full = np.stack([1 - p, p], 1) if p.ndim == 1 else p
    rng = np.random.default_rng(7)
    draws = [[rng.choice(full.shape[1], p=row) for row in full] for _ in range(60)]
    inside = np.mean([low <= metrics.ece(y, p) <= high for y in draws])
    assert inside >= 0.85
    sharper = full**3 / (full**3).sum(1, keepdims=True)
    assert metrics.ece(draws[0], sharper) > metrics.ece_by_chance(sharper, draws=300)[1]


def test_deviances():
    y, mean = RNG.poisson(4, 100).astype(float), RNG.uniform(1, 9, 100)
    assert metrics.poisson_deviance(y, mean) == pytest.approx(sk.mean_poisson_deviance(y, mean))
    r = 1 / 0.7
    saturated = stats.nbinom.logpmf(y, r, r / (r + y))
    want = 2 * np.mean(saturated - stats.nbinom.logpmf(y, r, r / (r + mean)))
    assert metrics.negative_binomial_deviance(y, mean, 0.7) == pytest.approx(want)
    assert metrics.negative_binomial_deviance(y, mean, 1e-7) == pytest.approx(
        metrics.poisson_deviance(y, mean), rel=1e-5
    )
    with pytest.raises(ValueError, match="row 1"):
        metrics.poisson_deviance([1, 2], [1, 0])


@settings(max_examples=25, deadline=None)
@given(y=st.integers(0, 40), mean=st.floats(0.2, 30))
def test_crps_of_counts_is_that_of_their_quantiles(y, mean):
    F = stats.poisson.cdf(np.arange(200), mean)
    levels = (np.arange(20_000) + 0.5) / 20_000
    want = metrics.crps_from_quantiles([y], stats.poisson.ppf(levels, mean)[None], levels)
    assert metrics.crps_from_cdf([y], F[None]) == pytest.approx(want, rel=1e-3, abs=1e-3)


def test_a_count_beyond_the_table_pays_for_the_gap():
    assert metrics.crps_from_cdf([5], [[0.5, 1.0]]) == pytest.approx(0.25 + 1 + 3)


def test_energy_score():
    y, samples = RNG.normal(size=(4, 1)), RNG.normal(size=(4, 50, 1))
    want = metrics.crps_from_samples(y[:, 0], samples[..., 0])
    assert metrics.energy_score(y, samples) == pytest.approx(want)
    y, samples = RNG.normal(size=(2, 3)), RNG.normal(size=(2, 6, 3))
    total = 0.0
    for i in range(2):
        total += np.mean([math.dist(s, y[i]) for s in samples[i]]) / 2
        total -= np.mean([math.dist(s, t) for s in samples[i] for t in samples[i]]) / 4
    assert metrics.energy_score(y, samples) == pytest.approx(total)
    with pytest.raises(ValueError, match="shape"):
        metrics.energy_score(y, samples[0])


@pytest.mark.parametrize(
    ("y", "p", "words"),
    [([0], [1.2], "row 0"), ([0, 1], [0.5], "shape"), ([2], [0.5], "0 to 1"), ([0.5], [0.5], "classes")],
)
def test_bad_arguments_of_class_scores(y, p, words):
    with pytest.raises(ValueError, match=words):
        metrics.log_loss(y, p)


def test_accuracy():
    assert metrics.accuracy(Y, P) == pytest.approx(sk.accuracy_score(Y, P > 0.5))
    assert metrics.accuracy(Y3, P3) == pytest.approx(sk.accuracy_score(Y3, P3.argmax(1)))
