"""Weights of rows against rows written out, and known noise against the exact formula."""

from __future__ import annotations

import numpy as np
import pytest

from widegp import WideGPRegressor
from widegp.approximations.dense import Dense
from widegp.approximations.registry import APPROXIMATIONS
from widegp.compute.backend import choose_backend
from widegp.inference.classes import ClassProblem
from widegp.inference.latent import LatentProblem, RowNoise
from widegp.inference.objective import Problem
from widegp.inference.parameters import ParameterSpace
from widegp.kernels import Mixed
from widegp.laplace import Response, evidence
from widegp.laplace_classes import ClassResponse, class_evidence
from widegp.likelihoods import Bernoulli, NegativeBinomial, Poisson, Softmax, StudentT
from widegp.warps import make_warp

N = 40
KERNEL = Mixed(sigma_u2=0.7, w=0.4)
LATENT = {
    "student-t": StudentT(4.0, 0.5), "logit": Bernoulli("logit"), "probit": Bernoulli("probit"),
    "softmax": Softmax(3), "poisson": Poisson(), "negative-binomial": NegativeBinomial(0.3),
}  # fmt: skip


def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=N), rng.integers(0, 4, size=N)


def loss(X, y, weight=None, warp="none"):
    """The MAP loss at given parameters, and the moments of f at other rows."""
    values = {name: np.asarray(value, float) for name, value in KERNEL.parameters().items()}
    values["sigma_eps2"] = np.asarray(0.3)
    problem = Problem(KERNEL, y, make_warp(warp), {}, weight=weight)
    backend = choose_backend(KERNEL, "native")
    space = ParameterSpace.of(KERNEL, values)
    with backend.scope():
        dense = Dense(X, backend)
        return problem.on(dense, space)(space.pack(values)), moments(dense, problem.observed(values))


def moments(dense, observed):
    new = np.random.default_rng(5).normal(size=(7, 2))
    posterior = dense.posterior(KERNEL, observed)
    return np.stack(posterior.moments(dense.backend, posterior.numbers(), new))


def latent(likelihood, X, y, weight):
    """-log q(y), its gradient and the moments of each latent function at other rows, at given parameters.

    The mode is found to 1e-10. To the 1e-4 of a fit the softmax, whose gradient hangs on GMRES, has four
    digits of it; all others, and its own value, have ten.
    """
    classes = isinstance(likelihood, Softmax)
    response = (ClassResponse if classes else Response)(likelihood, y, 0.1, weight)
    problem = (ClassProblem if classes else LatentProblem)(KERNEL, response, {})
    dense = Dense(X, choose_backend(KERNEL, "native"))
    with dense.backend.scope():
        found = (class_evidence if classes else evidence)(RowNoise(dense, KERNEL), response, None, 1e-10)
        problem.known.f = found.mode.f
        each = [moments(dense, problem.observed({}, k)) for k in range(problem.functions)]
    slopes = [*found.gradient.values(), *np.atleast_1d(found.by_psi)]
    return found.value, np.array(slopes, float), np.stack(each)


def test_a_weight_counts_a_row_so_often_in_value_and_gradient():
    X, y, weight = table()
    seen = weight > 0
    ours, predicted = loss(X[seen], y[seen], weight[seen].astype(float))
    written_out, expected = loss(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert ours.value == pytest.approx(written_out.value, rel=1e-10)
    np.testing.assert_allclose(ours.gradient, written_out.gradient, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(predicted, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", LATENT)
def test_a_weight_counts_a_row_so_often_under_every_likelihood(name):
    X, y, weight = table()
    if name != "student-t":
        ends = [0.0] if isinstance(LATENT[name], Bernoulli) else [-0.4, 0.4]
        y = np.digitize(y, ends).astype(int if name == "softmax" else float)
    seen = weight > 0
    ours = latent(LATENT[name], X[seen], y[seen], weight[seen].astype(float))
    written_out = latent(LATENT[name], np.repeat(X, weight, axis=0), np.repeat(y, weight), 1.0)
    for one, other in zip(ours, written_out, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


def test_a_weighted_fit_is_the_fit_of_repeated_rows():
    X, y, weight = table()
    ours = WideGPRegressor.plain(random_state=0).fit(X, y, sample_weight=weight)
    repeated = np.repeat(X, weight, axis=0), np.repeat(y, weight)
    written_out = WideGPRegressor.plain(random_state=0).fit(*repeated)
    np.testing.assert_allclose(ours.predict(X), written_out.predict(X), atol=1e-8)
    assert ours.log_posterior_ == pytest.approx(written_out.log_posterior_, abs=1e-8)


def test_known_noise_is_part_of_what_makes_rows_equal():
    X, y, weight = table()
    noise = np.random.default_rng(1).uniform(0.1, 0.5, size=N)
    settings = {"random_state": 0, "approximation": "exact"}
    rows, targets, variances = (np.repeat(part, weight, axis=0) for part in (X, y, noise))
    ours = WideGPRegressor.plain(**settings).fit(X, y, sample_weight=weight, noise_variance=noise)
    written_out = WideGPRegressor.plain(**settings).fit(rows, targets, noise_variance=variances)
    np.testing.assert_allclose(ours.predict(X), written_out.predict(X), atol=1e-8)
    # The same rows with another variance are other rows.
    apart = WideGPRegressor.plain(**settings).fit(
        np.concatenate([X, X]), np.concatenate([y, y]), noise_variance=np.concatenate([noise, 2 * noise])
    )
    assert len(apart.fitted_.posterior.X) == 2 * N


@pytest.mark.parametrize("approximation", sorted(APPROXIMATIONS))
def test_a_heavy_row_pulls_the_prediction_towards_its_target(approximation):
    X, y, _ = table()
    y = y.copy()
    y[0] += 3.0
    heavy = np.ones(N)
    heavy[0] = 500.0
    settings = {"approximation": approximation, "rank": N, "neighbors": 8, "max_iter": 0, "random_state": 0}
    start = {"sigma_u2": 0.5, "sigma_eps2": 0.2}
    light = WideGPRegressor.plain(**settings, start=start).fit(X, y).predict(X[:1])
    pulled = WideGPRegressor.plain(**settings, start=start).fit(X, y, sample_weight=heavy).predict(X[:1])
    assert abs(pulled[0] - y[0]) < 0.5 * abs(light[0] - y[0])


def test_known_noise_gives_the_textbook_posterior_mean():
    X, y, _ = table()
    noise = np.random.default_rng(1).uniform(0.01, 0.5, size=N)
    model = WideGPRegressor.plain(random_state=0).fit(X, y, noise_variance=noise)
    rows, z = model.fitted_.inputs.transform(X), (y - y.mean()) / y.std()
    K = model.kernel_(rows)
    mean = K @ np.linalg.solve(K + np.diag(noise / y.var()), z) * y.std() + y.mean()
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-8)
    assert model.params_["sigma_eps2"] == pytest.approx(noise.mean() / y.var())


def test_what_is_wrong_with_weights_and_variances_is_said():
    X, y, _ = table()
    with pytest.raises(ValueError, match="at least one non-zero"):
        WideGPRegressor.plain().fit(X, y, sample_weight=np.zeros(N))
    with pytest.raises(ValueError, match=r"noise_variance is -1.0 in row 3"):
        WideGPRegressor.plain().fit(X, y, noise_variance=np.where(np.arange(N) == 3, -1.0, 1.0))
