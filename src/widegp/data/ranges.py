"""Rows that lie outside the training range of a fitted table, told from their encoded inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from widegp.data.kinds import BEYOND, DAY, Column, DateColumn, NumericColumn


def outside_range(columns: Sequence[Column], X: np.ndarray) -> np.ndarray:
    """Row i: whether some x_ij < low_j - m_j or > high_j + m_j, m_j = 0.1 (high_j - low_j); X is (n, I).

    low_j and high_j are the training range of a numeric or date column j; the first feature of such a column
    is its value, or its days since low_j. The margin is that of the counts of `TableEncoding.transform`.
    """
    outside, at = np.zeros(len(X), dtype=bool), 0
    for column in columns:
        width = len(column.value_features())
        if width and isinstance(column, NumericColumn | DateColumn):
            low, high = (column.low, column.high)
            if isinstance(column, DateColumn):
                low, high = 0.0, (column.high - column.low) / DAY
            margin = BEYOND * (high - low)
            outside |= (X[:, at] < low - margin) | (X[:, at] > high + margin)
        at += width + column.indicator
    return outside
