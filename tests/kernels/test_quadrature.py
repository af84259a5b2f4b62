"""Kernels of arbitrary activations against closed forms, fine two-dimensional grids and finite networks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import gaussian_moment, network_covariance, reference_gradient
from scipy.special import expit

from widegp.kernels import FromActivation, LeakyReLU, ReLU, Sigmoid, Tanh, exact_sigmoid, exact_tanh
from widegp.kernels.quadrature import check_activation


def erf_tanh(z):
    return jax.scipy.special.erf(jnp.sqrt(jnp.pi) / 2 * z)


def erf_sigmoid(z):
    return (1 + jax.scipy.special.erf(jnp.sqrt(jnp.pi) / 4 * z)) / 2


def softplus(z):
    return jax.nn.softplus(z)


def leaky(z):
    return jnp.where(z > 0, z, 0.3 * z)


# h, h', h'' in NumPy, apart from the package's own derivatives.
DERIVATIVES = {
    jnp.tanh: (
        np.tanh,
        lambda z: 1 - np.tanh(z) ** 2,
        lambda z: -2 * np.tanh(z) * (1 - np.tanh(z) ** 2),
    ),
    jax.nn.sigmoid: (
        expit,
        lambda z: expit(z) * expit(-z),
        lambda z: expit(z) * expit(-z) * (1 - 2 * expit(z)),
    ),
    softplus: (
        lambda z: np.logaddexp(0, z),
        expit,
        lambda z: expit(z) * expit(-z),
    ),
}

# (Var Z, Var Z', rho): zero rows, both sides of the switch at 4e-4, rho = +-1, variance 25.
MOMENTS = [
    (0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1e-9, 1.0, 0.5), (3.4e-4, 2.0, 1.0), (3.8e-4, 2.0, 1.0),
    (1e-3, 1e-3, -1.0), (1.0, 2.0, 0.3), (9.0, 0.5, -0.99), (1.0, 1.0, 1.0 - 1e-12),
    (20.0, 25.0, 0.999), (25.0, 25.0, 1.0), (25.0, 25.0, -1.0),
]  # fmt: skip

VARIANCES = {"sigma_a2": 0.8, "sigma_u2": np.array([0.7, 1.3, 0.4]), "sigma_b2": 0.6, "sigma_v2": 1.7}
x, y = np.array([0.126, -1.132, 0.640]), np.array([0.105, -0.536, 1.362])


@pytest.mark.parametrize("fn", DERIVATIVES, ids=["tanh", "sigmoid", "softplus"])
def test_moment_and_its_gradient_agree_with_a_fine_grid(fn):
    h, h1, h2 = DERIVATIVES[fn]
    with jax.enable_x64(True):
        d, e, rho = (jnp.asarray(v) for v in np.array(MOMENTS).T)
        c = rho * jnp.sqrt(d * e)
        kernel = FromActivation(fn)
        values = kernel.moment(c, d, e)
        slopes = jax.grad(lambda *a: kernel.moment(*a).sum(), argnums=(0, 1, 2))(c, d, e)
    for n, at in enumerate(zip(*map(np.asarray, (c, d, e)), strict=True)):
        price = [gaussian_moment(f, g, *at) for f, g in ((h, h), (h1, h1), (h2, h), (h, h2))]
        expected = [price[0], price[1], price[2] / 2, price[3] / 2]
        actual = [values[n], *(slope[n] for slope in slopes)]
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12, err_msg=str(at))


@pytest.mark.parametrize(
    ("fn", "closed"), [(erf_tanh, Tanh), (erf_sigmoid, Sigmoid)], ids=["tanh", "sigmoid"]
)
def test_erf_activations_give_the_closed_forms(fn, closed):
    X = np.random.default_rng(0).normal(size=(8, 3))
    X = np.vstack([X, X[0], -X[0], np.zeros(3), 3 * X[1]])
    for changed in ({}, {"sigma_a2": 0.0}):
        series, formula = FromActivation(fn, **VARIANCES | changed), closed(**VARIANCES | changed)
        np.testing.assert_allclose(series(X), formula(X), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(series.diag(X), formula.diag(X), rtol=1e-12)


@pytest.mark.parametrize(
    ("fn", "closed"),
    [
        pytest.param(jax.nn.relu, ReLU(), id="relu"),
        pytest.param(leaky, LeakyReLU(alpha=0.3), id="leaky_relu", marks=pytest.mark.slow),
    ],
)
def test_kinks_cost_accuracy_but_not_correctness(fn, closed):
    X = np.random.default_rng(0).normal(size=(12, 3))
    X[5] = X[4]
    np.testing.assert_allclose(FromActivation(fn)(X), closed(X), rtol=1e-4)
    with jax.enable_x64(True):
        rows = jnp.asarray(X)
        gradient = jax.jit(jax.grad(lambda k: k(rows).sum()))
        slopes = [gradient(k) for k in (FromActivation(fn), closed)]
    np.testing.assert_allclose(slopes[0].sigma_a2, slopes[1].sigma_a2, rtol=1e-3)
    np.testing.assert_allclose(slopes[0].sigma_u2, slopes[1].sigma_u2, rtol=1e-3)


PAIRS = {
    "generic": (x, y, {}),
    "duplicate": (x, x, {}),
    "1e-8 apart": (x, x + 1e-8 * y, {}),
    "opposite, no bias": (x, -x, {"sigma_a2": 0.0}),
    "zero row": (x, 0 * x, {}),
    "zero row, no bias": (x, 0 * x, {"sigma_a2": 0.0}),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_parameter_gradient_agrees_with_50_digits(pair):
    left, right, changed = PAIRS[pair]
    parameters = VARIANCES | changed
    with jax.enable_x64(True):
        kernel = jax.tree.map(jnp.asarray, FromActivation(erf_tanh, **parameters))
        slope = jax.grad(lambda k: k(jnp.asarray(left)[None], jnp.asarray(right)[None])[0, 0])(kernel)
    for key, expected in reference_gradient("tanh", left, right, parameters).items():
        np.testing.assert_allclose(getattr(slope, key), expected, rtol=1e-12, atol=1e-14, err_msg=key)


@pytest.mark.slow
def test_second_derivative_at_duplicate_opposite_and_zero_rows():
    with jax.enable_x64(True):
        rows = jnp.array([x, x, 0 * x, -x])
        by_series = jax.grad(jax.grad(lambda a: FromActivation(erf_tanh, sigma_a2=a)(rows).sum()))
        by_formula = jax.grad(jax.grad(lambda a: Tanh(sigma_a2=a)(rows).sum()))
        np.testing.assert_allclose(by_series(0.8), by_formula(0.8), rtol=1e-11)


@pytest.mark.parametrize(
    ("kernel", "h"), [(exact_tanh, np.tanh), (exact_sigmoid, expit)], ids=["exact_tanh", "exact_sigmoid"]
)
def test_ready_kernels_are_the_covariance_of_a_wide_network(kernel, h):
    X = np.vstack([np.random.default_rng(2).normal(size=(3, 3)), np.zeros(3)])
    sampled, error = network_covariance([(1.0, h)], X, VARIANCES, n_units=200_000, seed=6)
    assert np.all(np.abs(kernel.replace(**VARIANCES)(X) - sampled) <= 4 * error)
    assert np.all(error < 0.01 * sampled)  # narrow enough to see the 6% of erf


def test_erf_inflates_the_tanh_kernel_by_six_percent_at_unit_variance():
    one = np.ones((1, 1))
    parameters = {"sigma_a2": 0.0, "sigma_u2": 1.0, "sigma_b2": 0.0, "sigma_v2": 1.0}
    ratio = Tanh(**parameters)(one) / exact_tanh.replace(**parameters)(one)
    assert ratio[0, 0] == pytest.approx(1.06, abs=0.005)


def test_more_terms_reach_a_larger_variance():
    wide = {"sigma_a2": 0.0, "sigma_u2": 100.0, "sigma_b2": 0.0}
    expected = gaussian_moment(np.tanh, np.tanh, 100.0, 100.0, 100.0, nodes=1600)
    errors = [
        abs(FromActivation(jnp.tanh, terms=n, **wide).diag(np.ones((1, 1)))[0] - expected)
        for n in (640, 2560, 10240)
    ]
    assert errors[0] > 1e-6 > errors[1] > 1e-10
    assert errors[2] < 1e-12


def test_memory_does_not_hold_pairs_times_nodes():
    n = 256
    with jax.enable_x64(True):
        compiled = jax.jit(lambda k, X: k(X)).lower(exact_tanh, jnp.zeros((n, 2))).compile()
    nodes = 13 * np.sqrt(exact_tanh.terms)
    assert compiled.memory_analysis().temp_size_in_bytes < 8 * (8 * n * n + 8 * n * nodes)


def test_float32_gradient_agrees_with_float64():
    X = np.random.default_rng(7).normal(size=(5, 3))
    gradient = jax.jit(jax.grad(lambda k, rows: k(rows).mean()))
    single = gradient(exact_tanh, jnp.asarray(X, jnp.float32))
    with jax.enable_x64(True):
        double = gradient(exact_tanh, jnp.asarray(X))
    assert single.sigma_a2.dtype == jnp.float32 and double.sigma_a2.dtype == jnp.float64
    np.testing.assert_allclose(single.sigma_a2, double.sigma_a2, rtol=1e-5)
    np.testing.assert_allclose(single.sigma_u2, double.sigma_u2, rtol=1e-5)


def test_a_kernel_may_be_built_while_jax_is_tracing():
    X = np.random.default_rng(7).normal(size=(5, 3))

    def build_inside(sigma_a2):
        return FromActivation(lambda z: jnp.tanh(z), sigma_a2=sigma_a2)(jnp.asarray(X, jnp.float32))

    np.testing.assert_allclose(jax.jit(build_inside)(1.0), exact_tanh(X), rtol=2e-6)


@pytest.mark.parametrize(
    ("fn", "second_moment"),
    [
        (jnp.tanh, lambda v: gaussian_moment(np.tanh, np.tanh, v, v, v)),
        (jax.nn.sigmoid, lambda v: gaussian_moment(expit, expit, v, v, v)),
        (jax.nn.relu, lambda v: v / 2),
        (jnp.sign, lambda v: 1.0),
        (jnp.sin, lambda v: (1 - np.exp(-2 * v)) / 2),
        (jnp.exp, lambda v: np.exp(2 * v)),
        (lambda z: z**5, lambda v: 945 * v**5),
        (lambda z: 0 * z, lambda v: 0.0),
    ],
    ids=["tanh", "sigmoid", "relu", "sign", "sin", "exp", "z^5", "0"],
)
def test_activations_with_a_finite_second_moment_are_accepted_and_have_it(fn, second_moment):
    check_activation(fn)
    variances = np.array([0.3, 2.0])
    with jax.enable_x64(True):
        found = FromActivation(fn).moment(*[jnp.asarray(variances)] * 3)
    # A jump costs most digits: the moments of a step lack the terms beyond those of the series.
    accuracy = 0.01 if fn is jnp.sign else 1e-4
    np.testing.assert_allclose(found, [second_moment(v) for v in variances], rtol=accuracy)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda z: jnp.exp(z**2), "grows too fast"),
        (lambda z: jnp.exp(z**2 / 200), "grows too fast"),
        (lambda z: jnp.where(z < 0, jnp.exp(z**2 / 50), z), "grows too fast"),
        (jnp.log, "returns NaN at z = -8"),
        (jax.nn.softmax, "not elementwise"),
        (lambda z: z.sum(), r"not elementwise.*\(54,\) -> \(\)"),
        (np.tanh, "write it with jax.numpy"),
        (lambda z: z if z > 0 else 0, r"use jnp\.where"),
        (3.0, "got float"),
    ],
    ids=["exp(z^2)", "exp(z^2/200)", "left tail", "log", "softmax", "sum", "numpy", "branch", "number"],
)
def test_other_activations_are_refused_at_construction(fn, message):
    with pytest.raises(ValueError, match=message):
        FromActivation(fn)


@pytest.mark.parametrize("terms", [0, 12.5])
def test_terms_must_be_a_positive_integer(terms):
    with pytest.raises(ValueError, match="positive integer"):
        FromActivation(jnp.tanh, terms=terms)
