"""Rows in random order: each as often as it was seen, and no more often."""

from __future__ import annotations

import numpy as np
import pytest

from widegp.choices import shuffled
from widegp.choices.shuffled import ShuffledRows

WEIGHT = np.array([1.0, 3.0, 0.5, 25.0, 1.0, 2.5])


def test_every_row_comes_as_often_as_it_was_seen_and_parts_share_its_weight():
    shuffle = ShuffledRows(WEIGHT, 0)
    assert np.bincount(shuffle.order).tolist() == [1, 3, 1, shuffled.MOST_COPIES, 1, 3]
    parts = [shuffle.part(slice(None, 7)), shuffle.part(slice(7, None))]
    total = np.zeros(6)
    for rows, weight in parts:
        assert len(np.unique(rows)) == len(rows)
        total[rows] += weight
    np.testing.assert_allclose(total, WEIGHT)
    np.testing.assert_array_equal(shuffle.whole.weight, WEIGHT)


def test_a_part_keeps_the_order_in_which_its_rows_came():
    rows = ShuffledRows(np.ones(50), 3)
    expected = np.random.default_rng(3).permutation(50)
    np.testing.assert_array_equal(rows.part(slice(10, 30)).rows, expected[10:30])
    np.testing.assert_array_equal(rows.part(slice(None)).rows, rows.order)


def test_means_of_a_part_count_rows_by_their_weight():
    part = ShuffledRows(WEIGHT, 1).whole
    assert part.mean(np.arange(6.0)) == pytest.approx(WEIGHT @ np.arange(6.0) / WEIGHT.sum())


def test_rows_are_written_out_up_to_a_bound_and_only_where_some_repeat(monkeypatch):
    np.testing.assert_array_equal(ShuffledRows(np.full(9, 0.3), 0).written_out, np.arange(9))
    assert np.bincount(ShuffledRows(WEIGHT, 0).written_out).tolist() == [1, 3, 1, shuffled.MOST_COPIES, 1, 3]
    monkeypatch.setattr(shuffled, "MOST_ROWS", 8)
    assert len(ShuffledRows(WEIGHT, 0).written_out) == 8
