"""One variance for all inputs, or one for each, beside the default: seven tables in ten folds."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.league.records import Job

TABLES = ("yacht", "energy", "stock", "airfoil", "skillcraft", "parkinsons", "pumadyn32nm")
METRICS = ("iso", "ard")


def jobs(folds: int = 10) -> Iterator[Job]:
    for fold in range(folds):
        for table in TABLES:
            for metric in METRICS:
                yield Job.of(table, "widegp-plain", {"metric": metric}, study="metric", fold=fold)
