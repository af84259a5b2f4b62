"""Which jobs the league has, the most telling first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.league.models import MODELS
from benchmarks.league.records import Job
from benchmarks.league.tables import TABLES

# Models in the order in which they tell most about widegp.
GROUPS = (
    ("widegp", "lightgbm", "hist-boosting", "linear"),
    ("widegp-plain", "xgboost", "ngboost", "sklearn-gp"),
    ("gpytorch-sgpr", "gpytorch-svgp", "catboost", "gpboost"),
)
# Seeds of tables with one split.
SEEDS = 3
QUICK_TABLES = (
    "mcycle", "servo", "machine", "yacht", "jura", "autompg", "stock", "energy", "airfoil", "skillcraft",
)  # fmt: skip
# Seconds in proportion to these and to the rows of the table.
WEIGHTS = {"widegp": 4.0, "widegp-plain": 1.0, "linear": 0.01, "gpboost": 6.0}


def league(
    tables: Sequence[str] = (), models: Sequence[str] = (), splits: int | None = None
) -> Iterator[Job]:
    """All (table, model) of the first split, then of the next: folds, or seeds of a table with one split.

    The first group begins with what takes longest; later ones with small tables, so that a run that is cut
    short leaves out few pairs.
    """
    for k in range(10 if splits is None else splits):
        for group in GROUPS:
            jobs = [
                _split(table, model, k)
                for table in tables or TABLES
                for model in group
                if (not models or model in models) and _entered(table, model) and k < _splits(table)
            ]
            jobs.sort(key=lambda job: WEIGHTS.get(job.model, 2.0) * TABLES[job.table].rows)
            yield from reversed(jobs) if k == 0 and group == GROUPS[0] else jobs


def quick() -> Iterator[Job]:
    """One split of the small tables, without the models that take long."""
    return league(QUICK_TABLES, [*GROUPS[0], *GROUPS[1]], 1)


def _entered(table: str, model: str) -> bool:
    kind = TABLES[table].kind
    return ("numbers" if kind == "regression" else kind) in MODELS[model].sorts


def _splits(table: str) -> int:
    return max(TABLES[table].folds, SEEDS)


def _split(table: str, model: str, k: int) -> Job:
    folded = TABLES[table].folds > 1
    return Job(table, model, fold=k if folded else 0, seed=0 if folded else k)
