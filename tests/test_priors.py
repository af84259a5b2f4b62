"""Priors: slopes against differences, what they say about a target, and what they do to few rows."""

import numpy as np
import pytest
from scipy import stats

from widegp import LogNormal, WideGPRegressor
from widegp.inference.priors import default_priors
from widegp.kernels import Mixed
from widegp.kernels.priors import Beta, InverseGamma, Relative

PRIORS = [
    LogNormal(0.3, 1.5), InverseGamma(1.0, 0.2), Beta(1.5, 2.0), Relative(LogNormal(0.2, 2.0), 1.5),
]  # fmt: skip


@pytest.mark.parametrize("prior", PRIORS, ids=lambda p: type(p).__name__)
def test_slopes(prior):
    x, step = np.array([0.1, 0.7, 0.35]), 1e-6
    units = np.eye(3) * step
    by_differences = [(prior.penalty(x + u) - prior.penalty(x - u)) / (2 * step) for u in units]
    np.testing.assert_allclose(prior.slope(x), by_differences, rtol=1e-6, atol=1e-7)


def test_a_log_normal_is_the_density_of_the_logarithm():
    prior, z = LogNormal(0.3, 1.5), np.linspace(-4, 4, 9)
    penalties = np.array([prior.penalty(np.exp(at)) for at in z])
    expected = -stats.norm.logpdf(z, np.log(0.3), 1.5)
    np.testing.assert_allclose(penalties - penalties[0], expected - expected[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n_inputs", [1, 7, 80])
def test_equal_entries_have_the_prior_of_one(n_inputs):
    """One variance for all inputs is a special case: its optimum has the same objective in either model."""
    one = default_priors(Mixed(), n_inputs, False)["sigma_u2"]
    each = default_priors(Mixed(), n_inputs, True)["sigma_u2"]
    for value in (1e-3, 0.1, 4.0):
        assert each.penalty(np.full(n_inputs, value)) == pytest.approx(one.penalty(np.asarray(value)))


def test_the_normaliser_of_entries_compared_with_their_mean():
    """Without it the evidence of one variance per input could not be set beside that of one for all."""
    prior = Relative(LogNormal(0.3, 1.2), 0.7)
    logs = np.linspace(-8, 6, 281)
    density = [[np.exp(-prior.penalty(np.exp([a, b]))) for a in logs] for b in logs]
    whole = np.sum(density) * (logs[1] - logs[0]) ** 2
    assert np.log(whole) == pytest.approx(prior.log_normaliser(2), abs=1e-6)
    assert prior.log_normaliser(1) == pytest.approx(prior.common.log_normaliser(1))


def test_one_variance_per_input_does_not_lose_to_one_for_all():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 12))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(60)
    one = WideGPRegressor.plain(approximation="exact", random_state=0).fit(X, y)
    each = WideGPRegressor.plain(approximation="exact", ard=True, random_state=0).fit(X, y)
    assert each.log_posterior_ > one.log_posterior_ - 1e-6


def test_few_rows_are_not_fitted_without_noise():
    """Intervals of 95% from fifteen rows cover more than with an Inverse-Gamma(1, 1e-3) for the noise."""
    covered = {"default": [], "narrow": []}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-3, 3, (215, 3))
        y = X @ [1.0, 0.5, -0.5] + 0.5 * rng.standard_normal(215)
        for name, priors in (("default", "default"), ("narrow", {"sigma_eps2": InverseGamma(1.0, 1e-3)})):
            model = WideGPRegressor.plain(approximation="exact", priors=priors, random_state=0)
            lower, upper = model.fit(X[:15], y[:15]).predict_interval(X[15:])
            covered[name].append(np.mean((y[15:] > lower) & (y[15:] < upper)))
    assert np.mean(covered["default"]) > 0.85
    assert np.mean(covered["default"]) > np.mean(covered["narrow"]) + 0.05
