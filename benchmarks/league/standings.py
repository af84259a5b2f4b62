"""From rows of the CSV to what the page shows: one score for each table and model.

Of several rows of one job the one with the largest tuning budget counts, and of these the last. Models are
compared on the splits that all of them have done; a failure is a split that is done, with no score.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.league import ranks
from benchmarks.league.records import FOLDER, IDENTITY
from benchmarks.league.tables import TABLES

# A model is ranked if it was run on this share of the tables, and tables then if all ranked models were.
ENTERED = 0.7
OWN = "widegp"
# AUC is the only score of which more is better.
MORE_IS_BETTER = ("auc",)


def load(study: str, folder: Path = FOLDER) -> pd.DataFrame:
    """The rows of a study that count, or none."""
    path = folder / f"{study}.csv"
    if not path.exists():
        return pd.DataFrame()
    return latest(pd.read_csv(path, keep_default_na=True))


def latest(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.assign(line=np.arange(len(rows)), installed=rows["status"] != "not installed")
    rows = rows.sort_values(["installed", "budget_s", "line"], kind="stable")
    kept = rows.groupby(list(IDENTITY), sort=False).tail(1).sort_values("line")
    return kept.drop(columns=["line", "installed"]).reset_index(drop=True)


def run(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of models that were there to be run."""
    return rows[rows["status"] != "not installed"]


class Standing(NamedTuple):
    """scores : tables x models, means over common splits, NaN where a model failed.    splits : per table."""

    scores: pd.DataFrame
    splits: pd.Series

    @property
    def ranks(self) -> pd.DataFrame:
        found = ranks.ranks(self.scores.to_numpy())
        return pd.DataFrame(found, self.scores.index, self.scores.columns)


def of_kind(rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    return run(rows)[run(rows)["kind"] == kind]


def entered(rows: pd.DataFrame) -> tuple[list[str], list[str]]:
    """widegp and models that were run on most tables; the tables of which all of these share a split."""
    there = rows.groupby(["table", "model"]).size().unstack(fill_value=0) > 0
    models = [str(name) for name in there if name == OWN or there[name].mean() >= ENTERED]
    tables = [name for name in TABLES if name in there.index and len(_common(rows, name, models))]
    return models, tables


def standing(rows: pd.DataFrame, score: str, models: list[str], tables: list[str]) -> Standing:
    """Scores of the models on the splits of each table that all of them were run on."""
    found, splits = {}, {}
    for table in tables:
        common = _common(rows, table, models)
        scored = _wide(rows[rows["table"] == table], score).reindex(index=common, columns=models)
        # One failure is a failure on the table: a mean over the other splits would favour it.
        found[table], splits[table] = scored.mean(skipna=False), len(common)
    sign = -1.0 if score in MORE_IS_BETTER else 1.0
    return Standing(sign * pd.DataFrame(found).T.reindex(columns=models), pd.Series(splits, dtype=int))


def _common(rows: pd.DataFrame, table: str, models: list[str]) -> pd.Index:
    """The splits of a table that all the models were run on, failures included."""
    return _wide(rows[rows["table"] == table], "done").reindex(columns=models).dropna().index


def _wide(rows: pd.DataFrame, score: str) -> pd.DataFrame:
    """Splits x models; ``done`` is 1 for every row, failed or not."""
    values = rows.assign(done=1.0)
    return values.pivot(index=["fold", "seed"], columns="model", values=score)


def beside(rows: pd.DataFrame, peer: str, score: str, own: str = OWN) -> tuple[int, int, float]:
    """Tables that both did, those where ``own`` is better, and the median of own less peer's score."""
    both = rows[rows["model"].isin([own, peer])]
    counts = both.groupby("table")["model"].nunique()
    tables = [str(name) for name in counts.index[counts == 2]]
    found = standing(both, score, [own, peer], tables).scores.dropna()
    gap = found[own] - found[peer]
    return len(found), int((gap < 0).sum()), float(gap.median()) if len(gap) else float("nan")
