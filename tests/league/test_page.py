"""The page is made from rows alone: made-up ones here, and the committed ones at the end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.league import page, page_league, page_studies, records, scaling, standings
from benchmarks.league.records import Job

MODELS = ("widegp", "lightgbm", "linear")
TABLES = ("yacht", "servo", "airfoil", "diamonds")


def made_up(folder: Path, skip: tuple[str, ...] = ()) -> pd.DataFrame:
    """Scores of three models on four tables, two splits of each; LightGBM wins on diamonds alone."""
    rng = np.random.default_rng(0)
    for table in TABLES:
        for fold in (0, 1):
            for place, model in enumerate(MODELS):
                score = 0.3 + 0.1 * place + 0.01 * rng.random()
                score -= 0.5 * (table == "diamonds" and model == "lightgbm")
                known = {name: getattr(Job(table, model, fold), name) for name in records.IDENTITY}
                known |= {"kind": "regression", "rows": 100, "inputs": 3, "budget_s": 9.0, "limit_s": 60.0}
                known |= {"threads": 1, "versions": "v 1", "machine": "made up", "date": "2026-01-01"}
                shares = {"cover50": 0.5, "cover80": 0.8, "cover95": 0.95, "fit_s": 2.0, "predict_s": 0.1}
                scores = dict.fromkeys(("rmse", "nll", "crps", "interval"), score) | shares
                status = {"status": "failed", "detail": "no | luck"} if model in skip else {"status": "ok"}
                records.append(folder / "league.csv", known | (status if model in skip else status | scores))
    return standings.load("league", folder)


def naive_mean_ranks(rows: pd.DataFrame) -> dict[str, float]:
    """By loops: mean over splits, then places on each table, then their mean."""
    totals = dict.fromkeys(MODELS, 0.0)
    for table in TABLES:
        means = {}
        for model in MODELS:
            here = [r.crps for r in rows.itertuples() if r.table == table and r.model == model]
            means[model] = sum(here) / len(here)
        for place, model in enumerate(sorted(MODELS, key=means.__getitem__), start=1):
            totals[model] += place / len(TABLES)
    return totals


def test_mean_ranks_are_those_of_loops(tmp_path: Path) -> None:
    rows = made_up(tmp_path)
    found = page_league.League(rows).mean_ranks("crps")
    assert dict(found) == pytest.approx(naive_mean_ranks(rows))


def test_losses_are_told_with_their_winner(tmp_path: Path) -> None:
    made_up(tmp_path)
    text, drawn = page.made(tmp_path)
    assert "On 3 tables of 4 widegp is first" in text
    assert "- **LightGBM** for tables like diamonds." in text
    assert set(drawn) == {"ranks", "tables", "time", "coverage"}
    assert "| LightGBM | 3 of 4" in text
    assert "python -m benchmarks.league.run ablation" in text


def test_a_failure_ranks_last_and_is_listed(tmp_path: Path) -> None:
    rows = made_up(tmp_path, skip=("lightgbm",))
    assert page_league.League(rows).mean_ranks("nll")["lightgbm"] == 3.0
    text, _ = page.made(tmp_path)
    assert "| LightGBM | failed | no / luck | airfoil, diamonds, servo and yacht |" in text


def test_a_row_made_later_or_with_more_time_counts(tmp_path: Path) -> None:
    rows = made_up(tmp_path)
    again = rows.iloc[[0]].assign(crps=9.0)
    assert standings.latest(pd.concat([rows, again])).crps.max() == 9.0
    shorter = rows.iloc[[0]].assign(crps=9.0, budget_s=1.0)
    assert standings.latest(pd.concat([rows, shorter])).crps.max() < 9.0


def test_models_are_compared_on_common_splits(tmp_path: Path) -> None:
    rows = made_up(tmp_path)
    fewer = rows.drop(rows.index[(rows.model == "linear") & (rows.table == "yacht") & (rows.fold == 1)])
    found = standings.standing(standings.of_kind(fewer, "regression"), "crps", list(MODELS), list(TABLES))
    only = rows[(rows.table == "yacht") & (rows.fold == 0)].set_index("model").crps
    assert found.splits["yacht"] == 1
    assert dict(found.scores.loc["yacht"]) == pytest.approx(dict(only))


def test_the_cost_model_finds_what_made_the_times() -> None:
    rows, workers = np.repeat([1e4, 4e4, 1.6e5], 3), np.tile([1.0, 2, 4], 3)
    seconds = 0.2 + 3e-5 * rows / workers
    model = scaling.cost_model(rows, workers, seconds)
    assert model.at(1e8, 100) == pytest.approx((30.2, 0.0), abs=1e-6)
    # With errors of 10% the true time lies within three standard errors, nearly always.
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(100):
        noisy = scaling.cost_model(rows, workers, seconds * (1 + 0.1 * rng.normal(size=9)))
        value, error = noisy.at(1e8, 100)
        missed += abs(value - 30.2) > 3 * error
    assert missed <= 3


def test_scaling_is_told_from_its_rows(tmp_path: Path) -> None:
    for each in scaling.jobs():
        setting = json.loads(each.settings)
        # Workers that share two cores take as long as two do, and are no part of the model.
        crowded = setting["workers"] > 2
        known = {name: getattr(each, name) for name in records.IDENTITY} | {"status": "ok"}
        known["detail"] = scaling.CROWDED if crowded else ""
        seconds = 0.1 + 1e-5 * setting["rows"] / min(setting["workers"], 2)
        records.append(
            tmp_path / "scaling.csv", known | {"rows": setting["rows"], "fit_s": seconds, "budget_s": 1.0}
        )
    text, _ = page_studies.clusters(standings.load("scaling", tmp_path))
    assert "| vfe | 0.10 | 10.00 | 0 | 0.725 ± " in text
    assert "| draw | 5,000 | 1.00 | 1.00 | 0.75 |" in text
    assert "12 rows had more workers than cores" in text


def test_the_page_is_what_the_committed_rows_make() -> None:
    assert page.PAGE.read_text() == page.made()[0], "run `make league-page`"
