"""Fitted affine transforms against scikit-learn, exact arithmetic and awkward columns."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from widegp.data.preprocessing import InputScaler, TargetScaler

RNG = np.random.default_rng(0)
X = RNG.normal([0.0, 5.0, -1e3], [1.0, 1e-3, 50.0], size=(30, 3))
NEW = RNG.normal([0.0, 5.0, -1e3], [1.0, 1e-3, 50.0], size=(7, 3))

tables = arrays(float, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(-1e6, 1e6))
any_tables = arrays(
    float,
    array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.floats(allow_nan=False, allow_infinity=False),
)


def test_standard_is_scikit_learns():
    theirs = StandardScaler().fit(X)
    ours = InputScaler.fit(X, "standard")
    np.testing.assert_allclose(ours.transform(NEW), theirs.transform(NEW), rtol=1e-9, atol=1e-9)


def test_minmax_is_scikit_learns_minus_one_half():
    theirs = MinMaxScaler().fit(X)
    ours = InputScaler.fit(X, "minmax")
    np.testing.assert_allclose(ours.transform(NEW), theirs.transform(NEW) - 0.5, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.transform(X).min(axis=0), -0.5)
    np.testing.assert_allclose(ours.transform(X).max(axis=0), 0.5)


@pytest.mark.parametrize("kind", ["none", None])
def test_none_changes_nothing(kind):
    scaler = InputScaler.fit(X, kind)
    assert scaler.kind == "none"
    np.testing.assert_array_equal(scaler.transform(NEW), NEW)


@pytest.mark.parametrize("kind", ["standard", "minmax"])
@settings(max_examples=60, deadline=None)
@given(table=tables)
def test_inverse_undoes_transform(kind, table):
    scaler = InputScaler.fit(table, kind)
    size = np.abs(table).max() + 1
    np.testing.assert_allclose(scaler.inverse(scaler.transform(table)), table, rtol=1e-12, atol=1e-12 * size)


@pytest.mark.parametrize("kind", ["standard", "minmax"])
@settings(max_examples=100, deadline=None)
@given(table=any_tables)
def test_any_finite_table_stays_finite(kind, table):
    scaler = InputScaler.fit(table, kind)
    assert (
        np.all(np.isfinite(scaler.shift)) and np.all(np.isfinite(scaler.scale)) and np.all(scaler.scale > 0)
    )
    assert np.all(np.abs(scaler.transform(table)) <= np.sqrt(table.shape[0]) + 1)


@pytest.mark.parametrize("kind", ["standard", "minmax"])
@settings(max_examples=60, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False), n=st.integers(1, 9))
def test_constant_columns_become_exactly_zero(kind, value, n):
    scaler = InputScaler.fit(np.full((n, 1), value), kind)
    assert scaler.scale.tolist() == [1.0]
    np.testing.assert_array_equal(scaler.transform(np.full((n, 1), value)), 0.0)


@pytest.mark.parametrize("kind", ["standard", "minmax"])
@pytest.mark.parametrize("level", [1e15, -1e15, 0.1, 1e-9, 1e300])
def test_rounding_noise_counts_as_constant(kind, level):
    column = np.full((50, 1), level)
    column[::3] = np.nextafter(level, np.inf)
    assert np.abs(InputScaler.fit(column, kind).transform(column)).max() < 1e-14


def test_a_small_spread_on_a_large_level_keeps_its_digits():
    column = 1e9 + RNG.integers(0, 10, size=200) / 64  # exact in binary
    exact = [Fraction(float(v)) for v in column]
    mean = sum(exact) / 200
    sd = float(sum((v - mean) ** 2 for v in exact) / 200) ** 0.5
    scaler = InputScaler.fit(column[:, None], "standard")
    assert scaler.scale[0] == pytest.approx(sd, rel=1e-12)
    assert abs(scaler.transform(column[:, None]).mean()) < 1e-5


@pytest.mark.parametrize("kind", ["standard", "minmax"])
@pytest.mark.parametrize("magnitude", [1e300, 1.7e308, 1e-300])
def test_extreme_magnitudes_equal_ordinary_ones(kind, magnitude):
    base = RNG.uniform(-1, 1, size=(40, 1)) * 0.5
    expected = InputScaler.fit(base, kind).transform(base)
    huge = base * magnitude
    np.testing.assert_allclose(InputScaler.fit(huge, kind).transform(huge), expected, rtol=1e-9, atol=1e-12)


def test_values_far_outside_count_as_one_width_outside():
    scaler, plain = InputScaler.fit(X, "bounded"), InputScaler.fit(X, "standard")
    np.testing.assert_array_equal(scaler.transform(X), plain.transform(X))
    low, width = X.min(axis=0), np.ptp(X, axis=0)
    near = low - 0.9 * width
    np.testing.assert_array_equal(scaler.transform([near]), plain.transform([near]))
    for far in (low - 5 * width, low - 1e200):
        np.testing.assert_allclose(scaler.transform([far]), plain.transform([low - width]), rtol=1e-12)
    constant = InputScaler.fit(np.full((4, 1), 3.0), "bounded")
    np.testing.assert_array_equal(constant.transform([[9.0]]), [[0.0]])
    parts = InputScaler.fit_stream([X[:5], X[5:]], "bounded")
    np.testing.assert_allclose(parts.transform([low - 5 * width]), scaler.transform([low - 5 * width]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: InputScaler.fit(X, "robust"), "Unknown input scaling 'robust'"),
        (lambda: InputScaler.fit(X[:, 0]), r"shape \(n, I\)"),
        (lambda: InputScaler.fit(X[:0]), "no rows"),
        (lambda: InputScaler.fit(np.array([[1.0, 2.0], [1.0, np.nan]])), "X, column 1 is nan in row 1"),
        (lambda: InputScaler.fit(np.array([[np.inf], [1.0]])), "X, column 0 is inf in row 0"),
        (lambda: InputScaler.fit(X).transform(X[:, :2]), "2 columns but the scaler was fitted on 3"),
        (lambda: TargetScaler.fit([]), "n >= 1"),
        (lambda: TargetScaler.fit([[1.0]]), "one number per row"),
        (lambda: TargetScaler.fit([1.0, np.nan]), "y is nan in row 1"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_target_moments_and_inverses():
    y = RNG.normal(7.0, 3.0, size=100)
    scaler = TargetScaler.fit(y)
    assert (scaler.mean, scaler.sd) == (pytest.approx(y.mean()), pytest.approx(y.std()))
    z = scaler.transform(y)
    assert (z.mean(), z.std()) == (pytest.approx(0.0, abs=1e-12), pytest.approx(1.0))
    np.testing.assert_allclose(scaler.inverse_mean(z), y)
    np.testing.assert_allclose(scaler.inverse_sd([0.0, 2.0]), [0.0, 2 * scaler.sd])


@pytest.mark.parametrize("y", [[4.0], [0.1] * 7, [0.0, 0.0], [1e300] * 3])
def test_a_target_without_spread_has_unit_sd(y):
    scaler = TargetScaler.fit(y)
    assert scaler.sd == 1.0
    np.testing.assert_array_equal(scaler.transform(y), 0.0)


def test_huge_targets_do_not_overflow():
    z = TargetScaler.fit(np.array([-1.7e308, 1.7e308])).transform([-1.7e308, 1.7e308])
    np.testing.assert_allclose(z, [-1.0, 1.0])
