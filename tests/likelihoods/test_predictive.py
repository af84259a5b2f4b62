"""Predictions with f integrated out, against adaptive quadrature, closed forms, sums and Monte Carlo."""

from __future__ import annotations

from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import expit

from likelihoods.cases import IDS, LIKELIHOODS, mp_log_p
from widegp.likelihoods import Bernoulli, Gamma, Gaussian, NegativeBinomial, Poisson, Softmax, StudentT

each = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=IDS)
COUNTS = [Poisson(), NegativeBinomial(0.4), NegativeBinomial(1e-3), NegativeBinomial(5.0)]


def integral(likelihood, y: float, m: float, v: float) -> float:
    """log int p(y | f) N(f; m, v) df by mpmath's quadrature over many short pieces."""
    with mp.workdps(18):
        sd = mp.sqrt(v)
        ends = [mp.mpf(m) + sd * k for k in range(-20, 21)]
        gaussian = lambda f: -((f - m) ** 2) / (2 * v) - mp.log(2 * mp.pi * v) / 2  # noqa: E731
        return float(mp.log(mp.quad(lambda f: mp.exp(mp_log_p(likelihood, y, f) + gaussian(f)), ends)))


@each
@pytest.mark.parametrize(("m", "v"), [(0.3, 0.01), (-2.0, 1.0), (1.5, 9.0)])
def test_log_density_is_the_integral(likelihood, m, v):
    y_of = {"logit": (0.0, 1.0), "probit": (0.0, 1.0), "gaussian": (0.0, 3.0), "gamma": (0.2, 3.0, 10.0)}
    for y in y_of.get(likelihood.name, (0.0, 3.0, 60.0)):
        got = likelihood.predictive(np.array([m]), np.array([v])).log_density(np.array([y]))[0]
        assert got == pytest.approx(integral(likelihood, y, m, v), rel=1e-9, abs=1e-9), y


@each
def test_without_uncertainty_the_density_is_that_at_f(likelihood):
    y = np.array([0.0, 1.0, 1.0, 0.0]) + 0.5 * (likelihood.support == "positive")
    f = np.array([-3.0, 0.2, 1.0, 4.0])
    got = likelihood.predictive(f, np.zeros(4)).log_density(y)
    np.testing.assert_allclose(got, likelihood.terms(y, f).log_p, rtol=1e-11)


def test_probabilities():
    m, v = np.array([-30.0, -2.0, 0.1, 1.0, 8.0]), np.array([4.0, 0.5, 2.0, 100.0, 0.1])
    probit = Bernoulli("probit").predictive(m, v)
    np.testing.assert_allclose(probit.probability, stats.norm.cdf(m / np.sqrt(1 + v)), rtol=1e-13)
    logit = Bernoulli("logit").predictive(m, v)
    for i in range(5):
        h = lambda f: expit(f) * stats.norm.pdf(f, m[i], np.sqrt(v[i]))  # noqa: B023, E731
        points = m[i] + np.sqrt(v[i]) * np.linspace(-12, 12, 49)
        want = sum(integrate.quad(h, a, b)[0] for a, b in pairwise(points))
        assert logit.probability[i] == pytest.approx(want, rel=1e-9)
    both = np.exp(logit.log_density(np.zeros(5))) + np.exp(logit.log_density(np.ones(5)))
    np.testing.assert_allclose(both, 1, atol=1e-12)
    np.testing.assert_allclose(logit.variance, logit.probability * (1 - logit.probability), atol=1e-12)
    np.testing.assert_array_equal(logit.quantile(0.5), (logit.probability > 0.5).astype(float))


@settings(max_examples=30, deadline=None)
@given(m=st.floats(-4, 6), v=st.floats(0, 4), which=st.integers(0, len(COUNTS) - 1))
def test_cdf_of_a_count_is_the_sum_of_its_density_and_quantiles_invert_it(m, v, which):
    likelihood = COUNTS[which]
    y = np.arange(300.0)
    predictive = likelihood.predictive(np.full(300, m), np.full(300, v))
    cdf = predictive.cdf(y)
    np.testing.assert_allclose(cdf, np.cumsum(np.exp(predictive.log_density(y))), atol=1e-8)
    assert np.all(np.diff(cdf) >= -1e-12) and np.all((cdf >= 0) & (cdf <= 1))
    one = likelihood.predictive(np.array([m]), np.array([v]))
    for level in (0.025, 0.5, 0.9):
        k = one.quantile(level)
        assert one.cdf(k)[0] >= level
        assert one.cdf(k - 1)[0] < level


@pytest.mark.parametrize("likelihood", COUNTS, ids=str)
def test_moments_of_counts_by_summation(likelihood):
    m, v = 0.4, 0.3
    y = np.arange(6000.0)
    p = np.exp(likelihood.predictive(np.full(y.size, m), np.full(y.size, v)).log_density(y))
    one = likelihood.predictive(np.array([m]), np.array([v]))
    assert one.mean[0] == pytest.approx(p @ y, rel=1e-7)
    assert one.variance[0] == pytest.approx(p @ y**2 - (p @ y) ** 2, rel=1e-5)


