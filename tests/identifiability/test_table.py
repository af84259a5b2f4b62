"""The report on a user's own table."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit

from widegp import WideGPRegressor
from widegp.identifiability import identify_table
from widegp.identifiability.coordinates import coordinates
from widegp.identifiability.objectives import prior_curvature
from widegp.inference.priors import Beta, InverseGamma
from widegp.kernels import Mixed


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 3)) * [1.0, 10.0, 0.1] + 5
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1] + 0.3 * rng.normal(size=250)
    return X, y


@pytest.fixture(scope="module")
def model(data):
    return WideGPRegressor.plain(random_state=0).fit(*data)


def test_the_report_of_a_fitted_model(data, model):
    report = identify_table(*data, model)
    values = {p.name: p.value for p in report.parameters}
    assert values == pytest.approx({k: float(v) for k, v in model.params_.items()})
    for p in report.parameters:
        # Priors can only add: no parameter is known worse with them.
        assert 0 < p.log_standard_error <= p.data_alone * (1 + 1e-9)
    assert report.profile is not None and report.profile.curve.min() == 0
    text = report.describe()
    assert all(name in text for name in values)
    assert "Condition number" in text and f"Profile of {report.profile.name}" in text
    assert json.loads(json.dumps(report.to_dict()))["profile"]["name"] == report.profile.name


def test_standard_errors_agree_with_the_curvature_of_the_fit(data, model):
    # The fit's own errors come from the observed curvature; the noise is where both must nearly agree.
    report = identify_table(*data, model, with_profile=False)
    errors = {p.name: p.standard_error for p in report.parameters}
    assert errors["sigma_eps2"] == pytest.approx(model.result_.standard_errors["sigma_eps2"], rel=0.2)
    assert report.profile is None


def test_without_a_model_one_is_fitted_and_a_parameter_can_be_chosen(data):
    X, y = data
    report = identify_table(X[:80], y[:80], parameter="sigma_eps2", kernel="relu", scale_inputs="minmax")
    assert [p.name for p in report.parameters][-1] == "sigma_eps2"
    assert "alpha" not in report.describe()
    assert report.profile.name == "sigma_eps2"
    low, high = report.profile.interval
    assert low < report.profile.estimate < high


def test_more_rows_than_the_profile_takes_are_sampled_and_said(data, model):
    report = identify_table(*data, model, max_rows=100, parameter="sigma_eps2")
    assert any("100 of 250 rows" in note for note in report.notes)


def test_settings_beside_a_fitted_model_are_refused(data, model):
    with pytest.raises(ValueError, match="ard would need a fit"):
        identify_table(*data, model, ard=True)


def test_prior_curvature_equals_second_differences():
    kernel = Mixed(sigma_v2=0.4, w=0.3)
    priors = {"sigma_v2": InverseGamma(1.5, 2.0), "w": Beta(2.0, 3.0), "sigma_eps2": InverseGamma(1.0, 0.5)}
    found = dict(zip((at := coordinates(kernel, 0.2)).names, prior_curvature(at, priors), strict=True))

    def second(f, z, h=1e-3):
        return (f(z + h) - 2 * f(z) + f(z - h)) / h**2

    variance = second(lambda z: 2.5 * z + 2.0 * np.exp(-z), np.log(0.4))
    assert found["sigma_v2"] == pytest.approx(variance, rel=1e-4)
    assert found["sigma_eps2"] == pytest.approx(second(lambda z: 0.5 * np.exp(-z), np.log(0.2)), rel=1e-4)
    logit = np.log(0.3 / 0.7)
    beta = second(lambda z: -np.log(expit(z)) - 2 * np.log(expit(-z)), logit)
    assert found["w"] == pytest.approx(beta, rel=1e-4)
    assert found["alpha"] == 0
