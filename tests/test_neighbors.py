"""Neighbours against double loops, scikit-learn and the definitions themselves."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.neighbors import NearestNeighbors

from widegp.jit import COMPILED
from widegp.neighbors import (
    NeighborIndex,
    conditioning_order,
    localise,
    locality_blocks,
    nearest,
    nearest_earlier,
    ordering,
    search,
)
from widegp.neighbors.scan import scan

relaxed = settings(deadline=None, max_examples=40)
# A few small whole numbers: most rows coincide or tie with others, and distances are free of rounding.
tied_tables = arrays(
    np.float64,
    st.tuples(st.integers(1, 90), st.integers(1, 5)),
    elements=st.integers(-2, 2).map(float),
)


def naive_earlier(points, count):
    """N(i) by its definition: all j < i, sorted by distance, then index."""
    found = np.full((len(points), count), -1)
    for i in range(len(points)):
        gaps = [(sum((a - b) ** 2 for a, b in zip(points[i], points[j], strict=True)), j) for j in range(i)]
        near = [j for _, j in sorted(gaps)[:count]]
        found[i, : len(near)] = near
    return found


def naive_maxmin(points):
    mean = points.mean(axis=0)
    chosen = [min(range(len(points)), key=lambda i: (np.sum((points[i] - mean) ** 2), i))]
    while len(chosen) < len(points):
        rest = sorted(set(range(len(points))) - set(chosen))
        gaps = [min(np.sum((points[i] - points[j]) ** 2) for j in chosen) for i in rest]
        chosen.append(rest[int(np.argmax(gaps))])
    return np.array(chosen)


def clustered(n, n_columns, seed=0):
    """Rows near a curved sheet of ten dimensions, as standardised measurements are; float32."""
    rng = np.random.default_rng(seed)
    sheet = np.tanh(rng.normal(size=(n, 10))) @ rng.normal(size=(10, n_columns))
    return (sheet + 0.1 * rng.normal(size=(n, n_columns))).astype(np.float32)


def share_found(points, found, truth):
    """Share of found neighbours no farther than the last true one, over rows that have a full set."""
    count = truth.shape[1]
    rows = np.arange(count, len(points))
    gap = np.linalg.norm(points[found[rows]] - points[rows][:, None], axis=2)
    bound = np.linalg.norm(points[truth[rows, -1]] - points[rows], axis=1)
    return np.mean(gap <= bound[:, None] * (1 + 1e-6))


def assert_full_earlier_distinct(found):
    n, count = found.shape
    rows = np.arange(n)[:, None]
    assert found.dtype == np.int32
    assert np.array_equal((found >= 0).sum(axis=1), np.minimum(np.arange(n), count))
    assert np.all(found < rows)
    ranked = np.sort(found, axis=1)
    assert not np.any((np.diff(ranked, axis=1) == 0) & (ranked[:, 1:] >= 0))


# --- nearest earlier rows ---------------------------------------------------------------------------------


@relaxed
@given(tied_tables, st.integers(0, 12))
def test_exact_search_equals_double_loop_with_ties(points, count):
    assert np.array_equal(nearest_earlier(points, count), naive_earlier(points, count))


@pytest.mark.parametrize("n_columns", [1, 3, 4, 17, 81])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_search_equals_sklearn(n_columns, dtype):
    points = np.random.default_rng(n_columns).normal(size=(700, n_columns)).astype(dtype)
    found = nearest_earlier(points, 9)
    for i in range(9, 700, 23):
        oracle = NearestNeighbors(n_neighbors=9, algorithm="kd_tree").fit(points[:i])
        expected = oracle.kneighbors(points[i : i + 1])[0][0]
        gap = np.linalg.norm(points[found[i]] - points[i], axis=1)
        assert np.allclose(gap, expected, rtol=1e-4 if dtype == np.float32 else 1e-7)
        assert np.all(np.diff(gap) >= -1e-6)


def test_many_neighbors_and_tiles():
    points = np.random.default_rng(1).normal(size=(1_500, 2))
    found = nearest_earlier(points, 400)
    assert_full_earlier_distinct(found)
    gaps = np.linalg.norm(points[:1_499] - points[1_499], axis=1)
    assert np.array_equal(found[1_499], np.argsort(gaps, kind="stable")[:400])


@pytest.mark.skipif(not COMPILED, reason="there is no compiled search to compare with")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_plain_search_has_the_compiled_answer_to_the_last_bit(monkeypatch, dtype):
    rng = np.random.default_rng(5)
    reference = np.round(rng.normal(size=(300, 7)), 1).astype(dtype)
    queries = np.concatenate([reference[:40], rng.normal(size=(25, 7)).astype(dtype)])
    first, last = rng.integers(0, 100, 65), rng.integers(0, 300, 65)
    seeds = np.where(last[:, None] < 290, np.arange(290, 295), -1)
    found = []
    for limit in (2**18, 0):
        monkeypatch.setattr("widegp.neighbors.scan.PLAIN_PAIRS", limit)
        found.append(scan(reference, queries, first, last, 30, seeds))
    np.testing.assert_array_equal(*found)
    assert (found[0] >= 0).sum(1).min() < 30


def test_far_from_origin_keeps_close_rows_apart():
    grid = 1e8 + np.arange(200.0)[:, None] * 1e-3
    shuffled = grid[np.random.default_rng(0).permutation(200)]
    assert np.array_equal(nearest_earlier(shuffled, 3), naive_earlier(shuffled, 3))


@pytest.mark.parametrize("n_columns", [4, 20, 81])
def test_approximate_search_finds_most_neighbors(n_columns):
    points = clustered(6_000, n_columns)
    truth = nearest_earlier(points, 30, method="exact")
    found = nearest_earlier(points, 30, method="approximate")
    assert_full_earlier_distinct(found)
    assert share_found(points, found, truth) >= 0.93
    assert np.array_equal(found, nearest_earlier(points, 30, method="approximate"))


def test_approximate_search_on_shapeless_rows_and_unequal_columns():
    rng = np.random.default_rng(3)
    shapeless = rng.normal(size=(4_000, 40))
    unequal = rng.normal(size=(4_000, 40)) * np.logspace(0, -4, 40) + 1e3
    for points in (shapeless, unequal):
        truth = nearest_earlier(points, 10, method="exact")
        found = nearest_earlier(points, 10, method="approximate")
        assert share_found(points, found, truth) >= 0.9


@pytest.mark.parametrize("n_columns", [3, 24])
def test_approximate_search_with_duplicates(n_columns):
    rng = np.random.default_rng(5)
    points = rng.normal(size=(7, n_columns))[rng.integers(0, 7, 3_000)]
    found = nearest_earlier(points, 12, method="approximate")
    assert_full_earlier_distinct(found)
    gap = np.linalg.norm(points[found[500:]] - points[500:, None], axis=2)
    assert np.mean(gap == 0) > 0.95
    assert_full_earlier_distinct(nearest_earlier(np.zeros((3_000, n_columns)), 12, method="approximate"))


@pytest.mark.parametrize("n_columns", [3, 24])
@pytest.mark.parametrize("scale", [1e-25, 1e18])
def test_approximate_search_at_any_scale_with_an_outlier(n_columns, scale):
    points = scale * np.random.default_rng(6).normal(size=(2_000, n_columns))
    points[1_111] *= 1e30
    found = nearest_earlier(points, 5, method="approximate")
    assert_full_earlier_distinct(found)
    assert share_found(points, found, nearest_earlier(points, 5, method="exact")) >= 0.9


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 10_000), st.integers(1, 40), st.sampled_from([2, 18]))
def test_approximate_search_keeps_the_rules(seed, count, n_columns):
    points = np.random.default_rng(seed).normal(size=(1_100, n_columns)).round(1)
    assert_full_earlier_distinct(nearest_earlier(points, count, method="approximate"))


def test_search_leaves_threads_alone_and_does_without_faiss(monkeypatch):
    faiss = pytest.importorskip("faiss")
    before = faiss.omp_get_max_threads()
    points = clustered(2_000, 20)
    nearest_earlier(points, 5, method="approximate")
    assert faiss.omp_get_max_threads() == before
    monkeypatch.setattr(search, "has_faiss", lambda: False)
    assert np.array_equal(
        nearest_earlier(points, 5, method="approximate"), nearest_earlier(points, 5, method="exact")
    )


def test_faiss_is_not_imported_with_the_package():
    code = "import sys, widegp.neighbors, widegp.anchors; sys.exit('faiss' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 0


# --- nearest reference rows -------------------------------------------------------------------------------


@relaxed
@given(tied_tables, st.integers(0, 8))
def test_nearest_equals_sorting_with_ties(reference, count):
    queries = reference[::2] + 0.5
    gaps = ((queries[:, None] - reference[None]) ** 2).sum(axis=2)
    expected = np.argsort(gaps, axis=1, kind="stable")[:, :count]
    found = nearest(reference, queries, count)
    assert found.shape == (len(queries), count)
    assert np.array_equal(found[:, : expected.shape[1]], expected)
    assert np.all(found[:, expected.shape[1] :] == -1)


def test_index_answers_alike_each_time_and_finds_most(monkeypatch):
    reference, queries = np.split(clustered(5_300, 30), [5_000])
    truth = nearest(reference, queries, 20)
    index = NeighborIndex(reference, method="approximate")
    monkeypatch.setattr(search, "InvertedLists", None)  # Building again would fail.
    found = index.query(queries, 20)
    assert np.array_equal(found, index.query(queries, 20))
    assert np.array_equal(found[:50], index.query(queries[:50], 20))
    gap = np.linalg.norm(reference[found] - queries[:, None], axis=2)
    bound = np.linalg.norm(reference[truth[:, -1]] - queries, axis=1)[:, None]
    assert np.mean(gap <= bound * (1 + 1e-6)) >= 0.9
    assert index.query(queries, 3).shape == (300, 3)
    assert index.query(queries[:0], 3).shape == (0, 3)


# --- orders -----------------------------------------------------------------------------------------------


@relaxed
@given(tied_tables, st.sampled_from(["random", "maxmin"]))
def test_orders_are_permutations(points, kind):
    order = conditioning_order(points, kind, np.random.default_rng(0))
    assert np.array_equal(np.sort(order), np.arange(len(points)))
    assert np.array_equal(order, conditioning_order(points, kind, np.random.default_rng(0)))


@settings(deadline=None, max_examples=15)
@given(tied_tables)
def test_maxmin_equals_double_loop_with_ties(points):
    # Rows whose mean is exactly 0 leave the choice of the first no room for rounding.
    points = points[:25]
    points = np.concatenate([points, -points, np.zeros((1, points.shape[1]))])
    assert np.array_equal(conditioning_order(points, "maxmin"), naive_maxmin(points))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_maxmin_gaps_are_the_widest_there_are(dtype):
    points = (5 + np.random.default_rng(0).normal(size=(900, 21)) * np.logspace(0, -2, 21)).astype(dtype)
    order = conditioning_order(points, "maxmin")
    gaps = np.full(900, np.inf)
    for row, following in itertools.pairwise(order):
        gaps = np.minimum(gaps, ((points - points[row]) ** 2).sum(axis=1))
        assert gaps[following] >= gaps.max() * (1 - 1e-5)
        gaps[row] = 0


def test_maxmin_refuses_large_tables(monkeypatch):
    monkeypatch.setattr(ordering, "MAXMIN_ROWS", 10)
    with pytest.raises(ValueError, match='use kind="random"'):
        conditioning_order(np.zeros((11, 2)), "maxmin")


# --- blocks -----------------------------------------------------------------------------------------------


@relaxed
@given(tied_tables, st.integers(0, 6), st.integers(1, 40))
def test_blocks_cover_each_row_once_and_localise_keeps_neighbors(points, count, block_rows):
    neighbors = nearest_earlier(points, count)
    blocks = locality_blocks(neighbors, points, block_rows)
    assert np.array_equal(np.sort(np.concatenate([rows for rows, _ in blocks])), np.arange(len(points)))
    assert sorted(len(rows) for rows, _ in blocks)[1:] == [block_rows] * (len(blocks) - 1)
    for rows, halo in blocks:
        wanted = neighbors[rows]
        assert set(halo) == set(wanted[wanted >= 0]) - set(rows)
        local = localise(neighbors, rows, halo)
        assert local.dtype == np.int32
        assert np.array_equal(local == -1, wanted == -1)
        assert np.array_equal(np.concatenate([rows, halo, [-1]])[local], wanted)


def test_blocks_have_small_halos():
    points = clustered(6_000, 3)
    neighbors = nearest_earlier(points, 10)
    blocks = locality_blocks(neighbors, points, 500)
    scattered = np.array_split(np.arange(6_000), 12)
    by_order = sum(len(np.setdiff1d(neighbors[rows], rows)) for rows in scattered)
    assert sum(len(halo) for _, halo in blocks) < 0.6 * by_order


# --- errors -----------------------------------------------------------------------------------------------


def test_errors_say_what_was_wrong():
    table = np.zeros((4, 2))
    with pytest.raises(ValueError, match="Row 2 of the points is not finite"):
        nearest_earlier(np.array([[0.0], [1.0], [np.nan]]), 1)
    with pytest.raises(ValueError, match="shape"):
        nearest_earlier(np.zeros(3), 1)
    with pytest.raises(ValueError, match="negative"):
        nearest_earlier(table, -1)
    with pytest.raises(ValueError, match="one of auto, exact, approximate"):
        nearest_earlier(table, 1, method="fast")
    with pytest.raises(ValueError, match="recall"):
        nearest_earlier(table, 1, recall=0.0)
    with pytest.raises(ValueError, match="embed both alike"):
        nearest(table, np.zeros((1, 3)), 1)
    with pytest.raises(ValueError, match='"random" or "maxmin"'):
        conditioning_order(table, "sorted")
    with pytest.raises(ValueError, match="at least one row"):
        locality_blocks(np.zeros((4, 0), np.int32), table, 0)
    with pytest.raises(ValueError, match="they must agree"):
        locality_blocks(np.zeros((3, 0), np.int32), table, 2)
    with pytest.raises(ValueError, match="neither rows nor halo"):
        localise(np.array([[-1], [0]]), np.array([1]), np.array([], int))
