"""Counts and heavy tails: WideGPRegressor with a likelihood of its own, and the distributions it predicts."""

from __future__ import annotations

import numpy as np
import pytest

import widegp
from widegp import metrics
from widegp.data.preprocessing import TargetScaler
from widegp.estimator import WideGPRegressor
from widegp.likelihoods import Bernoulli, Gamma, NegativeBinomial, Poisson, StudentT
from widegp.report.parameters import describe_parameters
from widegp.response_predictive import ResponsePredictive

M, V = np.array([0.3, 2.0, 4.0]), np.array([0.2, 0.05, 0.5])


def counts(n, seed=0):
    """Counts with known rates and exposures, overdispersed: variance mu + 0.3 mu^2."""
    rng = np.random.default_rng(seed)
    X, exposure = rng.normal(size=(n, 2)), rng.uniform(0.5, 4.0, n)
    rate = np.exp(1.0 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1])
    return X, NegativeBinomial(0.3).sample(np.log(rate * exposure), rng), exposure, rate


def test_negative_binomial_learns_rate_exposure_and_dispersion(tmp_path):
    X, y, exposure, rate = counts(500)
    model = WideGPRegressor.plain(likelihood="negative-binomial", random_state=0)
    model.fit(X[:350], y[:350], exposure=exposure[:350])
    assert model.converged_
    assert 0.15 < model.params_["dispersion"] < 0.5
    predicted = model.predict_distribution(X[350:], exposure=exposure[350:])
    mean_rate = model.predict(X[350:])
    assert np.corrcoef(np.log(mean_rate), np.log(rate[350:]))[0, 1] > 0.9
    # Nearly as good as the truth, and far better than one mean for all.
    truth = -NegativeBinomial(0.3).terms(y[350:], np.log(rate * exposure)[350:]).log_p.mean()
    assert -predicted.log_density(y[350:]).mean() < truth + 0.15
    lower, upper = predicted.interval(0.9)
    assert 0.85 < np.mean((lower <= y[350:]) & (y[350:] <= upper)) <= 1
    path = tmp_path / "counts.widegp"
    model.save(path)
    again = widegp.load(path).predict_distribution(X[350:], exposure=exposure[350:])
    np.testing.assert_array_equal(again.mean, predicted.mean)
    assert again.likelihood == predicted.likelihood
    draws = model.sample_y(X[350:352], 4000)
    np.testing.assert_allclose(draws.mean(axis=1), mean_rate[:2], rtol=0.15)


def test_amounts_learn_mean_exposure_and_shape(tmp_path):
    rng = np.random.default_rng(7)
    X, exposure = rng.normal(size=(500, 2)), rng.uniform(0.5, 4.0, 500)
    f = 8.0 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + np.log(exposure)
    y = Gamma(3.0).sample(f, rng)
    model = WideGPRegressor.plain(likelihood="gamma", random_state=0)
    model.fit(X[:350], y[:350], exposure=exposure[:350])
    assert model.converged_ and 2.2 < model.params_["shape"] < 4.0
    predicted = model.predict_distribution(X[350:], exposure=exposure[350:])
    # Nearly as good as the truth.
    truth = -Gamma(3.0).terms(y[350:], f[350:]).log_p.mean()
    assert -predicted.log_density(y[350:]).mean() < truth + 0.1
    lower, upper = predicted.interval(0.9)
    assert 0.82 < np.mean((lower <= y[350:]) & (y[350:] <= upper)) < 0.97
    draws = predicted[:3].sample(20_000, 0)
    by_draws = [metrics.crps_from_samples(y[350 + i : 351 + i], draws[i : i + 1]) for i in range(3)]
    np.testing.assert_allclose(predicted[:3].crps(y[350:353]), by_draws, rtol=0.03)
    np.testing.assert_allclose(predicted.latent.quantile([0.5])[:, 0], np.exp(predicted.mean_f), rtol=1e-12)
    model.save(tmp_path / "amounts.widegp")
    again = widegp.load(tmp_path / "amounts.widegp").predict_distribution(X[350:], exposure=exposure[350:])
    np.testing.assert_array_equal(again.mean, predicted.mean)
    described = {entry["name"]: entry for entry in describe_parameters(model)}
    assert described["shape"]["title"] == "shape" and "sqrt(x)" in described["shape"]["meaning"]


def test_gross_outliers_hardly_move_a_student_t_fit():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (260, 2))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    y = f + 0.1 * rng.standard_normal(260)
    spoiled = y.copy()
    spoiled[rng.choice(160, 8, replace=False)] += rng.choice([-20.0, 20.0], 8)

    clean = WideGPRegressor.plain(random_state=0).fit(X[:160], y[:160])
    # 5% of rows with errors of 200 noise sds; the Gaussian fit to them is many times worse.
    without = metrics.rmse(y[160:], clean.predict(X[160:]))
    model = WideGPRegressor.plain(likelihood="student-t", random_state=0).fit(X[:160], spoiled[:160])
    assert metrics.rmse(y[160:], model.predict(X[160:])) < 1.05 * without


