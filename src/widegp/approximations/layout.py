"""How the rows of a table are arranged under one kernel: order, anchors, neighbours, blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from widegp.anchors import Anchors
from widegp.engines.base import Rows


@dataclass(frozen=True)
class Dials:
    """Which approximation, and how much of it."""

    name: str
    rank: int
    neighbors: int
    anchors: str
    ordering: str
    block_rows: int | None


@dataclass(frozen=True)
class Layout:
    """Anchors, neighbours and blocks that suit a kernel.

    anchors : Z (r, I) and, where they are rows, which ones.    metric : in which they are spread.
    neighbors : (n, m) nearest earlier rows of each row, both counted in the order of conditioning.
    order : (n,) rows of the table in the order of storage; rows near each other are stored near each other,
        so that the neighbours of successive rows are still in cache. None where the table's order is kept.
    rows : the blocks, where the engine makes its sums; None where all rows are taken at once.
    """

    anchors: Anchors
    metric: str
    neighbors: np.ndarray
    order: np.ndarray | None
    rows: Rows | None
