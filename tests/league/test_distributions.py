"""What models give back, against SciPy's integrals and sums; and the scores made of it."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.league import scores
from benchmarks.league.distributions import (
    FITTED_LEVELS,
    RESOLUTION,
    FromQuantiles,
    Gaussian,
    NegativeBinomial,
    Rounded,
)
from scipy.integrate import quad
from scipy.stats import norm

from widegp import metrics


def skewed(rows: int = 3) -> FromQuantiles:
    values = np.cumsum(np.random.default_rng(0).gamma(1.5, size=(rows, len(FITTED_LEVELS))), axis=1)
    return FromQuantiles(values[:, 3], FITTED_LEVELS, values, RESOLUTION)


def test_gaussian_quantiles_give_their_gaussian_back() -> None:
    values = norm.ppf(FITTED_LEVELS, 1, 2)[None]
    found = FromQuantiles(np.ones(1), FITTED_LEVELS, values, RESOLUTION)
    for y in (-2.8, 0.3, 1.0, 4.9):
        at = np.array([y])
        assert found.cdf(at)[0] == pytest.approx(norm.cdf(y, 1, 2), rel=1e-12)
        assert found.log_density(at)[0] == pytest.approx(norm.logpdf(y, 1, 2), rel=1e-10)
    # Beyond the outermost quantile the tail has the Gaussian's mean excess.
    end = values[0, -1]
    excess = quad(lambda t: norm.sf(t, 1, 2), end, 60)[0] / 0.025
    assert found.tail[0, 1] == pytest.approx(excess, rel=1e-8)


def test_densities_integrate_to_the_cdf() -> None:
    found = skewed(1)
    knots = [float(v) for v in found.v[0]]
    for upper in (knots[0] - 0.2, knots[2], knots[-1] + 1.0):
        low = knots[0] - 60 * found.tail[0, 0]
        points = [k for k in knots if low < k < upper]
        total = sum(
            quad(lambda t: np.exp(found.log_density(np.array([t]))[0]), a, b)[0]
            for a, b in zip([low, *points], [*points, upper], strict=True)
        )
        assert total == pytest.approx(found.cdf(np.array([upper]))[0], abs=1e-7)


def test_quantiles_are_where_the_cdf_is() -> None:
    found = skewed()
    levels = [0.001, 0.025, 0.2, 0.5, 0.77, 0.975, 0.9995]
    for level, column in zip(levels, found.quantile(levels).T, strict=True):
        np.testing.assert_allclose(found.cdf(column), level, rtol=1e-9)


def test_quantiles_that_cross_or_coincide_leave_a_density() -> None:
    values = np.array([[3.0, 2.0, 2.0, 2.0, 2.0, 1.0, 4.0]])
    found = FromQuantiles(np.array([2.0]), FITTED_LEVELS, values, 1e-3)
    density = found.log_density(np.array([2.0]))
    assert np.isfinite(density).all() and density[0] <= -np.log(1e-3)
    assert (np.diff(found.quantile(np.linspace(0.01, 0.99, 50))) > 0).all()


def test_counts_have_the_moments_they_claim() -> None:
    k = np.arange(4000.0)
    p = np.exp(NegativeBinomial(np.full(len(k), 20.0), 0.3).log_density(k))
    assert p.sum() == pytest.approx(1)
    assert p @ k == pytest.approx(20)
    assert p @ (k - 20) ** 2 == pytest.approx(20 + 0.3 * 400)


def test_a_rounded_gaussian_is_a_distribution_of_counts() -> None:
    k = np.arange(60.0)
    p = np.exp(Rounded(Gaussian(np.full(60, 4.0), np.full(60, 3.0))).log_density(k))
    assert p.sum() == pytest.approx(1, abs=1e-6)
    assert p[0] == pytest.approx(norm.cdf(0.5, 4, 3))


def test_scores_of_a_gaussian_are_the_closed_forms() -> None:
    rng = np.random.default_rng(1)
    mean, sd = rng.normal(size=400), rng.uniform(0.5, 2, 400)
    y, y_train = mean + sd * rng.normal(size=400), 3 * rng.normal(size=100)
    found = scores.of_numbers(y_train, y, Gaussian(mean, sd))
    assert found["nll"] == pytest.approx(metrics.nlpd_z(y, mean, sd, y_train))
    assert found["rmse"] == pytest.approx(metrics.rmse_z(y, mean, y_train))
    # 99 levels leave out what lies beyond the outermost.
    assert found["crps"] == pytest.approx(metrics.crps_z(y, mean, sd, y_train), rel=0.01)
    lower, upper = norm.interval(0.8, mean, sd)
    assert found["cover80"] == np.mean((lower <= y) & (y <= upper))
    lower, upper = norm.interval(0.95, mean, sd)
    assert found["interval"] == pytest.approx(metrics.interval_score_z(y, lower, upper, y_train))


def test_a_spike_is_not_rewarded_without_limit() -> None:
    y = np.arange(5.0)
    found = scores.of_numbers(y, y, Gaussian(y, np.full(5, 1e-12)))
    assert found["nll"] == pytest.approx(np.log(RESOLUTION))
