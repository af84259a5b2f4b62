"""Crossings of increasing functions, beside SciPy's and where there are none to be found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from widegp.roots import crossings


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8), st.floats(0.01, 0.99), st.floats(0.05, 20.0))
def test_quantiles_of_scipys_normals(means, level, sd):
    mean = np.array(means)[:, None]
    found = crossings(lambda rows, x: norm.cdf(x, mean[rows], sd) - level, mean - 9 * sd, mean + 9 * sd)
    tolerance = 1e-13 * (9 * sd + np.abs(mean).max())
    np.testing.assert_allclose(found, norm.ppf(level, mean, sd), rtol=0, atol=tolerance)


def test_smooth_functions_take_a_dozen_evaluations_and_not_sixty():
    asked = []

    def f(rows, x):
        asked.append(len(rows))
        return np.tanh(x - 0.3) + 0.2 * (x - 0.3)

    found = crossings(f, np.full((3, 1), -1.0), np.array([[1.0], [2.0], [5.0]]))
    np.testing.assert_allclose(found, 0.3, rtol=1e-14)
    assert len(asked) <= 14 and asked[-1] < 3


@pytest.mark.parametrize("jump", [0.0, 1e-300, 0.7, 1.0])
def test_where_it_jumps_the_answer_lies_at_the_jump_or_a_rounding_above(jump):
    found = crossings(lambda rows, x: np.where(x >= jump, 1.0, -1.0), np.array([[-1.0]]), np.array([[1.0]]))
    assert jump <= found[0, 0] <= jump + 1e-14


def test_where_it_is_flat_at_zero_the_answer_is_the_first_of_them():
    found = crossings(lambda rows, x: np.clip(x - 1, None, 0.0), np.array([[-3.0]]), np.array([[9.0]]))
    assert found[0, 0] == pytest.approx(1.0, rel=1e-14)


def test_an_end_that_has_the_wrong_sign_is_the_answer():
    line = np.array([[0.5], [-0.5]])
    found = crossings(lambda rows, x: x - line[rows], np.array([[1.0], [-2.0]]), np.array([[2.0], [-1.0]]))
    np.testing.assert_array_equal(found, [[1.0], [-1.0]])


def test_an_element_does_not_hang_on_its_company():
    shift = np.array([[0.1], [1e-12], [0.0], [3.0]])

    def found(own):
        start = np.ones((len(own), 1))
        return crossings(lambda rows, x: np.cbrt(x - shift[own][rows]), -start, 4 * start)

    together = found(np.arange(4))
    np.testing.assert_array_equal(together, [found(np.array([k]))[0] for k in range(4)])
    np.testing.assert_allclose(together, shift, rtol=0, atol=1e-14)
