"""Sums over trees: every way of making them against rows that walk by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widegp import forests
from widegp.forests import Forest

INPUTS = 4


def grown(rng: np.random.Generator, leaves: int) -> list[list[float]]:
    """A tree of random splits: feature, threshold, left, right, value of each node; thresholds repeat."""
    nodes, open_leaves = [[-1, 0.0, 0, 0, rng.normal()]], [0]
    while len(open_leaves) < leaves:
        at = open_leaves.pop(int(rng.integers(len(open_leaves))))
        children = [len(nodes), len(nodes) + 1]
        nodes[at] = [int(rng.integers(INPUTS)), float(rng.integers(-3, 4)) / 2, *children, 0.0]
        nodes += [[-1, 0.0, 0, 0, rng.normal()] for _ in children]
        open_leaves += children
    return nodes


def forest(rng: np.random.Generator, sizes: list[int]) -> tuple[list[list[list[float]]], Forest]:
    trees = [grown(rng, size) for size in sizes]
    roots = np.cumsum([0, *map(len, trees)])[:-1]
    moved = [
        [feature, threshold, left + root, right + root, value]
        for tree, root in zip(trees, roots, strict=True)
        for feature, threshold, left, right, value in tree
    ]
    feature, threshold, left, right, value = (np.array(column) for column in zip(*moved, strict=True))
    return trees, Forest.of(feature, threshold, left, right, value, roots, INPUTS)


def by_hand(trees: list[list[list[float]]], x: np.ndarray) -> float:
    total = 0.0
    for tree in trees:
        node = tree[0]
        while node[0] >= 0:
            node = tree[node[2] if x[node[0]] <= node[1] else node[3]]
        total += node[4]
    return total


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(st.sampled_from([1, 2, 15, 16, 17, 31, 33, 127]), min_size=1, max_size=5),
)
def test_every_way_gives_the_sums_of_rows_that_walk(seed, sizes):
    rng = np.random.default_rng(seed)
    trees, made = forest(rng, sizes)
    # Values at, below and above thresholds, and beyond all of them.
    X = np.concatenate([rng.integers(-4, 5, (30, INPUTS)) / 2, rng.normal(size=(30, INPUTS))])
    cut = len(trees) // 2
    starts = np.array([0, cut, len(trees)]) if cut else np.array([0, len(trees)])
    groups = [trees[a:b] for a, b in itertools.pairwise(starts)]
    expected = np.array([[by_hand(group, x) for group in groups] for x in X])
    np.testing.assert_allclose(made.sums(X, starts), expected, rtol=1e-12, atol=1e-12)
    few = np.concatenate([made.sums(X[i : i + 3], starts) for i in range(0, len(X), 3)])
    np.testing.assert_array_equal(few, made.sums(X, starts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forests, "COMPILED", False)
        np.testing.assert_allclose(made.sums(X, starts), expected, rtol=1e-12, atol=1e-12)


def test_a_part_of_the_trees_and_more_rows_than_a_thread_takes():
    rng = np.random.default_rng(0)
    trees, made = forest(rng, [31, 127, 5, 64])
    X = rng.normal(size=(forests.PART_ROWS + 100, INPUTS))
    found = made.sums(X, np.array([1, 3]))
    np.testing.assert_allclose(found[:, 0], [by_hand(trees[1:3], x) for x in X], rtol=1e-12)
    assert made.sums(X[:0], np.array([0, 4])).shape == (0, 1)
