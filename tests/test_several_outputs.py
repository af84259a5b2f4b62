"""y of shape (n, T): inputs and metric are shared, all else is each output's own."""

from __future__ import annotations

import numpy as np
import pytest

import widegp
from widegp import WideGPRegressor
from widegp.inference.theta import FEW_ROWS
from widegp.several_fit import leading


def table(n, seed=0):
    """Two functions of the same inputs, the second five times as noisy, in other units."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = np.column_stack([np.sin(2 * X[:, 0]) + X[:, 1], np.cos(2 * X[:, 0]) - X[:, 1]])
    return X, f * [1.0, 100.0] + [0.0, 50.0], (f + rng.normal(size=(n, 2)) * [0.1, 0.5]) * [1, 100] + [0, 50]


@pytest.mark.parametrize("approximation", ["exact", "full-scale"])
def test_outputs_keep_their_units_and_noise(approximation, tmp_path):
    X, f, Y = table(260)
    model = WideGPRegressor.plain(approximation=approximation, rank=40, neighbors=10, random_state=0)
    model.fit(X[:200], Y[:200])
    mean, sd = model.predict(X[200:], return_std=True)
    assert mean.shape == sd.shape == (60, 2)
    error = np.sqrt(np.mean((mean - f[200:]) ** 2, axis=0)) / np.std(f, axis=0)
    assert np.all(error < 0.35)
    first, second = model.params_
    assert second["sigma_eps2"] > 4 * first["sigma_eps2"]
    lower, upper = model.predict_interval(X[200:])
    assert np.all(np.mean((lower <= Y[200:]) & (Y[200:] <= upper), axis=0) > 0.8)
    assert model.predict_quantiles(X[200:], [0.1, 0.9]).shape == (60, 2, 2)
    assert model.log_density(X[200:], Y[200:]).shape == (60, 2)
    assert model.sample_y(X[200:], 3).shape == (60, 3, 2)
    model.save(tmp_path / "m.widegp")
    loaded = widegp.load(tmp_path / "m.widegp")
    np.testing.assert_array_equal(loaded.predict(X[200:], return_std=True)[0], mean)


@pytest.mark.slow
def test_inputs_and_metric_are_shared_and_warps_are_not():
    rng = np.random.default_rng(3)
    n = FEW_ROWS + 20  # fewer rows are fitted with and without a variance for each input, and share no metric
    X = rng.normal(size=(n, 4))
    f = np.sin(2 * X[:, 0])
    other = np.exp(2 * f + 0.4 * rng.normal(size=n))
    Y = np.column_stack([f + 0.1 * rng.normal(size=n), other])
    model = WideGPRegressor(random_state=0, max_iter=30).fit(X, Y)
    first, second = model.fitted_
    np.testing.assert_array_equal(first.inputs.transform(X[:5]), second.inputs.transform(X[:5]))
    assert first.metric is not None, "one input of four matters"
    assert second.warp.name != "none" and first.params["sigma_eps2"] != second.params["sigma_eps2"]


def test_plain_outputs_are_those_of_one_fit_each():
    X, _, Y = table(80)
    plain = WideGPRegressor.plain(approximation="exact", random_state=0)
    together = plain.fit(X[:60], Y[:60]).predict(X[60:])
    each = [plain.fit(X[:60], y).predict(X[60:]) for y in Y[:60].T]
    np.testing.assert_allclose(together, np.stack(each, axis=1), rtol=1e-9)


def test_the_leading_component_has_unit_variance_and_takes_a_constant_output():
    Y = np.random.default_rng(0).normal(size=(50, 1)) * [1.0, 5.0, 0.0] + [0.0, 3.0, 7.0]
    lead = leading(Y)
    assert lead.std() == pytest.approx(1.0)
    assert abs(np.corrcoef(lead, Y[:, 0])[0, 1]) == pytest.approx(1.0)


def test_what_several_outputs_do_not_have_is_said():
    X, _, Y = table(30)
    with pytest.raises(ValueError, match="conformal=False"):
        WideGPRegressor(conformal=True).fit(X, Y)
    with pytest.raises(ValueError, match="no weights"):
        WideGPRegressor().fit(X, Y, sample_weight=np.ones(30))
