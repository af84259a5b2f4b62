"""The scikit-learn kernels against 50-digit references, scikit-learn's own checks and our own regressor."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from oracles import naive_kernel, reference_gradient
from scipy.optimize import approx_fprime
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

from widegp import WideGPRegressor
from widegp.sklearn_kernels import LeakyReLU, Mixed, ReLU, Sigmoid, Tanh

VARIANCES = {"sigma_a2": 0.8, "sigma_u2": 0.4, "sigma_b2": 0.6, "sigma_v2": 1.7}
ARD = VARIANCES | {"sigma_u2": np.array([0.7, 1.3])}
NAMES = {Tanh: "tanh", Sigmoid: "sigmoid", ReLU: "relu", LeakyReLU: "leaky_relu", Mixed: "mixed"}
EXTRA: dict[type, dict] = {LeakyReLU: {"alpha": 0.2}, Mixed: {"alpha": 0.3, "w": 0.4}}

one_of_each = pytest.mark.parametrize("family", NAMES, ids=NAMES.values())
variances = pytest.mark.parametrize("variances", [VARIANCES, ARD], ids=["one sigma_u2", "ard"])


def parameters_of(family, variances):
    return variances | EXTRA.get(family, {})


def rows(n=5, n_inputs=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, n_inputs))


def awkward_rows():
    """Duplicate, opposite and zero rows beside ordinary ones."""
    X = rows(2)
    return np.vstack([X, X[0], -X[1], np.zeros(2)])


@one_of_each
@variances
def test_values_agree_with_50_digits(family, variances):
    X, Y, parameters = awkward_rows(), rows(4, seed=1), parameters_of(family, variances)
    kernel, name = family(**parameters), NAMES[family]
    np.testing.assert_allclose(kernel(X), naive_kernel(name, X, X, parameters), rtol=1e-12)
    np.testing.assert_allclose(kernel(X, Y), naive_kernel(name, X, Y, parameters), rtol=1e-12)
    np.testing.assert_allclose(kernel.diag(X), np.diag(naive_kernel(name, X, X, parameters)), rtol=1e-12)


@one_of_each
@variances
def test_gradient_is_that_of_log_parameters_to_12_digits(family, variances):
    X, parameters = awkward_rows(), parameters_of(family, variances)
    kernel = family(**parameters)
    K, gradient = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(K, kernel(X), rtol=1e-14)
    assert gradient.shape == (len(X), len(X), kernel.n_dims)
    for i, x in enumerate(X):
        for j, y in enumerate(X[: i + 1]):
            slopes = reference_gradient(NAMES[family], x, y, parameters)
            expected = np.hstack([slopes[h.name] * parameters[h.name] for h in kernel.hyperparameters])
            np.testing.assert_allclose(gradient[i, j], expected, rtol=1e-11, atol=1e-13, err_msg=f"{i}, {j}")
            np.testing.assert_allclose(gradient[j, i], gradient[i, j], rtol=1e-13, atol=1e-14)


CHECKS = (
    "test_kernel_gradient", "test_auto_vs_cross", "test_kernel_diag", "test_kernel_clone",
    "test_kernel_clone_after_set_params", "test_kernel_input_type", "test_kernel_versus_pairwise",
    "test_set_get_params", "test_repr_kernels",
)  # fmt: skip


@one_of_each
@pytest.mark.parametrize("check", CHECKS)
def test_scikit_learns_own_kernel_checks(family, check):
    suite = pytest.importorskip("sklearn.gaussian_process.tests.test_kernels")
    plain = family(**parameters_of(family, VARIANCES))
    for kernel in (plain, 2.0 * plain + family(), plain**2):
        getattr(suite, check)(kernel)
    if check not in ("test_kernel_clone", "test_kernel_clone_after_set_params"):
        getattr(suite, check)(family(**parameters_of(family, ARD)))  # their == has no truth for vectors


@one_of_each
@variances
def test_theta_holds_the_logarithms_and_leaves_out_what_is_fixed(family, variances):
    X, kernel = rows(), family(**parameters_of(family, variances))
    _, gradient = kernel(X, eval_gradient=True)
    start = 0
    for h in kernel.hyperparameters:
        own = slice(start, start := start + h.n_elements)
        np.testing.assert_allclose(kernel.theta[own], np.log(getattr(kernel, h.name)), rtol=1e-15)
        fixed = clone(kernel).set_params(**{f"{h.name}_bounds": "fixed"})
        np.testing.assert_array_equal(fixed.theta, np.delete(kernel.theta, own))
        np.testing.assert_array_equal(fixed.bounds, np.delete(kernel.bounds, own, axis=0))
        np.testing.assert_allclose(fixed(X, eval_gradient=True)[1], np.delete(gradient, own, 2), rtol=1e-13)
    all_fixed = clone(kernel).set_params(**{f"{h.name}_bounds": "fixed" for h in kernel.hyperparameters})
    assert all_fixed(X, eval_gradient=True)[1].shape == (5, 5, 0)


@one_of_each
def test_theta_moves_every_parameter_to_its_place(family):
    kernel = family(**parameters_of(family, ARD))
    theta = np.log(np.linspace(0.1, 0.9, kernel.n_dims))
    moved = kernel.clone_with_theta(theta)
    np.testing.assert_allclose(moved.theta, theta)
    values = np.hstack([getattr(moved, h.name) for h in kernel.hyperparameters])
    np.testing.assert_allclose(values, np.linspace(0.1, 0.9, kernel.n_dims))
    assert kernel == family(**parameters_of(family, ARD)) != moved


def test_fractions_stay_inside_the_unit_interval():
    low, high = np.exp(Mixed(sigma_u2=[1.0, 1.0]).bounds[-2:]).T
    assert np.all(low > 0) and np.all(high < 1)


def test_repr_names_the_parameters():
    assert repr(LeakyReLU(sigma_u2=[1, 2.5])) == (
        "LeakyReLU(sigma_a2=1., sigma_u2=[1. , 2.5], sigma_b2=1., sigma_v2=1., alpha=0.1)"
    )


def test_wrong_number_of_inputs_and_gradient_of_a_cross_matrix_say_what_to_do():
    with pytest.raises(ValueError, match="sigma_u2 has 2 entries but the rows have 3 inputs; pass one"):
        Mixed(sigma_u2=[1.0, 2.0])(rows(4, 3))
    with pytest.raises(ValueError, match="leave out Y"):
        Mixed()(rows(), rows(), eval_gradient=True)


def test_pickles():
    kernel = Mixed(sigma_u2=np.array([0.2, 0.3])) + WhiteKernel()
    assert pickle.loads(pickle.dumps(kernel)) == kernel


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(1.5 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=n)


@one_of_each
@variances
def test_predictions_agree_with_the_packages_regressor_at_the_same_parameters(family, variances):
    (X, y), X_new = table(), rows(15, seed=9)
    parameters, noise = parameters_of(family, variances), 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no iteration is asked for, so none converges
        ours = WideGPRegressor.plain(
            kernel=NAMES[family], approximation="exact", priors=None, scale_inputs=None, max_iter=0,
            ard=np.ndim(parameters["sigma_u2"]) > 0, start=parameters | {"sigma_eps2": noise},
        ).fit(X, y)  # fmt: skip
    for name, value in parameters.items():
        np.testing.assert_allclose(ours.params_[name], value, rtol=1e-12)
    theirs = GaussianProcessRegressor(
        family(**parameters) + WhiteKernel(noise), alpha=0.0, optimizer=None, normalize_y=True
    ).fit(X, y)
    for got, expected in zip(ours.predict(X_new, True), theirs.predict(X_new, True), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-8)


def test_gradient_of_the_likelihood_agrees_with_differences():
    X, y = table(30)
    kernel = ConstantKernel(0.5) * Mixed(sigma_u2=[0.4, 0.8]) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    _, gradient = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    differences = approx_fprime(kernel.theta, model.log_marginal_likelihood, 1e-6)
    np.testing.assert_allclose(gradient, differences, rtol=1e-4, atol=1e-4)


def test_a_fit_moves_the_parameters_up_the_likelihood_and_predicts():
    X, y = table(80)
    kernel = Mixed(sigma_u2=[0.5, 0.5]) + WhiteKernel(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flat directions end at their bounds
        model = GaussianProcessRegressor(kernel).fit(X, y)
    assert model.log_marginal_likelihood_value_ > model.log_marginal_likelihood(kernel.theta) + 5
    assert 0.05**2 < model.kernel_.k2.noise_level < 0.2**2
    X_new, y_new = table(200, seed=1)
    assert np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2)) < 0.2
