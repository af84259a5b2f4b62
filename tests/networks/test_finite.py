"""Finite networks against their own Monte Carlo: outputs, hidden layers, limits."""

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from widegp.kernels import (
    RBF,
    FromActivation,
    LeakyReLU,
    Matern12,
    Matern32,
    Matern52,
    Mixed,
    Mixture,
    RationalQuadratic,
    ReLU,
    Sigmoid,
    Tanh,
    exact_tanh,
)
from widegp.networks import BlockMixtureBNN, CosineBNN, ShallowBNN, finite, network_of
from widegp.networks.priors import excess_kurtosis, unit_draws

X = np.random.default_rng(7).normal(size=(5, 3))
SETTINGS = {"sigma_a2": 0.6, "sigma_u2": np.array([0.5, 1.5, 0.9]), "sigma_b2": 0.4, "sigma_v2": 1.8}
STATIONARY = {name: value for name, value in SETTINGS.items() if name != "sigma_a2"}
NETWORKS = {
    "tanh": ShallowBNN(3, "tanh", **SETTINGS),
    "sigmoid": ShallowBNN(3, "sigmoid", **SETTINGS),
    "relu": ShallowBNN(3, "relu", **SETTINGS),
    "leaky_relu": ShallowBNN(3, "leaky_relu", alpha=0.3, **SETTINGS),
    "function": ShallowBNN(3, jnp.sin, **SETTINGS),
    "blocks": BlockMixtureBNN(3, ("tanh", "relu", "leaky_relu"), (0.5, 0.2, 0.3), alpha=0.3, **SETTINGS),
    "cosine": CosineBNN(3, **STATIONARY),
    "cosine, df 1": CosineBNN(3, 1, **STATIONARY),
    "cosine, df 3": CosineBNN(3, 3, **STATIONARY),
    "cosine, df 5": CosineBNN(3, 5, **STATIONARY),
    "cosine, mixed": CosineBNN(3, mixing=0.6, **STATIONARY),
    "heavy output": ShallowBNN(3, "relu", output_prior="laplace", **SETTINGS),
}


def standard_errors(draws):
    """Of the entries of the mean of f f', from the draws (d, n) themselves."""
    products = draws[:, :, None] * draws[:, None, :]
    return products.std(axis=0) / np.sqrt(len(draws))


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_outputs_have_the_limit_covariance_at_any_width(network):
    f = network.draw(X, 20_000, 1)[:, :, 0]
    error = f.T @ f / len(f) - network.limit_kernel()(X)
    assert np.all(np.abs(error) < 5 * standard_errors(f))
    assert np.all(np.abs(f.mean(axis=0)) < 5 * f.std(axis=0) / np.sqrt(len(f)))


@pytest.mark.parametrize("output_prior", ["gaussian", "laplace"])
def test_hidden_moments_are_those_of_many_outputs_over_one_hidden_layer(output_prior):
    network = BlockMixtureBNN(
        4, ("tanh", "relu"), (0.3, 0.7), n_outputs=100_000, output_prior=output_prior, **SETTINGS
    )
    f = network.draw(X, 1, 11)[0].T
    moments = network.hidden_moments(X, 1, 11)
    covariance = moments.covariance[0]
    assert np.all(np.abs(f.T @ f / len(f) - covariance) < 5 * standard_errors(f))
    fourth = 3 * np.diagonal(covariance) ** 2 + excess_kurtosis(output_prior) * moments.quartic[0]
    assert np.all(np.abs((f**4).mean(0) - fourth) < 5 * (f**4).std(0) / np.sqrt(len(f)))
    np.testing.assert_array_equal(network.hidden_covariance(X, 11), covariance)


def test_outputs_share_the_hidden_layer_and_become_independent():
    def dependence(width):
        f = ShallowBNN(width, "relu", n_outputs=2, sigma_b2=0.0).draw(X[:1], 20_000, 3)[:, 0]
        assert abs(np.corrcoef(f.T)[0, 1]) < 0.04
        return stats.spearmanr(f[:, 0] ** 2, f[:, 1] ** 2).statistic

    assert dependence(1) > 0.4
    assert abs(dependence(300)) < 0.04


