"""Weights of rows against rows written out, and known noise against the exact formula."""

from __future__ import annotations

import numpy as np
import pytest

from widegp import WideGPRegressor
from widegp.approximations.registry import APPROXIMATIONS
from widegp.compute.backend import choose_backend
from widegp.inference.objective import Problem
from widegp.inference.parameters import ParameterSpace
from widegp.kernels import Mixed
from widegp.warps import make_warp

N = 40


def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=N), rng.integers(0, 4, size=N)


def loss(X, y, weight=None, warp="none"):
    from widegp.approximations.dense import Dense

    kernel = Mixed(sigma_u2=0.7, w=0.4)
    values = {name: np.asarray(value, float) for name, value in kernel.parameters().items()}
    values["sigma_eps2"] = np.asarray(0.3)
    problem = Problem(kernel, y, make_warp(warp), {}, weight=weight)
    backend = choose_backend(kernel, "native")
    space = ParameterSpace.of(kernel, values)
    with backend.scope():
        return problem.on(Dense(X, backend), space)(space.pack(values))


def test_a_weight_counts_a_row_so_often_in_value_and_gradient():
    X, y, weight = table()
    seen = weight > 0
    ours = loss(X[seen], y[seen], weight[seen].astype(float))
    written_out = loss(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert ours.value == pytest.approx(written_out.value, rel=1e-10)
    np.testing.assert_allclose(ours.gradient, written_out.gradient, rtol=1e-8, atol=1e-9)


def test_a_weighted_fit_is_the_fit_of_repeated_rows():
    X, y, weight = table()
    ours = WideGPRegressor.plain(random_state=0).fit(X, y, sample_weight=weight)
    repeated = np.repeat(X, weight, axis=0), np.repeat(y, weight)
    written_out = WideGPRegressor.plain(random_state=0).fit(*repeated)
    np.testing.assert_allclose(ours.predict(X), written_out.predict(X), atol=1e-6)
    assert ours.log_posterior_ == pytest.approx(written_out.log_posterior_, abs=1e-6)


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