def test_narrow_counts_under_a_wide_latent():
    """A count of 20,000 is 0.007 wide in f; the cdf must not depend on where nodes fall."""
    y = np.array([20_000.0])
    predictive = Poisson().predictive(np.log(y), np.array([1.0]))
    h = lambda t: stats.poisson.cdf(y[0], np.exp(t)) * stats.norm.pdf(t, np.log(y[0]))  # noqa: E731
    ends = np.log(y[0]) + np.array([-9, -0.1, -0.02, 0, 0.02, 0.1, 9])
    want = sum(integrate.quad(h, a, b, epsabs=1e-14, limit=400)[0] for a, b in pairwise(ends))
    assert predictive.cdf(y)[0] == pytest.approx(want, abs=1e-10)


@settings(max_examples=25, deadline=None)
@given(nu=st.floats(2.1, 60), scale=st.floats(0.05, 4), v=st.floats(0, 9), level=st.floats(0.001, 0.999))
def test_student_cdf_quantile_and_moments(nu, scale, v, level):
    one = StudentT(nu, scale).predictive(np.array([0.7]), np.array([v]))
    y = one.quantile(level)
    assert one.cdf(y)[0] == pytest.approx(level, abs=1e-9)
    low, high = one.quantile([0.1, 0.9])[0]
    inside = integrate.quad(lambda t: np.exp(one.log_density(np.array([t]))[0]), low, high, limit=200)[0]
    assert inside == pytest.approx(0.8, abs=1e-8)
    if v == 0:
        assert y[0] == pytest.approx(stats.t.ppf(level, nu, 0.7, scale), rel=1e-8, abs=1e-8)


@settings(max_examples=25, deadline=None)
@given(shape=st.floats(0.06, 300), v=st.floats(0, 4), level=st.floats(0.001, 0.999))
def test_cdf_quantile_and_moments_of_amounts(shape, v, level):
    one = Gamma(shape).predictive(np.array([0.7]), np.array([v]))
    y = one.quantile(level)
    assert one.cdf(y)[0] == pytest.approx(level, abs=1e-9)
    x = np.log(one.quantile([0.1, 0.9])[0])
    density = lambda t: np.exp(one.log_density(np.exp([t]))[0] + t)  # noqa: E731
    assert integrate.quad(density, *x, limit=200)[0] == pytest.approx(0.8, abs=1e-8)
    many = np.linspace(0.002, 0.998, 20)
    # Interpolated, for scores that average over hundreds of them.
    reached = [one.cdf(y)[0] for y in one.quantile(many).T]
    np.testing.assert_allclose(reached, many, atol=1e-4)
    if v == 0:
        assert y[0] == pytest.approx(stats.gamma.ppf(level, shape, scale=np.exp(0.7) / shape), rel=1e-8)


def test_amounts_of_a_certain_mean_are_lognormal_about_it():
    """shape -> infinity: log y = f."""
    one = Gamma(1e6).predictive(np.array([0.3]), np.array([0.5]))
    expected = stats.lognorm(np.sqrt(0.5), scale=np.exp(0.3))
    np.testing.assert_allclose(one.quantile([0.1, 0.5, 0.9])[0], expected.ppf([0.1, 0.5, 0.9]), rtol=1e-5)
    np.testing.assert_allclose([one.mean[0], one.variance[0]], expected.stats("mv"), rtol=1e-5)
    assert one.log_density([1.7])[0] == pytest.approx(expected.logpdf(1.7), abs=1e-5)


@each
def test_cdf_is_monotone_and_agrees_with_draws(likelihood):
    rng = np.random.default_rng(0)
    one = likelihood.predictive(np.array([0.5]), np.array([0.6]))
    draws = one.sample(rng, 20_000)[:, 0]
    grid = np.quantile(draws, [0.02, 0.2, 0.5, 0.8, 0.98])
    at = likelihood.predictive(np.full(5, 0.5), np.full(5, 0.6)).cdf(grid)
    assert np.all(np.diff(at) >= 0)
    np.testing.assert_allclose(at, [(draws <= g).mean() for g in grid], atol=0.015)


def test_gaussian_is_closed_form():
    one = Gaussian(0.5).predictive(np.array([1.0]), np.array([1.5]))
    np.testing.assert_allclose(one.quantile([0.1, 0.9])[0], stats.norm.ppf([0.1, 0.9], 1, np.sqrt(2)))
    assert (one.mean[0], one.variance[0]) == (1.0, 2.0)


def test_softmax_probabilities():
    rng = np.random.default_rng(1)
    m, v = rng.normal(0, 1.5, (3, 3)), rng.uniform(0.1, 2, (3, 3))
    p = Softmax(3).predictive(m, v).probabilities
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    f = m + np.sqrt(v) * rng.standard_normal((200_000, 3, 3))
    e = np.exp(f - f.max(axis=2, keepdims=True))
    np.testing.assert_allclose(p, (e / e.sum(axis=2, keepdims=True)).mean(axis=0), atol=3e-3)
    # Two classes with a difference of N(m1 - m0, v0 + v1) are the logit's.
    two = Softmax(2).predictive(m[:, :2], v[:, :2]).probabilities[:, 1]
    want = Bernoulli().predictive(m[:, 1] - m[:, 0], v[:, :2].sum(axis=1)).probability
    np.testing.assert_allclose(two, want, atol=5e-4)


def test_bad_latents_and_levels_are_refused():
    with pytest.raises(ValueError, match="variances"):
        Poisson().predictive([0.0], [-1.0])
    with pytest.raises(ValueError, match="between 0 and 1"):
        Poisson().predictive([0.0], [1.0]).quantile(1.0)
    with pytest.raises(ValueError, match=r"\(n, 3\)"):
        Softmax(3).predictive(np.zeros((2, 2)), 1.0)
