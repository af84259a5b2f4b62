"""Gradients of the posterior mean against finite differences of the predictions, for every approximation."""

from __future__ import annotations

import numpy as np
import pytest

from widegp.approximations.build import Builder
from widegp.approximations.evaluation import Observed
from widegp.approximations.layout import Dials
from widegp.approximations.registry import APPROXIMATIONS
from widegp.choices.gradients import mean_gradients
from widegp.compute.backend import choose_backend
from widegp.kernels import Mixed, exact_tanh
from widegp.prediction import TrainingRows, make_predictor

STEP = 1e-5


def fitted(name, kernel, n=120, count=15, seed=0, spread=True):
    """A posterior at fixed parameters and the rows it conditions on, if it does."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=n)
    backend = choose_backend(kernel)
    observed = Observed(y, 0.05, np.exp(0.5 * X[:, 1]) if spread else None)
    with backend.scope():
        builder = Builder(X, Dials(name, 20, 8, "kmeans", "random", None), backend, 0)
        layout = builder.layout(kernel)
        posterior = builder.likelihood(layout).posterior(kernel, observed)
    if layout.order is None:
        return posterior, None
    stored = observed.of(layout.order)
    return posterior, TrainingRows(X[layout.order], stored.y, kernel, count, stored.spread)


class FixedRows(TrainingRows):
    """Training rows whose nearest are those of other points: the conditioning set does not move with x."""

    def nearest(self, X):
        return np.broadcast_to(self.fixed, (len(X), self.fixed.size))


def by_differences(posterior, rows, X):
    """Central differences of the predicted mean, each row conditioning on what it conditions on at x."""
    out = np.empty_like(X)
    for i, x in enumerate(X):
        there = rows
        if rows is not None:
            there = FixedRows(rows.X, rows.y, rows.kernel, rows.count, rows.spread)
            there.fixed = rows.nearest(x[None])[0]
        steps = STEP * np.eye(len(x))
        predict = make_predictor(posterior, there).predict
        out[i] = (predict(x + steps).mean - predict(x - steps).mean) / (2 * STEP)
    return out


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_gradients_are_those_of_the_predicted_mean(name):
    kernel = Mixed(sigma_u2=np.array([0.6, 0.2, 1.1]), w=0.4, alpha=0.3)
    posterior, rows = fitted(name, kernel, spread=name != "nystrom")
    X = np.random.default_rng(1).normal(size=(7, 3))
    expected = by_differences(posterior, rows, X)
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(mean_gradients(posterior, X, rows), expected, atol=2e-7, rtol=1e-6)


def test_a_posterior_that_gives_no_gradients_says_so():
    class Sampled:
        kernel, noise = Mixed(), 0.1

    for rows, words in ((None, "no expansion"), (fitted("vecchia", Mixed())[1], "no Z and W and beta")):
        with pytest.raises(ValueError, match=f"Sampled has {words}, .*metric='iso'"):
            mean_gradients(Sampled(), np.zeros((1, 3)), rows)


@pytest.mark.parametrize("name", ["exact", pytest.param("full-scale", marks=pytest.mark.slow)])
def test_gradients_of_a_kernel_without_a_closed_form(name):
    posterior, rows = fitted(name, exact_tanh.replace(sigma_u2=0.5), n=40)
    X = np.random.default_rng(2).normal(size=(3, 3))
    np.testing.assert_allclose(
        mean_gradients(posterior, X, rows), by_differences(posterior, rows, X), atol=2e-7, rtol=1e-6
    )


def test_gradients_at_training_rows_are_finite_and_blocks_do_not_matter(monkeypatch):
    posterior, rows = fitted("full-scale", Mixed(sigma_u2=0.5))
    whole = mean_gradients(posterior, rows.X, rows)
    assert np.all(np.isfinite(whole))
    monkeypatch.setattr("widegp.choices.gradients.BLOCK_ROWS", 7)
    np.testing.assert_allclose(mean_gradients(posterior, rows.X, rows), whole, rtol=1e-9, atol=1e-12)
