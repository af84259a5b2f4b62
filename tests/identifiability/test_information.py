"""Fisher information against finite differences, simulated scores and the chain rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from widegp.identifiability import Blocks, fisher_information, four_components, plot_spectra
from widegp.identifiability.coordinates import coordinates
from widegp.identifiability.derivatives import Covariance, conditional_information, whiten
from widegp.kernels import LeakyReLU, Mixed, Mixture, ReLU

NAMES = ("sigma_a2", "sigma_u2", "sigma_b2", "sigma_v2", "alpha", "w", "sigma_eps2")


def uniform(n, n_inputs, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, (n, n_inputs))


def mixed(theta):
    return Mixed(**dict(zip(NAMES[:-1], theta, strict=True)))


def information_by_differences(covariance, theta):
    """tr(S^-1 dS_j S^-1 dS_k) / 2 with central differences and a plain inverse."""
    inverse = np.linalg.inv(covariance(theta))
    products = []
    for j in range(len(theta)):
        step = np.zeros_like(theta)
        step[j] = 1e-5
        products.append(inverse @ (covariance(theta + step) - covariance(theta - step)) / 2e-5)
    return np.array([[np.trace(a @ b) / 2 for b in products] for a in products])


def test_the_exact_matrix_equals_finite_differences():
    X = uniform(40, 3)
    theta = np.array([0.7, 1.4, 0.5, 2.0, 0.3, 0.6, 0.2])
    found = fisher_information(mixed(theta[:-1]), theta[-1], X, "exact")
    expected = information_by_differences(lambda t: mixed(t[:-1])(X) + t[-1] * np.eye(40), theta)
    assert found.names == NAMES
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-6)


def test_a_mixture_has_its_slope_and_all_weights_but_the_last():
    X = uniform(40, 3)
    theta = np.array([1.2, 0.8, 0.5, 1.5, 0.3, 0.2, 0.35, 0.25, 0.1])

    def covariance(t):
        parts = ["tanh", "sigmoid", "relu", LeakyReLU(alpha=t[4])]
        variances = dict(zip(NAMES[:4], t[:4], strict=True))
        weights = [*t[5:8], 1 - t[5:8].sum()]
        return Mixture(parts, weights, **variances)(X) + t[8] * np.eye(40)

    parts = ["tanh", "sigmoid", "relu", LeakyReLU(alpha=0.3)]
    kernel = Mixture(parts, [0.2, 0.35, 0.25, 0.2], **dict(zip(NAMES[:4], theta[:4], strict=True)))
    found = fisher_information(kernel, 0.1, X, "exact")
    assert found.names[4:] == ("alpha", "w_tanh", "w_sigmoid", "w_relu", "sigma_eps2")
    expected = information_by_differences(covariance, theta)
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-5, atol=1e-9)


def test_one_variance_per_input_is_one_parameter_per_input():
    X = uniform(40, 3)
    found = fisher_information(ReLU(sigma_u2=np.array([0.5, 1.0, 2.0])), 0.1, X, "exact")
    assert found.names[1:4] == ("sigma_u2[0]", "sigma_u2[1]", "sigma_u2[2]")
    common = fisher_information(ReLU(sigma_u2=1.0), 0.1, X * np.sqrt([0.5, 1.0, 2.0]), "exact")
    # Moving all of them by one factor is moving the common one.
    ones = np.array([0, 1, 1, 1, 0, 0, 0])
    assert ones @ found.log_matrix @ ones == pytest.approx(common.log_matrix[1, 1], rel=1e-9)


def test_the_matrix_is_the_covariance_of_simulated_scores():
    X, rng = uniform(40, 3), np.random.default_rng(1)
    kernel, noise = Mixed(), 0.1
    S = kernel(X) + noise * np.eye(40)
    draws = np.linalg.cholesky(S) @ rng.normal(size=(40, 40_000))
    weighted = np.linalg.solve(S, draws)
    scores = []
    for step in (dict(sigma_v2=1.0), dict(w=0.5)):
        name, value = next(iter(step.items()))
        dS = (kernel.replace(**{name: value + 1e-5})(X) - kernel.replace(**{name: value - 1e-5})(X)) / 2e-5
        scores.append((weighted * (dS @ weighted)).sum(0) / 2)
    found = fisher_information(kernel, noise, X, "exact")
    at = [NAMES.index("sigma_v2"), NAMES.index("w")]
    np.testing.assert_allclose(np.cov(scores), found.matrix[np.ix_(at, at)], rtol=0.04)


def test_log_scale_standard_errors_follow_the_chain_rule():
    found = fisher_information(Mixed(sigma_v2=3.0, w=0.2), 0.1, uniform(40, 3), "exact")
    inverse = np.linalg.inv(found.matrix)
    errors, logs = found.standard_errors(), found.log_standard_errors()
    assert errors["sigma_v2"] == pytest.approx(np.sqrt(inverse[3, 3]), rel=1e-6)
    assert logs["sigma_v2"] == pytest.approx(errors["sigma_v2"] / 3.0)
    assert logs["w"] == pytest.approx(errors["w"] / (0.2 * 0.8))


def test_log_coordinates_of_weights_match_differences():
    at = coordinates(four_components(alpha=0.3, sigma_v2=2.0), 0.1)
    steps = 1e-6 * np.eye(len(at.names))
    numeric = np.array([(at.moved(s) - at.moved(-s)) / 2e-6 for s in steps]).T
    np.testing.assert_allclose(at.slopes(), numeric, atol=1e-9)


def test_rows_add_what_they_tell_given_the_others():
    X = uniform(40, 3)
    covariance = Covariance(coordinates(Mixed(), 0.1))
    joint = whiten(covariance, X).information()
    given = whiten(covariance, X[:25])
    added = conditional_information(covariance, given, X[25:])
    np.testing.assert_allclose(given.information() + added, joint, rtol=1e-8)


@pytest.mark.parametrize("n_inputs", [3, 20])
def test_blocks_agree_with_the_exact_information(n_inputs):
    X = uniform(800, n_inputs)
    exact = fisher_information(Mixed(), None, X, "exact")
    blocks = fisher_information(Mixed(), None, X, "blocks", Blocks(rank=400, block_rows=100, max_blocks=None))
    ratio = [blocks.log_standard_errors()[n] / exact.log_standard_errors()[n] for n in NAMES]
    np.testing.assert_allclose(ratio, 1.0, atol=0.12)
    assert blocks.condition_number == pytest.approx(exact.condition_number, rel=0.15)
    assert "400 shared rows, 4 of 4 blocks" in blocks.approximation


def test_a_sample_of_blocks_stands_for_all():
    X = uniform(800, 3)
    dials = Blocks(rank=400, block_rows=50, seed=3)
    every = fisher_information(Mixed(), None, X, "blocks", replace(dials, max_blocks=None))
    some = fisher_information(Mixed(), None, X, "blocks", replace(dials, max_blocks=4))
    np.testing.assert_allclose(np.diag(some.matrix), np.diag(every.matrix), rtol=0.15)


@pytest.mark.parametrize("n_inputs", [5, 20])
def test_four_components_are_orders_of_magnitude_worse_than_two(n_inputs):
    X = uniform(400, n_inputs)
    reduced = fisher_information(Mixed(), None, X, "exact")
    four = fisher_information(four_components(alpha=0.5), None, X, "exact")
    # With a free slope nothing can tell ReLU, leaky ReLU and slope apart; with a known one hardly anything.
    assert four.condition_number == np.inf
    assert four.standard_errors()["alpha"] == np.inf
    known = four.holding("alpha")
    assert np.isfinite(known.condition_number)
    assert known.condition_number > 300 * reduced.condition_number
    assert known.condition_number > 300 * reduced.holding("alpha").condition_number


def test_more_inputs_under_a_uniform_design_tell_less():
    numbers = [fisher_information(Mixed(), None, uniform(400, i), "exact").condition_number for i in (20, 80)]
    assert numbers[1] > 10 * numbers[0]


def test_the_weakest_direction_says_what_trades_off():
    # Nearly all angular: sigma_a2 and sigma_u2 together against sigma_v2 is the homogeneity of the ReLU.
    found = fisher_information(Mixed(w=1e-4, alpha=0.2), None, uniform(400, 5), "exact").holding("w")
    direction = found.weakest(1)[0]
    loadings = direction.loadings
    assert loadings["sigma_a2"] == pytest.approx(loadings["sigma_u2"], abs=0.05)
    assert loadings["sigma_v2"] == pytest.approx(-loadings["sigma_u2"], abs=0.05)
    assert "up with" in str(direction)
    assert all(name in str(direction) for name in ("sigma_a2", "sigma_u2", "sigma_v2"))
    assert direction.sd == pytest.approx(direction.eigenvalue**-0.5)


def test_known_parameters_leave_the_matrix_of_the_others():
    found = fisher_information(Mixed(), 0.1, uniform(40, 3), "exact")
    held = found.holding("alpha", "sigma_b2")
    keep = [0, 1, 3, 5, 6]
    np.testing.assert_allclose(held.matrix, found.matrix[np.ix_(keep, keep)])
    np.testing.assert_allclose(held.log_matrix, found.log_matrix[np.ix_(keep, keep)])
    with pytest.raises(ValueError, match="choose from sigma_a2"):
        found.holding("sigma_eps2")


def test_the_default_noise_is_the_papers():
    X = uniform(40, 3)
    found = fisher_information(Mixed(), None, X)
    assert found.coordinates.noise == pytest.approx(0.04 * np.mean(np.diag(Mixed()(X))))


def test_bad_requests_get_a_sentence():
    X = uniform(40, 3)
    with pytest.raises(ValueError, match="w = 1 lies on the edge"):
        fisher_information(Mixed(w=1.0), 0.1, X)
    with pytest.raises(ValueError, match="Unknown approximation 'nystrom'"):
        fisher_information(Mixed(), 0.1, X, "nystrom")
    with pytest.raises(ValueError, match="pass fewer rows, or approximation='blocks'"):
        fisher_information(Mixed(), 0.1, np.zeros((8000, 1)), "exact")
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3, column 1"):
        fisher_information(Mixed(), 0.1, X)


def test_a_result_is_plain_and_can_be_drawn():
    import json

    found = fisher_information(Mixed(), 0.1, uniform(40, 3))
    assert json.loads(json.dumps(found.to_dict()))["names"] == list(NAMES)
    figure = plot_spectra({"two": found, "four": fisher_information(four_components(), 0.1, uniform(40, 3))})
    assert [len(line.get_xdata()) for line in figure.axes[0].lines[:2]] == [7, 9]
