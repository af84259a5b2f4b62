"""Noise that depends on the inputs, learned from residuals."""

from __future__ import annotations

import numpy as np
import pytest

from widegp.noise_model import LeftOut, NoiseModel, fit_noise


def simulated(n=1500, seed=0, latent=0.0):
    """Residuals of noise with sd exp(0.6 x) and, beside it, an uncertain mean."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.7, 1.7, (n, 2))
    sd = np.exp(0.6 * X[:, 0])
    residual = rng.normal(size=n) * np.sqrt(sd**2 + latent)
    return X, sd, LeftOut(residual, np.full(n, latent), np.full(n, 1.3))


@pytest.mark.parametrize("latent", [0.0, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_known_sd_is_recovered(latent, seed):
    X, sd, left_out = simulated(seed=seed, latent=latent)
    model = fit_noise(X, left_out)
    new = np.random.default_rng(9).uniform(-1.5, 1.5, (500, 2))
    found, true = np.sqrt(model.spread(new)), np.exp(0.6 * new[:, 0])
    # The level belongs to sigma_eps2.
    error = np.log(found / true) - np.mean(np.log(found / true))
    assert np.sqrt(np.mean(error**2)) < 0.1


def test_constant_noise_gets_no_model_or_a_flat_one():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(800, 3))
    left_out = LeftOut(rng.normal(size=800), np.zeros(800), np.ones(800))
    model = fit_noise(X, left_out)
    assert model is None or np.std(np.log(model.spread(X))) < 0.2


def test_half_the_strength_is_half_the_log_variance():
    X, _, left_out = simulated(n=400)
    model = fit_noise(X, left_out)
    np.testing.assert_allclose(model.with_strength(0.5).spread(X) ** 2, model.spread(X), rtol=1e-12)
    assert np.all(model.with_strength(0.0).spread(X) == 1)


def test_log_density_is_that_of_the_normal_distribution():
    from scipy.stats import norm

    left_out = LeftOut(np.array([0.3, -2.0]), np.array([0.1, 0.5]), np.array([0.2, 0.7]))
    np.testing.assert_allclose(
        left_out.log_density(), norm.logpdf([0.3, -2.0], scale=np.sqrt([0.3, 1.2])), rtol=1e-12
    )


@pytest.mark.parametrize("old", [None, np.diag([1.0, 3.0, 0.5])])
@pytest.mark.parametrize("new", [None, np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.0, 1.0]])])
def test_the_noise_of_a_row_stays_the_same_under_another_metric(old, new):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))

    def seen(A: np.ndarray | None) -> np.ndarray:
        return X if A is None else X @ A

    model = NoiseModel(seen(old)[:30], rng.normal(size=30), 0.3, 1.0)
    moved = model.under(new, old)
    np.testing.assert_allclose(moved.spread(seen(new)), model.spread(seen(old)), rtol=1e-10)
    again = moved.under(old, new)
    np.testing.assert_allclose(again.spread(seen(old)), model.spread(seen(old)), rtol=1e-10)


def test_spread_is_the_sum_over_the_points():
    rng = np.random.default_rng(1)
    model = NoiseModel(rng.normal(size=(5, 2)), 0.3 * rng.normal(size=5), 0.7, 1.3, strength=0.5)
    X = rng.normal(size=(4, 2))
    expected = []
    for x in X:
        h = sum(
            w * float(model.kernel(x[None], p[None])[0, 0])
            for w, p in zip(model.weights, model.points, strict=True)
        )
        expected.append(np.exp(0.5 * h))
    np.testing.assert_allclose(model.spread(X), expected, rtol=1e-12)
