"""y of shape (n, T): one kernel, own noise."""

from __future__ import annotations

import numpy as np
import pytest

import widegp
from widegp import WideGPRegressor
from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.compute.backend import choose_backend
from widegp.inference.objective import start_values
from widegp.inference.parameters import ParameterSpace
from widegp.inference.priors import default_priors, penalty
from widegp.inference.several import SeveralProblem
from widegp.kernels.registry import named

KERNEL = named("mixed").replace(sigma_u2=0.5)


def table(n, seed=0):
    """Two functions of the same inputs, the second five times as noisy, in other units."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = np.column_stack([np.sin(2 * X[:, 0]) + X[:, 1], np.cos(2 * X[:, 0]) - X[:, 1]])
    return X, f * [1.0, 100.0] + [0.0, 50.0], (f + rng.normal(size=(n, 2)) * [0.1, 0.5]) * [1, 100] + [0, 50]


def test_the_loss_is_the_sum_of_dense_ones_and_its_gradient_that_of_differences():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(25, 3)), rng.normal(size=(25, 3))
    problem = SeveralProblem(KERNEL, Y, default_priors(KERNEL, 3, False))
    values = start_values(KERNEL, 0.3, np.array([0.7, -0.4]), None)
    space = ParameterSpace.of(KERNEL, values, problem.psi_bounds)
    backend = choose_backend(KERNEL, "native")
    builder = Builder(X, Dials("exact", 1, 0, "kmeans", "random", None), backend, 0)
    objective = problem.on(builder.build(KERNEL), space)
    z = space.pack(values)
    K, loss = np.asarray(backend.cross(KERNEL, X, X)), penalty(problem.priors, values)[0]
    for y, noise in zip(Y.T, 0.3 * np.exp([0, 0.7, -0.4]), strict=True):
        C = K + noise * np.eye(25)
        loss += 0.5 * (y @ np.linalg.solve(C, y) + np.linalg.slogdet(C)[1] + 25 * np.log(2 * np.pi))
    answer = objective(z)
    assert answer.value == pytest.approx(loss, rel=1e-10)
    for j, unit in enumerate(np.eye(len(z))):
        slope = (objective(z + 1e-5 * unit).value - objective(z - 1e-5 * unit).value) / 2e-5
        assert answer.gradient[j] == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("approximation", ["exact", "full-scale"])
def test_outputs_share_the_kernel_and_keep_their_units_and_noise(approximation, tmp_path):
    X, f, Y = table(260)
    model = WideGPRegressor.plain(approximation=approximation, rank=40, neighbors=10, random_state=0)
    model.fit(X[:200], Y[:200])
    mean, sd = model.predict(X[200:], return_std=True)
    assert mean.shape == sd.shape == (60, 2)
    error = np.sqrt(np.mean((mean - f[200:]) ** 2, axis=0)) / np.std(f, axis=0)
    assert np.all(error < 0.35)
    first, second = model.params_
    assert first["sigma_u2"] == second["sigma_u2"] and second["sigma_eps2"] > 4 * first["sigma_eps2"]
    lower, upper = model.predict_interval(X[200:])
    assert np.all(np.mean((lower <= Y[200:]) & (Y[200:] <= upper), axis=0) > 0.8)
    assert model.predict_quantiles(X[200:], [0.1, 0.9]).shape == (60, 2, 2)
    assert model.log_density(X[200:], Y[200:]).shape == (60, 2)
    assert model.sample_y(X[200:], 3).shape == (60, 3, 2)
    model.save(tmp_path / "m.widegp")
    np.testing.assert_array_equal(widegp.load(tmp_path / "m.widegp").predict(X[200:]), mean)


def test_two_equal_outputs_predict_as_one_does():
    X, _, Y = table(80)
    plain = WideGPRegressor.plain(approximation="exact", random_state=0, priors=None)
    twice = plain.fit(X[:60], Y[:60, [0, 0]]).predict(X[60:])
    np.testing.assert_allclose(twice[:, 0], twice[:, 1], rtol=1e-6)
    once = WideGPRegressor.plain(approximation="exact", random_state=0, priors=None).fit(X[:60], Y[:60, 0])
    # Without priors the loss of two equal outputs is twice that of one, with the same optimum.
    np.testing.assert_allclose(twice[:, 0], once.predict(X[60:]), atol=1e-2 * np.std(Y[:, 0]))


def test_what_several_outputs_do_not_have_is_said():
    X, _, Y = table(30)
    with pytest.raises(ValueError, match="conformal=False"):
        WideGPRegressor(conformal=True).fit(X, Y)
    with pytest.raises(ValueError, match="no weights"):
        WideGPRegressor().fit(X, Y, sample_weight=np.ones(30))
