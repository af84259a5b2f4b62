"""Pictures: what is drawn is what the model says, read back from the axis."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm

import widegp
from widegp import WideGPRegressor, plot


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (160, 2))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=160)
    return X, y


@pytest.fixture(scope="module")
def model(rows):
    X, y = rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WideGPRegressor.plain(random_state=0).fit(X[:80], y[:80])


def test_predictions_count_rows_inside_and_outside(model, rows):
    X, y = rows[0][80:], rows[1][80:]
    ax = plot.predictions(model, X, y, level=0.8)
    lower, upper = model.predict_interval(X, 0.8)
    inside = (lower <= y) & (y <= upper)
    assert isinstance(ax, Axes) and f"{inside.mean():.1%}" in ax.get_title()
    points, others = ax.lines[:2]
    assert len(points.get_xdata()) == inside.sum() and len(others.get_xdata()) == (~inside).sum()
    np.testing.assert_array_equal(points.get_ydata(), y[inside])


def test_calibration_is_the_coverage_at_every_level(model, rows):
    X, y = rows[0][80:], rows[1][80:]
    drawn = plot.calibration(model, X, y).lines[1]
    for level, held in zip(*drawn.get_data(), strict=True):
        lower, upper = model.predict_interval(X, level)
        assert held == pytest.approx(np.mean((lower <= y) & (y <= upper)))


def test_residuals_are_standard_scores(model, rows):
    X, y = rows[0][80:], rows[1][80:]
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_allclose(plot.residuals(model, X, y).lines[0].get_ydata(), (y - mean) / sd, atol=1e-9)
    assert norm.ppf(0.975) == pytest.approx(plot.CHANCE, abs=1e-3)


@pytest.mark.parametrize("as_frame", [False, True])
def test_the_effect_is_the_mean_over_rows_with_one_input_set(rows, as_frame):
    X, y = rows
    X = pd.DataFrame(X, columns=["a", "b"]) if as_frame else X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = WideGPRegressor.plain(random_state=0, max_iter=5).fit(X[:80], y[:80])
    ax = plot.effect(model, X[:20], "b" if as_frame else 1, points=5)
    place, height = (values[3] for values in ax.lines[0].get_data())
    changed = np.array(X[:20], float)
    changed[:, 1] = place
    changed = pd.DataFrame(changed, columns=["a", "b"]) if as_frame else changed
    assert height == pytest.approx(model.predict(changed).mean())
    assert ax.get_xlabel() == ("b" if as_frame else "input 1")


def test_a_learning_curve_has_a_fit_for_every_size_on_the_axis_given(rows):
    given = Figure().subplots()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ax = plot.learning_curve(WideGPRegressor.plain(random_state=0), *rows, sizes=(0.2, 1.0), ax=given)
    counts, errors = ax.lines[0].get_data()
    assert ax is given and list(counts) == [25, 128] and errors[1] < errors[0]


def test_it_is_public_and_loaded_when_asked_for():
    assert "plot" in dir(widegp) and "plot" in widegp.__all__
