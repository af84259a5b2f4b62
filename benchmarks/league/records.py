"""The CSV that all results end in: one row for each job, failures included, with what it was run by."""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.league.models import MODELS
from benchmarks.league.scores import SCORES

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src" / "widegp"
FOLDER = HERE / "results"
IDENTITY = ("study", "table", "fold", "seed", "model", "settings")
COLUMNS = (
    *IDENTITY, "kind", "rows", "inputs", "status", "detail", *SCORES, "fit_s", "predict_s", "peak_mib",
    "budget_s", "limit_s", "threads", "versions", "code", "machine", "date",
)  # fmt: skip
# Files that decide what every score means.
COMMON = ("tables.py", "distributions.py", "scores.py")
# Python 3.11 counts the depth of all threads that parse in one number, and fails where it does not come out.
PARSING = threading.Lock()


@dataclass(frozen=True)
class Job:
    """One fit: a model, with settings changed, on one split of one table with one seed."""

    table: str
    model: str
    fold: int = 0
    seed: int = 0
    study: str = "league"
    settings: str = "{}"

    @classmethod
    def of(cls, table: str, model: str, settings: Mapping[str, Any], **others: Any) -> Job:
        return cls(table, model, settings=json.dumps(settings, sort_keys=True), **others)

    @property
    def identity(self) -> tuple[str, ...]:
        return tuple(str(getattr(self, name)) for name in IDENTITY)


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: Mapping[str, Any]) -> None:
    """One line; a number as short as six digits tell it."""
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def done(
    rows: Iterable[Mapping[str, str]], budget: float, limit: float, any_code: bool
) -> set[tuple[str, ...]]:
    """Identities that need not be run again.

    A row counts if it was made by the code of today (or ``any_code``), with this budget where the model is
    tuned. A model that was not installed, or got less time than ``limit``, is asked again.
    """
    found = set()
    for row in rows:
        model = MODELS.get(row["model"])
        stale = not any_code and row["code"] != fingerprint(row["model"])
        other = model is not None and model.tuned and float(row["budget_s"] or 0) != budget
        short = row["status"] == "out of time" and float(row["limit_s"] or 0) < limit
        if not (stale or other or short or row["status"] == "not installed"):
            found.add(tuple(row[name] for name in IDENTITY))
    return found


@cache
def fingerprint(model: str) -> str:
    """Twelve digits that change with the code of a model and of the scores, not with what is said of it."""
    files = [HERE / name for name in COMMON]
    entry = MODELS.get(model)
    file = "own" if entry is None else entry.file
    files.append(HERE / "models" / f"{file}.py")
    if file in ("lightgbm_", "xgboost_", "catboost_", "hist"):
        files.append(HERE / "models" / "boosting.py")
    if file == "own":
        files += sorted(SOURCE.rglob("*.py"))
    digest = hashlib.sha256()
    for path in files:
        digest.update(_bare(path).encode())
    return digest.hexdigest()[:12]


def _bare(path: Path) -> str:
    """The program of a file without comments, docstrings and layout."""
    with PARSING:
        tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            said = body[0].value
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                body.pop(0)
    return ast.dump(tree)
