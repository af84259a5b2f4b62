"""Inputs by rank and linear maps of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm, rankdata

from widegp.data.input_maps import (
    ChainedMaps,
    LinearMap,
    QuantileScaler,
    each_transformed,
    fit_scaler,
)
from widegp.data.preprocessing import InputScaler


def table(seed=0, n=400):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.lognormal(size=n), rng.poisson(2, n), rng.normal(size=n), np.full(n, 3.5)])


def test_scores_are_the_normal_scores_of_mean_ranks():
    X = table()
    out = QuantileScaler.fit(X).transform(X)
    for j in range(3):
        scores = norm.ppf((rankdata(X[:, j]) - 0.5) / len(X))
        expected = (scores - scores.mean()) / scores.std()
        np.testing.assert_allclose(out[:, j], expected, rtol=1e-9, atol=1e-9)
    assert np.all(out[:, 3] == 0)


def test_many_values_need_few_knots():
    x = np.random.default_rng(1).lognormal(size=(20_000, 1))
    scaler = QuantileScaler.fit(x)
    assert len(scaler.knots) <= 512
    scores = norm.ppf((rankdata(x[:, 0]) - 0.5) / len(x))
    np.testing.assert_allclose(scaler.transform(x)[:, 0], scores, atol=0.02)


def test_two_values_become_what_standardising_makes_of_them():
    x = np.array([[0.0]] * 9 + [[1.0]])
    expected = InputScaler.fit(x).transform(x)
    np.testing.assert_allclose(QuantileScaler.fit(x).transform(x), expected, rtol=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    arrays(float, st.integers(2, 30), elements=st.floats(-1e6, 1e6, width=32)),
    arrays(float, 20, elements=st.floats(-1e7, 1e7, width=32)),
)
def test_order_is_kept_and_the_way_back_is_exact_inside_and_outside(column, new):
    scaler = QuantileScaler.fit(column[:, None])
    new = np.sort(np.concatenate([new, column]))[:, None]
    out = scaler.transform(new)
    assert np.all(np.isfinite(out)) and np.all(np.diff(out[:, 0]) >= 0)
    # Knots may be as close as rounding allows; between such two, x comes back to within their size.
    np.testing.assert_allclose(scaler.inverse(out), new, rtol=1e-6, atol=1e-6 * max(1.0, np.abs(new).max()))


def test_beyond_the_training_rows_the_score_goes_on_straight():
    x = np.linspace(0, 1, 101)[:, None] ** 3
    scaler = QuantileScaler.fit(x)
    out = scaler.transform(np.array([[1.0], [2.0], [3.0], [-1.0], [-2.0], [-3.0]]))[:, 0]
    assert out[1] - out[0] == pytest.approx(out[2] - out[1]) and out[1] > out[0]
    assert out[3] - out[4] == pytest.approx(out[4] - out[5]) and out[4] < out[3]


def test_values_apart_by_rounding_do_not_send_new_rows_to_infinity():
    x = np.concatenate([1e-16 * np.arange(300), np.random.default_rng(5).normal(3, 1, 700)])[:, None]
    scaler = QuantileScaler.fit(x)
    inside = np.ptp(scaler.transform(x))
    beyond = np.array([[-0.01 * np.ptp(x)], [x.max() + 0.01 * np.ptp(x)]])
    assert np.abs(scaler.transform(beyond)).max() < 3 * inside
    np.testing.assert_allclose(scaler.inverse(scaler.transform(beyond)), beyond, rtol=1e-12)


def test_a_linear_map_comes_back_exactly_where_it_is_square_and_to_the_nearest_where_it_is_not():
    rng = np.random.default_rng(3)
    X = table(4)
    square = ChainedMaps((fit_scaler(X, "standard"), LinearMap(rng.normal(size=(4, 4)))))
    np.testing.assert_allclose(square.inverse(square.transform(X)), X, rtol=1e-8, atol=1e-8)
    narrow = LinearMap(rng.normal(size=(4, 2)))
    U = narrow.transform(X)
    np.testing.assert_allclose(narrow.transform(narrow.inverse(U)), U, rtol=1e-8, atol=1e-8)


def test_a_table_of_another_width_is_refused():
    with pytest.raises(ValueError, match="fitted on 4"):
        QuantileScaler.fit(table()).transform(np.zeros((2, 3)))


def test_several_maps_share_what_they_begin_with_and_nothing_else():
    X = table()
    counted = []

    class Counted(QuantileScaler):
        def transform(self, X):
            counted.append(len(X))
            return super().transform(X)

    def scaler(X):
        made = QuantileScaler.fit(X)
        return Counted(made.knots, made.scores, made.starts)

    rng = np.random.default_rng(0)
    A, B = (LinearMap(rng.normal(size=(4, 3))) for _ in range(2))
    maps = [
        ChainedMaps((scaler(X), A)), ChainedMaps((scaler(X), B)), ChainedMaps((scaler(2 * X), A)),
        scaler(X), LinearMap(A.matrix),
    ]  # fmt: skip
    found = each_transformed(maps, X)
    # Equal scalers, though different objects, run once; the one of another table runs by itself.
    assert len(counted) == 2
    for one, rows in zip(maps, found, strict=True):
        np.testing.assert_array_equal(rows, one.transform(X))
