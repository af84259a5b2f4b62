"""What the dials of the approximation are worth: anchors, rank, neighbours, neighbours of predictions.

`WideGPRegressor.plain(approximation="full-scale")` on six tables of different size, inputs and noise. Rank
and neighbours are crossed; the choice of anchors and the neighbours of predictions are turned one at a time,
about `CENTRE`, the default. Scores are of test rows, and chose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from benchmarks.league.records import Job

TABLES = (
    "airfoil", "skillcraft", "parkinsons", "yearpredictionmsd_8162", "elevators", "superconductivity",
)  # fmt: skip
CENTRE: dict[str, Any] = {"rank": 200, "neighbors": 30, "predict_neighbors": 400, "anchors": "kmeans"}
RANKS, NEIGHBORS = (25, 100, 200, 400), (5, 15, 30, 60)
ONE_BY_ONE = {
    "anchors": ("kmeans", "kmeans++", "random", "first", "greedy"),
    "predict_neighbors": (30, 60, 100, 200, 400, 800),
}


def settings() -> Iterator[dict[str, Any]]:
    """The centre, one dial at a time, then the corners."""
    seen = []
    single = [CENTRE | {name: value} for name, values in ONE_BY_ONE.items() for value in values]
    crossed = [CENTRE | {"rank": r, "neighbors": m} for r, m in product(RANKS, NEIGHBORS)]
    axes = [s for s in crossed if s["rank"] == CENTRE["rank"] or s["neighbors"] == CENTRE["neighbors"]]
    for setting in [CENTRE, *axes, *single, *crossed]:
        if setting not in seen:
            seen.append(setting)
            yield setting


def jobs() -> Iterator[Job]:
    for setting in settings():
        # The largest first, so that none is left alone at the end.
        for table in reversed(TABLES):
            fixed = {"approximation": "full-scale"}
            yield Job.of(table, "widegp-plain", setting | fixed, study="sensitivity")
