"""Few points in place of many weighted draws: moments, and quantiles of a skewed law."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from widegp.inference.thinned import thinned


@settings(max_examples=30, deadline=None)
@given(p=st.integers(1, 10), seed=st.integers(0, 99))
@example(p=6, seed=61)
def test_mean_and_covariance_are_those_of_all_draws(p, seed):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((500, p)) @ rng.standard_normal((p, p)) * np.geomspace(0.01, 10, p)
    weights = rng.dirichlet(np.ones(500))
    found = thinned(z, weights, 30)
    mean = weights @ z
    covariance = (z - mean).T @ ((z - mean) * weights[:, None])
    scale = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose((found.mean(0) - mean) / scale, 0, atol=1e-8)
    own = (found - mean).T @ (found - mean) / 30
    np.testing.assert_allclose(own / np.outer(scale, scale), covariance / np.outer(scale, scale), atol=1e-4)


def test_a_skewed_law_stays_skewed():
    """Quantiles of a Gamma, on which a second entry depends."""
    rng = np.random.default_rng(0)
    gamma = rng.gamma(2.0, size=5000)
    z = np.stack([gamma, gamma + 0.3 * rng.standard_normal(5000)], 1)
    found = np.sort(thinned(z, np.full(5000, 1 / 5000), 25)[:, 0])
    wanted = np.quantile(z[:, 0], (np.arange(25) + 0.5) / 25)
    np.testing.assert_allclose(found, wanted, atol=0.35)
    skew = np.mean((found - found.mean()) ** 3) / found.std() ** 3
    assert skew == pytest.approx(2 / np.sqrt(2), abs=0.5)


def test_a_direction_without_spread_stays_where_it_is():
    z = np.stack([np.linspace(-1, 1, 50), np.full(50, 3.0)], 1)
    found = thinned(z, np.full(50, 0.02), 10)
    np.testing.assert_allclose(found[:, 1], 3.0, atol=1e-5)
