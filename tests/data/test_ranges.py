"""Rows outside the training range, against the same question asked of the table itself."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from widegp.data.columns import TableEncoding
from widegp.data.ranges import outside_range

DAYS = pd.date_range("2020-01-01", periods=101, freq="10D")


@pytest.fixture(scope="module")
def encoder():
    frame = pd.DataFrame(
        {
            "city": ["a", "b"] * 50 + ["c"],
            "size": [float(i) for i in range(100)] + [None],
            "built": DAYS,
            "new": [True, False] * 50 + [True],
            "gaps": [None, 3.0] * 50 + [4.0],
            "y": range(101),
        }
    )
    return TableEncoding.fit(pa.Table.from_pandas(frame), "y")


def row(**changes):
    usual = {"city": "a", "size": 50.0, "built": DAYS[3], "new": True, "gaps": 3.5}
    return usual | changes


@pytest.mark.parametrize(
    ("changes", "outside"),
    [
        ({}, False),
        ({"size": 108.0}, False),
        ({"size": 109.0}, True),
        ({"size": -10.0}, True),
        ({"size": None}, False),
        ({"built": DAYS[0] - pd.Timedelta(days=99)}, False),
        ({"built": DAYS[0] - pd.Timedelta(days=101)}, True),
        ({"built": DAYS[-1] + pd.Timedelta(days=101)}, True),
        ({"gaps": 9.0}, True),
        ({"city": "never seen"}, False),
    ],
)
def test_a_tenth_beyond_the_range_is_outside(encoder, changes, outside):
    table = pa.Table.from_pandas(pd.DataFrame([row(), row(**changes), row()]))
    X, _ = encoder.transform(table)
    assert outside_range(encoder.columns, X).tolist() == [False, outside, False]
