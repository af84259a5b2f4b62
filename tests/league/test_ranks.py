"""Ranks, Friedman's test and the critical difference, against loops, SciPy and Demsar's printed table."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.league.ranks import cliques, critical_difference, friedman, ranks
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import friedmanchisquare

shapes = st.tuples(st.integers(2, 6), st.integers(3, 6))
# Few different values, so that ties are common; NaN stands for a failure.
scores = shapes.flatmap(
    lambda shape: arrays(float, shape, elements=st.sampled_from([0.0, 1.0, 2.5, 3.0, np.nan]))
)


def naive_rank(row: np.ndarray, j: int) -> float:
    """1 + how many are better + half of how many others are equal."""
    known = [np.inf if np.isnan(v) else v for v in row]
    better = sum(v < known[j] for v in known)
    equal = sum(v == known[j] for v in known) - 1
    return 1 + better + equal / 2


@given(scores)
@settings(max_examples=50, deadline=None)
def test_ranks_are_counted(found: np.ndarray) -> None:
    expected = [[naive_rank(row, j) for j in range(len(row))] for row in found]
    np.testing.assert_array_equal(ranks(found), expected)


@pytest.mark.parametrize("decimals", [8, 0])
def test_friedman_is_that_of_scipy(decimals: int) -> None:
    rng = np.random.default_rng(3)
    found = np.round(rng.normal(size=(12, 5)) + np.linspace(0, 1, 5), decimals)
    expected = friedmanchisquare(*found.T)
    got = friedman(ranks(found))
    assert got.statistic == pytest.approx(expected.statistic, rel=1e-10)
    assert got.p_value == pytest.approx(expected.pvalue, rel=1e-8)


def test_models_that_always_tie_are_alike() -> None:
    assert friedman(ranks(np.ones((4, 3)))) == (0.0, 1.0)


def test_critical_difference_is_that_of_the_printed_table() -> None:
    # Demsar (2006), table 5(a), alpha = 0.05, for 2 to 10 classifiers.
    printed = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]
    for k, q in enumerate(printed, start=2):
        assert critical_difference(k, 14) == pytest.approx(q * np.sqrt(k * (k + 1) / (6 * 14)), rel=5e-4)


@given(arrays(float, st.integers(2, 7), elements=st.floats(1, 7)), st.floats(0.01, 4))
@settings(max_examples=50, deadline=None)
def test_cliques_are_the_longest_runs(mean_ranks: np.ndarray, difference: float) -> None:
    order = np.sort(mean_ranks)
    k = len(order)
    runs = {
        (i, j) for i in range(k) for j in range(i + 1, k) if order[j] <= order[i] + difference
    }  # fmt: skip
    longest = {
        (i, j) for i, j in runs if not any((a <= i and j <= b) and (a, b) != (i, j) for a, b in runs)
    }  # fmt: skip
    assert set(cliques(mean_ranks, difference)) == longest
