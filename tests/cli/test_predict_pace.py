"""The time left that `widegp predict` shows."""

from __future__ import annotations

import pytest

from widegp.cli.predict import Pace


def paced(total: int, seconds: list[float], rows: int = 100) -> list[float | None]:
    """What a pace says after each batch of ``rows`` rows that took so many seconds."""
    pace, now, said = Pace(total), 0.0, []
    pace._since = now
    for spent in seconds:
        now += spent
        said.append(pace.done(rows, now))
    return said


def test_the_first_batch_does_not_count():
    first, *others = paced(1000, [9.0, 1.0, 1.0])
    assert first is None and others == pytest.approx([8.0, 7.0])


def test_one_slow_batch_does_not_change_what_is_expected():
    assert paced(1000, [1.0, 1.0, 1.0, 30.0, 1.0])[-1] == pytest.approx(5.0)


def test_a_table_that_has_grown_slow_is_noticed():
    assert paced(2000, [1.0] * 5 + [3.0] * 8)[-1] == pytest.approx(21.0)


def test_more_rows_than_expected_leave_none():
    assert paced(150, [1.0, 1.0])[-1] == 0
    unknown = Pace(None)
    assert [unknown.done(10) for _ in range(3)] == [None] * 3
