"""Gradients of the posterior mean against finite differences of the predictions, for every approximation."""

from __future__ import annotations

import numpy as np
import pytest

from widegp.approximations.build import NAMES, WITH_NEIGHBORS, Builder, Dials
from widegp.compute.backend import choose_backend
from widegp.gradients import mean_gradients
from widegp.kernels import Mixed, exact_tanh
from widegp.prediction import TrainingRows, make_predictor

STEP = 1e-5


def fitted(name, kernel, n=120, count=15, seed=0):
    """A posterior at fixed parameters and the rows it conditions on, if it does."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=n)
    backend = choose_backend(kernel)
    with backend.scope():
        builder = Builder(X, Dials(name, 20, 8, "kmeans", "random", None), backend, 0)
        likelihood = builder.build(kernel)
        y = y[builder.order]
        posterior = likelihood.posterior(kernel, 0.05, y)
    rows = None
    if name in WITH_NEIGHBORS:
        rows = TrainingRows(X[builder.order], y, kernel, count)
    return posterior, rows


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
            there = FixedRows(rows.X, rows.y, rows.kernel, rows.count)
            there.fixed = rows.nearest(x[None])[0]
        steps = STEP * np.eye(len(x))
        predict = make_predictor(posterior, there).predict
        out[i] = (predict(x + steps)[0] - predict(x - steps)[0]) / (2 * STEP)
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ard", [False, True])
def test_gradients_are_those_of_the_predicted_mean(name, ard):
    kernel = Mixed(sigma_u2=np.array([0.6, 0.2, 1.1]) if ard else 0.5, w=0.4, alpha=0.3)
    posterior, rows = fitted(name, kernel)
    X = np.random.default_rng(1).normal(size=(7, 3))
    expected = by_differences(posterior, rows, X)
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(mean_gradients(posterior, X, rows), expected, atol=2e-7, rtol=1e-6)


@pytest.mark.parametrize("name", ["exact", "full-scale"])
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
    monkeypatch.setattr("widegp.gradients.BLOCK_ROWS", 7)
    np.testing.assert_allclose(mean_gradients(posterior, rows.X, rows), whole, rtol=1e-9, atol=1e-12)
