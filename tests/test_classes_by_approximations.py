"""Several classes through the approximations: dense matrices, differences, long runs of a sampler."""

from __future__ import annotations

import numpy as np
import pytest
from naive_laplace import softmax_mode_and_evidence
from scipy.special import softmax
from test_latent import KERNEL, X, built, covariance, elliptical_slice_draws

from widegp.approximations.dense import Dense
from widegp.approximations.evaluation import Observed
from widegp.compute.backend import choose_backend
from widegp.inference.classes import ClassProblem
from widegp.inference.latent import RowNoise
from widegp.inference.objective import start_values
from widegp.inference.parameters import ParameterSpace
from widegp.inference.priors import default_priors
from widegp.laplace_classes import ClassResponse, find_class_mode
from widegp.likelihoods.softmax import Softmax
from widegp.prediction import make_predictor

LEVEL = np.array([0.3, -0.4, 0.1])


def seen(rows=slice(None)):
    rng = np.random.default_rng(1)
    f = np.linalg.cholesky(covariance() + 1e-8 * np.eye(70)) @ rng.standard_normal((70, 3))
    y = Softmax(3).sample(f + LEVEL, rng)
    return ClassResponse(Softmax(3), y[rows], LEVEL)


@pytest.mark.parametrize(
    ("name", "rank", "neighbors"), [("exact", 1, 0), ("full-scale", 10, 69), ("vecchia", 1, 69)]
)
def test_with_all_rows_to_condition_on_the_mode_is_the_dense_one(name, rank, neighbors):
    response = seen()
    mode = find_class_mode(RowNoise(built(name, rank, neighbors), KERNEL), response)
    f, value, _ = softmax_mode_and_evidence(covariance(), response.y, LEVEL)
    np.testing.assert_allclose(mode.f, f, atol=1e-6)
    assert value - 1e-7 <= mode.value < value + 0.5
    exact = find_class_mode(RowNoise(built("exact", 1, 0), KERNEL), response)
    assert mode.value == pytest.approx(exact.value, abs=1e-7)


def test_objective_and_its_gradient_in_unconstrained_coordinates():
    problem = ClassProblem(KERNEL, seen(), default_priors(KERNEL, 3, False))
    start = start_values(KERNEL, 1.0, np.zeros(0), None)
    del start["sigma_eps2"]
    space = ParameterSpace.of(KERNEL, start)
    objective = problem.on(built("full-scale", 12, 8), space)
    z = space.pack(start)
    answer = objective(z)
    assert answer.problem is None
    for k, h in enumerate(1e-4 * np.eye(z.size)):
        numeric = (objective(z + h).value - objective(z - h).value) / 2e-4
        assert answer.gradient[k] == pytest.approx(numeric, rel=5e-4, abs=5e-4), space.labels()[k]
    part = problem.restricted(np.arange(5))
    assert part.known.f.shape == (5, 3) and part.observed(start, 2).y.shape == (5,)


def predicted(response):
    """P (20, 3) at the last 20 rows from the first 50."""
    rows = Dense(X[:50], choose_backend(KERNEL, "native"))
    mode = find_class_mode(RowNoise(rows, KERNEL), response)
    pairs = zip(mode.pseudo.z.T, mode.pseudo.noise.T, strict=True)
    posteriors = [rows.posterior(KERNEL, Observed(z, 1.0, noise)) for z, noise in pairs]
    moments = [make_predictor(p, None).predict(X[50:]) for p in posteriors]
    mean, variance = (np.stack(parts, axis=1) for parts in zip(*moments, strict=True))
    return Softmax(3).predictive(mean + LEVEL, variance).probabilities


def from_draws(f):
    """P (20, 3) at the last 20 rows from draws of f (draws, 3, 50) at the first 50."""
    K, rng = covariance(), np.random.default_rng(0)
    near, cross = K[:50, :50] + 1e-9 * np.eye(50), K[:50, 50:]
    weights = np.linalg.solve(near, cross)
    given = np.sqrt(np.diag(K[50:, 50:]) - np.sum(cross * weights, axis=0))
    f = f @ weights + given * rng.standard_normal((len(f), 3, 20))
    return softmax(f.transpose(0, 2, 1) + LEVEL, axis=2).mean(axis=0)


def test_probabilities_are_those_of_the_coupled_approximation():
    response, K = seen(slice(50)), covariance()[:50, :50] + 1e-9 * np.eye(50)
    f, _, S = softmax_mode_and_evidence(K, response.y, LEVEL)
    draws = np.random.default_rng(0).multivariate_normal(f.T.ravel(), S, 20_000).reshape(-1, 3, 50)
    np.testing.assert_allclose(predicted(response), from_draws(draws), atol=0.01)


@pytest.mark.slow
def test_probabilities_are_near_those_of_long_runs():
    """f of all classes drawn by elliptical slice sampling."""
    response, K = seen(slice(50)), covariance()[:50, :50] + 1e-9 * np.eye(50)

    class Stacked:
        """All classes of a row as one vector, class by class."""

        def terms(self, f):
            return response.terms(f.reshape(3, 50).T)

    L = np.kron(np.eye(3), np.linalg.cholesky(K))
    draws = elliptical_slice_draws(L, Stacked(), 20_000, np.random.default_rng(7))[1000:].reshape(-1, 3, 50)
    # Laplace's own error: the posterior of f is skewed. The coupled approximation has the same.
    np.testing.assert_allclose(predicted(response), from_draws(draws), atol=0.06)