@pytest.mark.parametrize("build", [BlockMixtureBNN, CosineBNN, lambda width, **v: CosineBNN(width, 3, **v)])
@pytest.mark.parametrize("width", [7, 500])
def test_the_size_of_blocks_does_not_change_a_draw(monkeypatch, width, build):
    network = build(width, n_outputs=2, **STATIONARY)
    f, covariance = network.draw(X, 5, 0), network.hidden_moments(X, 5, 0).covariance
    monkeypatch.setattr(finite, "BLOCK_BYTES", 8_000)
    monkeypatch.setattr(finite, "_ROW_TILE", 2)
    np.testing.assert_allclose(network.draw(X, 5, 0), f, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(network.hidden_moments(X, 5, 0).covariance, covariance, rtol=1e-12)


def test_memory_does_not_grow_with_the_width():
    table = np.random.default_rng(0).normal(size=(2_000, 3))
    tracemalloc.start()
    ShallowBNN(20_000, "relu").draw(table, 1, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * finite.BLOCK_BYTES < 8 * 2_000 * 20_000


@pytest.mark.parametrize(
    ("prior", "reference"),
    [
        ("gaussian", stats.norm()),
        ("uniform", stats.uniform(-np.sqrt(3), 2 * np.sqrt(3))),
        ("laplace", stats.laplace(scale=np.sqrt(0.5))),
        (("student-t", 3), stats.t(3, scale=np.sqrt(1 / 3))),
        (("student-t", 9.0), stats.t(9, scale=np.sqrt(7 / 9))),
    ],
)
def test_priors_are_centred_with_unit_variance(prior, reference):
    assert reference.mean() == pytest.approx(0)
    assert reference.var() == pytest.approx(1)
    assert excess_kurtosis(prior) == pytest.approx(float(reference.stats("k")))
    draws = unit_draws(prior, np.random.default_rng(0), (20_000,))
    assert stats.kstest(draws, reference.cdf).pvalue > 0.01


KERNELS = {
    "tanh": Tanh(**SETTINGS),
    "sigmoid": Sigmoid(**SETTINGS),
    "relu": ReLU(**SETTINGS),
    "leaky": LeakyReLU(alpha=0.3, **SETTINGS),
    "mixed": Mixed(alpha=0.3, w=0.8, **SETTINGS),
    "mixed, smooth only": Mixed(w=1.0, **SETTINGS),
    "mixture": Mixture(("sigmoid", "mixed", LeakyReLU(alpha=0.5)), [1.0, 2.0, 3.0], **SETTINGS),
    "quadrature": FromActivation(jnp.sin, **SETTINGS),
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_the_network_of_a_kernel_has_it_as_its_limit(kernel):
    network = network_of(kernel, 100_000)
    np.testing.assert_allclose(network.limit_kernel()(X), kernel(X), rtol=1e-12)
    # Four standard errors of a mean over 100,000 units, whatever kernel object the network names.
    np.testing.assert_allclose(network.hidden_covariance(X, 0), kernel(X), rtol=0.04)


COSINE = [RBF, Matern12, Matern32, Matern52, RationalQuadratic]


@pytest.mark.parametrize("cls", COSINE)
def test_the_network_of_a_stationary_kernel_has_cosine_units(cls):
    kernel, width = cls(**STATIONARY), 200_000
    network = network_of(kernel, width)
    assert isinstance(network, CosineBNN)
    np.testing.assert_array_equal(network.limit_kernel()(X), kernel(X))
    # Var(2 cos cos') <= 3/2.
    error = kernel.sigma_v2 * np.sqrt(1.5 / width)
    assert np.abs(network.hidden_covariance(X, 0) - kernel(X)).max() < 5 * error
    others = [other(**STATIONARY)(X) for other in COSINE if other is not cls]
    assert all(np.abs(network.hidden_covariance(X, 0) - K).max() > 5 * error for K in others)


def test_variances_of_the_hidden_weights_of_a_rational_quadratic_are_gamma():
    """|u|^2 / sigma_u2 given tau is tau chi-squared; one tau per unit, of mean 1 and variance 1 / a."""
    a, n, n_inputs = 0.6, 20_000, 500
    layer = CosineBNN(1, mixing=a, sigma_u2=0.7)._hidden_layer((1, n), n_inputs, np.random.default_rng(0))[0]
    tau = (layer[:, 1:] ** 2).mean(1) / 0.7
    assert tau.mean() == pytest.approx(1, abs=5 / np.sqrt(a * n))
    # What a chi-squared of 500 degrees of freedom adds is small beside that.
    assert stats.kstest(tau, stats.gamma(a, scale=1 / a).cdf).statistic < 0.02


def test_hidden_weights_of_a_cosine_network_are_multivariate_t():
    """Each weight is a t variable, and |u|^2 / (I sigma_u2) an F variable: one chi-squared per unit."""
    network = CosineBNN(1, 3, sigma_u2=0.7)
    layer = network._hidden_layer((1, 20_000), 3, np.random.default_rng(0))[0]
    u = layer[:, 1:] / np.sqrt(0.7)
    assert stats.kstest(u[:, 1], stats.t(3).cdf).pvalue > 0.01
    assert stats.kstest((u**2).mean(1), stats.f(3, 3).cdf).pvalue > 0.01
    assert stats.kstest(layer[:, 0] / (2 * np.pi), "uniform").pvalue > 0.01


def test_tanh_converges_to_the_exact_kernel_not_to_the_erf_approximation():
    covariance = ShallowBNN(200_000, "tanh", sigma_b2=0.0).hidden_covariance(X, 0)
    exact, approximate = exact_tanh.replace(sigma_b2=0.0)(X), Tanh(sigma_b2=0.0)(X)
    assert np.linalg.norm(covariance - exact) / np.linalg.norm(exact) < 0.01
    assert np.linalg.norm(covariance - approximate) / np.linalg.norm(exact) > 0.03


def test_a_hidden_prior_that_is_not_gaussian_has_its_own_limit():
    network = ShallowBNN(8, "tanh", hidden_prior=("student-t", 3), sigma_b2=0.0)
    with pytest.raises(ValueError, match="limit_covariance"):
        network.limit_kernel()
    own, other = (network.limit_covariance(X, seed, 2**17) for seed in (0, 1))
    gaussian = exact_tanh.replace(sigma_b2=0.0)(X)
    noise = np.linalg.norm(own - other) / np.linalg.norm(own)
    assert np.linalg.norm(own - gaussian) / np.linalg.norm(gaussian) > 5 * noise


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ShallowBNN(0), "width must be a positive integer"),
        (lambda: ShallowBNN(4, n_outputs=0), "n_outputs must be a positive integer"),
        (lambda: ShallowBNN(4, "swish"), "Unknown activation 'swish'"),
        (lambda: ShallowBNN(4, lambda z: jnp.exp(z**2)), "grows too fast"),
        (
            lambda: ShallowBNN(4, lambda z: z**2, hidden_prior=("student-t", 3)),
            "E\\[h\\(Z\\)\\^2\\] is infinite",
        ),
        (lambda: ShallowBNN(4, jnp.exp, hidden_prior="laplace"), "E\\[h\\(Z\\)\\^2\\] is infinite"),
        (lambda: ShallowBNN(4, hidden_prior=("student-t", 2)), "df > 2 only"),
        (lambda: ShallowBNN(4, output_prior="student-t"), "df > 2 only"),
        (lambda: ShallowBNN(4, output_prior="cauchy"), "Unknown prior 'cauchy'"),
        (lambda: ShallowBNN(4, sigma_v2=-1.0), "cannot be negative"),
        (lambda: BlockMixtureBNN(4, ("tanh", "relu"), (0.5, 0.6)), "add up to 1"),
        (lambda: BlockMixtureBNN(4, ("tanh",), (0.5, 0.5)), "1 activations need as many weights"),
        (lambda: ShallowBNN(4).draw(X[0]), "tables of rows"),
        (lambda: CosineBNN(4, 2), "degrees_of_freedom must be one of inf, 1, 3, 5; got 2"),
        (lambda: CosineBNN(4, 3, mixing=1.0), "mixing is a positive number, of weights with infinite"),
        (lambda: network_of(RBF() + Tanh(), 4), "No network with the limit Sum is known"),
        (lambda: network_of(Mixture((LeakyReLU(alpha=0.1), LeakyReLU(alpha=0.2))), 4), "one alpha"),
    ],
)
def test_mistakes_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_relu_has_a_finite_second_moment_under_student_t():
    """Weights are symmetric and have variances: E[relu(z)^2] = E[z^2] / 2, far though their tails reach."""
    network = ShallowBNN(300_000, "relu", hidden_prior=("student-t", 3), **SETTINGS)
    second = SETTINGS["sigma_a2"] + X**2 @ SETTINGS["sigma_u2"]
    expected = SETTINGS["sigma_b2"] + SETTINGS["sigma_v2"] * second / 2
    # z^2 has no variance: its mean over n units errs by some n^(-1/3).
    np.testing.assert_allclose(np.diag(network.hidden_covariance(X, 0)), expected, rtol=0.05)
