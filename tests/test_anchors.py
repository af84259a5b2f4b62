"""Anchors against naive elimination and the promises of their docstring."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from widegp import anchors
from widegp.anchors import RULES, Wanted, choose_anchors

tied_tables = arrays(
    np.float64,
    st.tuples(st.integers(1, 60), st.integers(1, 3)),
    elements=st.integers(-2, 2).map(float),
)


def rbf(X, Y):
    return np.exp(-0.5 * ((X[:, None] - Y[None]) ** 2).sum(axis=2))


class Rbf:
    __call__ = staticmethod(rbf)

    @staticmethod
    def diag(X):
        return np.ones(len(X))


class Linear:
    @staticmethod
    def __call__(X, Y):
        return X @ Y.T

    @staticmethod
    def diag(X):
        return (X * X).sum(axis=1)


def chosen(X, rank, rule, seed=0, must_be_rows=False):
    return choose_anchors(X, Wanted(rank, rule, must_be_rows), np.random.default_rng(seed), kernel=Rbf())


@settings(deadline=None, max_examples=25)
@given(tied_tables, st.integers(0, 70), st.sampled_from(RULES), st.booleans())
def test_anchors_are_distinct_and_as_many_as_there_can_be(X, rank, rule, must_be_rows):
    found = chosen(X, rank, rule, must_be_rows=must_be_rows)
    size = len(found.points)
    n_distinct = len(np.unique(X, axis=0))
    assert found.points.dtype == np.float64
    assert len(np.unique(found.points, axis=0)) == size
    assert size <= min(rank, n_distinct)
    if rank >= len(X) or not (rule == "kmeans" and must_be_rows):
        assert size == min(rank, n_distinct)
    if must_be_rows or rule != "kmeans":
        assert np.array_equal(found.points, X[found.rows])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("X", [np.zeros((1, 3)), np.full((40, 2), 7.0), np.zeros((5, 1))])
def test_one_row_or_identical_rows_give_one_anchor(X, rule):
    assert np.array_equal(chosen(X, 10, rule).points, X[:1])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("must_be_rows", [False, True])
def test_same_generator_same_anchors_and_well_apart(rule, must_be_rows):
    X = np.random.default_rng(1).normal(size=(1_500, 4))
    first, second = (chosen(X, 40, rule, must_be_rows=must_be_rows) for _ in range(2))
    assert np.array_equal(first.points, second.points)
    assert first.points.shape == (40, 4)
    gaps = np.linalg.norm(first.points[:, None] - first.points[None], axis=2) + np.eye(40)
    assert gaps.min() > 1e-6
    assert (first.rows is None) == (rule == "kmeans" and not must_be_rows)


@pytest.mark.parametrize("rule", RULES)
def test_near_coinciding_rows_count_once(rule):
    base = np.random.default_rng(2).normal(size=(12, 3))
    X = np.concatenate([base, base + 1e-9, base - 1e-9])
    assert len(chosen(X, 30, rule).points) == 12
    assert len(chosen(X, 40, rule).points) == 12


def test_first_and_random_skip_repeated_rows():
    X = np.array([[0.0], [0.0], [1.0], [1.0], [2.0], [3.0]])
    assert np.array_equal(chosen(X, 3, "first").rows, [0, 2, 4])
    sizes = {len(chosen(X, 3, "random", seed).rows) for seed in range(20)}
    assert sizes == {3}


def test_greedy_equals_elimination_on_the_whole_matrix():
    X = np.random.default_rng(3).normal(size=(60, 2))
    residual, expected = rbf(X, X), []
    for _ in range(12):
        p = int(np.argmax(np.round(np.diag(residual), 12)))
        expected.append(p)
        residual = residual - np.outer(residual[:, p], residual[p]) / residual[p, p]
    assert np.array_equal(chosen(X, 12, "greedy").rows, expected)


def test_greedy_stops_at_the_rank_of_the_kernel():
    X = np.random.default_rng(4).normal(size=(200, 5))
    found = choose_anchors(X, Wanted(50, "greedy"), 0, kernel=Linear())
    assert len(found.rows) == 5


def test_kmeans_reduces_the_distance_to_the_nearest_anchor():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(8, 3))[rng.integers(0, 8, 2_000)] * 10 + rng.normal(size=(2_000, 3))

    def cost(points):
        return ((X[:, None] - points[None]) ** 2).sum(axis=2).min(axis=1).mean()

    costs = {rule: cost(chosen(X, 8, rule).points) for rule in ("random", "kmeans++", "kmeans")}
    assert costs["kmeans"] < costs["kmeans++"] < costs["random"]
    nearest_rows = cost(chosen(X, 8, "kmeans", must_be_rows=True).points)
    assert costs["kmeans"] <= nearest_rows < 1.2 * costs["kmeans"]


@pytest.mark.parametrize("rule", RULES)
def test_large_tables_are_sampled(rule, monkeypatch):
    monkeypatch.setattr(anchors, "SAMPLE_ROWS", 300)
    monkeypatch.setattr(anchors, "_LLOYD_WORK", 0)
    monkeypatch.setattr(anchors, "_SEEDING_WORK", 0)
    monkeypatch.setattr(anchors, "SPREAD_ROWS", 300)
    X = np.random.default_rng(6).normal(size=(5_000, 3)).astype(np.float32)
    looked_at = []

    def metric(rows):
        looked_at.append(len(rows))
        return rows

    class Watched(Rbf):
        @staticmethod
        def diag(rows):
            looked_at.append(len(rows))
            return np.ones(len(rows))

    for must_be_rows in (False, True):
        wanted, rng = Wanted(25, rule, must_be_rows), np.random.default_rng(0)
        found = choose_anchors(X, wanted, rng, metric=metric, kernel=Watched())
        assert found.points.shape == (25, 3)
        # 30 rows for each anchor, or as many as are looked through at a time for distinct ones.
        assert 300 <= max(looked_at) <= 1_024
        if found.rows is not None:
            assert np.array_equal(found.points, X[found.rows])


def test_errors_say_what_to_do():
    X = np.zeros((3, 1))
    with pytest.raises(ValueError, match="one of first, random"):
        choose_anchors(X, Wanted(2, "best"), 0)
    with pytest.raises(ValueError, match="negative"):
        choose_anchors(X, Wanted(-1, "first"), 0)
    with pytest.raises(ValueError, match="pass kernel="):
        choose_anchors(X, Wanted(2, "greedy"), 0)
    with pytest.raises(ValueError, match="Row 1 of the points is not finite"):
        choose_anchors(np.array([[0.0], [np.inf]]), Wanted(1, "first"), 0)