def test_distribution_of_counts():
    predictive = ResponsePredictive(NegativeBinomial(0.2), M, V)
    y = np.array([0.0, 9.0, 100.0])
    k = np.arange(3000.0)
    F = np.stack([[float(predictive[i].cdf(np.array([v]))[0]) for v in k[:400]] for i in range(2)])
    by_sum = [metrics.crps_from_cdf(y[i : i + 1], F[i : i + 1]) for i in range(2)]
    np.testing.assert_allclose(predictive[:2].crps(y[:2]), by_sum, atol=1e-6)
    np.testing.assert_array_equal(predictive[[0, 2]].mean, predictive.mean[[0, 2]])
    assert predictive.cdf(np.stack([y, y + 1], axis=1)).shape == (3, 2)
    assert predictive.quantile([0.1, 0.5]).shape == (3, 2)
    draws = predictive.sample(50_000, 0)
    np.testing.assert_allclose(draws.mean(axis=1), predictive.mean, rtol=0.05)
    np.testing.assert_allclose(predictive.latent.quantile([0.5])[:, 0], np.exp(M), rtol=1e-12)
    by_draws = [metrics.crps_from_samples(y[i : i + 1], draws[i : i + 1]) for i in range(3)]
    np.testing.assert_allclose(predictive.crps(y), by_draws, rtol=0.03)


def test_distribution_of_real_targets_in_their_units():
    scaler = TargetScaler(50.0, 10.0)
    predictive = ResponsePredictive(StudentT(4.0, 0.3), M, V, scaler)
    plain = StudentT(4.0, 0.3).predictive(M, V)
    y = np.array([52.0, 71.0, 80.0])
    np.testing.assert_allclose(predictive.mean, 50 + 10 * M)
    np.testing.assert_allclose(predictive.sd, 10 * np.sqrt(plain.variance))
    np.testing.assert_allclose(predictive.log_density(y), plain.log_density((y - 50) / 10) - np.log(10))
    np.testing.assert_allclose(predictive.quantile([0.2])[:, 0], 50 + 10 * plain.quantile(0.2))
    by_draws = metrics.crps_from_samples(y, predictive.sample(20_000, 1))
    assert predictive.crps(y).mean() == pytest.approx(by_draws, rel=0.03)
    np.testing.assert_allclose(predictive.latent.sd, 10 * np.sqrt(V))


@pytest.mark.parametrize(
    ("settings", "y", "exposure", "words"),
    [
        ({"likelihood": "beta"}, [1, 2, 3], None, "Unknown likelihood"),
        ({"likelihood": "gamma"}, [1, 0, 3], None, "0 in row 1, but amounts are above 0"),
        ({"likelihood": "logit"}, [2, 0, 1], None, "0 and 1"),
        ({"likelihood": "poisson"}, [1, 2.5, 3], None, "whole numbers"),
        ({"likelihood": "poisson", "conformal": True}, [1, 2, 3], None, "conformal=False"),
        ({"likelihood": "poisson", "checkpoint": "journal"}, [1, 2, 3], None, "checkpoint=None"),
        ({"likelihood": "student-t"}, [1, 2, 3], [1, 1, 1], "exposure is of counts and amounts, .*'gamma'"),
        ({}, [1, 2, 3], [1, 1, 1], "exposure is of counts and amounts, .*'gamma'"),
    ],
)
def test_what_does_not_go_together_is_said(settings, y, exposure, words):
    with pytest.raises(ValueError, match=words):
        WideGPRegressor.plain(**settings).fit(np.arange(3.0)[:, None], y, exposure=exposure)


def test_latent_of_a_class_has_no_units():
    with pytest.raises(ValueError, match="decision_function"):
        _ = ResponsePredictive(Bernoulli(), M, V).latent
    assert len(ResponsePredictive(Poisson(), M, V)) == 3


@pytest.mark.parametrize(
    "likelihood", ["gaussian", "student-t", "logit", "poisson", "negative-binomial", "gamma"]
)
def test_integer_weights_are_repeated_rows(likelihood):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(30, 2))
    y = rng.poisson(np.exp(0.5 * X[:, 0])).astype(float)
    y = np.minimum(y, 1.0) if likelihood == "logit" else y + 0.5 if likelihood == "gamma" else y
    weight = rng.integers(0, 4, 30)
    model = WideGPRegressor.plain(likelihood=likelihood, random_state=0, approximation="exact")
    weighted = model.fit(X, y, sample_weight=weight).predict(X)
    repeated = model.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight)).predict(X)
    # Rows that repeat are merged. Under a Gaussian likelihood that is after they are scaled, so that inputs
    # differ in their last digit and predictions by 5e-13; all other fits are one to the last digit. Written
    # out, equal targets bring sigma_eps2 to its lower bound of 1e-7: the loss then has seven digits, and
    # predictions differed by 4e-8 to 4e-7 (eight tables). Compared by the loss alone, optima still differed
    # by 4e-7 in log theta and predictions by 3e-8, hence the last steps by the gradient (`settled`).
    np.testing.assert_allclose(weighted, repeated, rtol=1e-8, atol=1e-8)
