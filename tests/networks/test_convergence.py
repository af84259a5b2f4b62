"""The rates of the theorem: covariance given the hidden layer as H^-1/2, excess kurtosis as H^-1."""

import numpy as np
import pytest

from widegp.kernels import exact_tanh
from widegp.networks import BlockMixtureBNN, CosineBNN, ShallowBNN, convergence_study

X = np.random.default_rng(0).normal(size=(6, 4))
WIDTHS = [16, 32, 64, 128, 256, 512]


FACTORIES = {
    "tanh": lambda H: ShallowBNN(H, "tanh"),
    "sigmoid": lambda H: ShallowBNN(H, "sigmoid"),
    "relu": lambda H: ShallowBNN(H, "relu"),
    "leaky relu": lambda H: ShallowBNN(H, "leaky_relu", alpha=0.2),
    "blocks": lambda H: BlockMixtureBNN(H, ("tanh", "leaky_relu"), (0.4, 0.6), alpha=0.3),
    "K_mix": lambda H: BlockMixtureBNN(H, ("erf", "leaky_relu"), (0.5, 0.5), alpha=0.5),
    "cosine": lambda H: CosineBNN(H),
    "cosine, df 1": lambda H: CosineBNN(H, 1),
    "student-t(3) hidden": lambda H: ShallowBNN(H, "tanh", hidden_prior=("student-t", 3)),
    "uniform hidden, laplace output": lambda H: ShallowBNN(
        H, "tanh", hidden_prior="uniform", output_prior="laplace"
    ),
}


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_covariance_and_kurtosis_fall_at_the_rates_of_the_theorem(factory):
    study = convergence_study(factory, WIDTHS, X, n_draws=200, seed=1)
    assert -0.6 < study.slope("covariance_error").value < -0.4
    assert -1.2 < study.slope("excess_kurtosis").value < -0.8
    assert study.slope("covariance_error").standard_error < 0.03
    assert study.slope("excess_kurtosis").standard_error < 0.08


def test_a_network_that_does_not_widen_does_not_converge():
    study = convergence_study(lambda H: ShallowBNN(64, "relu"), WIDTHS, X, n_draws=200)
    assert abs(study.slope("covariance_error").value) < 0.1
    assert abs(study.slope("excess_kurtosis").value) < 0.2


def test_student_t_weights_do_not_approach_the_gaussian_kernel():
    network = ShallowBNN(4096, "tanh", hidden_prior=("student-t", 3), sigma_b2=0.0)
    C = network.hidden_moments(X, 40, 0).covariance
    own, gaussian = network.limit_covariance(X), exact_tanh.replace(sigma_b2=0.0)(X)

    def error(K):
        return np.sqrt(np.mean(np.sum((C - K) ** 2, axis=(1, 2)))) / np.linalg.norm(K)

    assert error(own) < 0.03
    assert error(gaussian) > 2 * error(own)


@pytest.mark.parametrize("output_prior", ["gaussian", "uniform", "laplace"])
def test_kurtosis_without_output_weights_agrees_with_plain_draws(output_prior):
    study = convergence_study(
        lambda H: ShallowBNN(H, "relu", output_prior=output_prior), [2, 6], X, n_draws=20_000
    )
    gap = np.abs(study.excess_kurtosis - study.sampled_kurtosis)
    assert np.all(gap < 4 * study.sampled_kurtosis_error)
    assert np.all(study.sampled_kurtosis_error < 0.5 * np.abs(study.sampled_kurtosis))


def test_the_output_bias_does_not_enter():
    plain, biased = (
        convergence_study(lambda H, b=b: ShallowBNN(H, "relu", sigma_b2=b), [8, 16, 32], X, 50)
        for b in (0.0, 100.0)
    )
    np.testing.assert_allclose(biased.excess_kurtosis, plain.excess_kurtosis)
    np.testing.assert_allclose(biased.covariance_error, plain.covariance_error)


def test_projections_and_energy_tell_a_narrow_network_from_a_wide_one():
    study = convergence_study(lambda H: ShallowBNN(H, "relu"), [1, 400], X, n_draws=2_000)
    narrow, wide = study.energy_distance
    assert narrow > 3 * study.energy_floor > 0
    assert wide < 1.5 * study.energy_floor
    assert study.rejected[0] == 1
    assert study.rejected[1] < 0.4
    assert study.ks_distance[0] > 3 * study.ks_distance[1]


def test_an_infinite_fourth_moment_has_no_slope():
    study = convergence_study(
        lambda H: ShallowBNN(H, "tanh", output_prior=("student-t", 3)), [8, 16, 32], X, n_draws=20
    )
    assert np.all(np.isinf(study.excess_kurtosis))
    with pytest.raises(ValueError, match="no log-log slope"):
        study.slope("excess_kurtosis")
    assert np.isfinite(study.slope("covariance_error").value)


def test_a_study_needs_widths_and_draws():
    with pytest.raises(ValueError, match="at least 4 draws"):
        convergence_study(ShallowBNN, [], X)


def test_the_plot_shows_every_width():
    study = convergence_study(FACTORIES["relu"], [8, 16, 32], X, n_draws=50)
    figure = study.plot()
    assert len(figure.axes) == 3
    for axes, values in zip(figure.axes, (study.covariance_error, study.excess_kurtosis), strict=False):
        x, y = axes.lines[0].get_data()
        np.testing.assert_array_equal(x, study.widths)
        np.testing.assert_allclose(y, values)
        assert axes.get_xlabel() == "width H"
