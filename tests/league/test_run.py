"""Plan, records and limits of a run, and a fit from order to row; no peer need be installed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks import tables as shared
from benchmarks.league import ablation, job, plan, records, run, sensitivity
from benchmarks.league.models import MODELS, Limits, boosting
from benchmarks.league.records import Job
from benchmarks.league.tables import TABLES, task


def test_the_most_telling_jobs_come_first() -> None:
    jobs = list(plan.league())
    assert len({job.identity for job in jobs}) == len(jobs)
    first = jobs[: len(TABLES) * 4]
    assert {j.model for j in first} == set(plan.GROUPS[0]) and {j.fold for j in first} == {0}
    assert {(j.table, j.model) for j in first} == {(t, m) for t in TABLES for m in plan.GROUPS[0]}
    assert {m for group in plan.GROUPS for m in group} == set(MODELS)
    # Folds of a table with folds, seeds of one with a single split.
    assert {j.fold for j in jobs if j.table == "yacht"} == set(range(10))
    assert {(j.fold, j.seed) for j in jobs if j.table == "pol"} == {(0, 0), (0, 1), (0, 2)}


def test_studies_have_their_centre_and_their_default() -> None:
    settings = list(sensitivity.settings())
    assert settings[0] == sensitivity.CENTRE
    assert all(settings.count(setting) == 1 for setting in settings)
    for variant in ablation.VARIANTS.values():
        from widegp import WideGPRegressor

        WideGPRegressor(**variant)
    assert set(ablation.TABLES) | set(sensitivity.TABLES) <= set(TABLES)


def row_of(job: Job, **others: object) -> dict[str, object]:
    known = {name: getattr(job, name) for name in records.IDENTITY}
    return known | {"status": "ok", "budget_s": 5.0, "code": records.fingerprint(job.model)} | others


def test_what_is_done_is_not_run_again(tmp_path: Path) -> None:
    path, jobs = tmp_path / "new" / "league.csv", [Job(name, "linear") for name in ("yacht", "servo", "enb")]
    records.append(path, row_of(jobs[0], rmse=1 / 3))
    records.append(path, row_of(jobs[1], status="out of time", limit_s=10.0))
    records.append(path, row_of(jobs[2], code="another"))
    rows = records.read(path)
    assert float(rows[0]["rmse"]) == pytest.approx(1 / 3, rel=1e-5)
    assert records.done(rows, 5.0, 10.0, False) == {jobs[0].identity, jobs[1].identity}
    assert records.done(rows, 5.0, 20.0, True) == {jobs[0].identity, jobs[2].identity}


def test_tuned_models_are_asked_again_with_another_budget(tmp_path: Path) -> None:
    path, jobs = tmp_path / "league.csv", [Job("yacht", name) for name in ("linear", "hist-boosting")]
    for each in jobs:
        records.append(path, row_of(each))
    records.append(path, row_of(Job("yacht", "catboost"), status="not installed"))
    assert records.done(records.read(path), 7.0, 1.0, False) == {jobs[0].identity}


def test_a_fingerprint_looks_at_the_program_alone(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("a.py", "b.py", "c.py"))
    one.write_text('"""Said."""\nx = 1  # why\n')
    two.write_text('"""Said otherwise."""\n\nx=1\n')
    three.write_text("x = 2\n")
    assert records._bare(one) == records._bare(two) != records._bare(three)


def runner(tmp_path: Path, **changes: object) -> run.Runner:
    asked = {
        "job_seconds": 60.0,
        "memory_gib": 8.0,
        "deadline": 60.0,
        "end": 90.0,
        "threads": 1,
        "workers": 1,
    }
    asked |= {"wheels": None, "budget_seconds": 1.0} | changes
    return run.Runner(Namespace(**asked), tmp_path / "out.csv")


def watched(limited: run.Runner, program: str) -> str:
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as process:
        return limited._watched(process)


def test_jobs_keep_to_their_limits(tmp_path: Path) -> None:
    sleep = "import time; time.sleep(60)"
    assert watched(runner(tmp_path), "pass") == ""
    assert watched(runner(tmp_path, job_seconds=0.3), sleep) == "out of time"
    assert watched(runner(tmp_path, end=0.3), sleep) == "over"
    heavy = "x = bytearray(400 << 20); " + sleep
    assert watched(runner(tmp_path, memory_gib=0.2), heavy) == "out of memory"


def test_a_model_that_is_not_installed_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = MODELS["catboost"].__class__("x", "x", "x", needs=("no_such_module",))
    monkeypatch.setitem(MODELS, "catboost", absent)
    row = runner(tmp_path)._row(Job("yacht", "catboost"), 0)
    assert row is not None and row["status"] == "not installed" and row["detail"] == "no_such_module"


def test_a_failure_is_a_row_with_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = runner(tmp_path)
    broken.environment["PYTHONPATH"] = str(tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    row = broken._row(Job("yacht", "linear"), 0)
    assert row is not None and row["status"] == "failed" and "benchmarks" in row["detail"]


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with one table of text and folds, and one of several outputs."""
    rng = np.random.default_rng(0)
    x, group = rng.normal(size=80), np.where(rng.random(80) < 0.5, "a", "b")
    y = 2 * x + (group == "a") + 0.1 * rng.normal(size=80)
    pd.DataFrame({"x": x, "group": group, "y": y, "fold": np.arange(80) % 10}).to_parquet(
        tmp_path / "servo.parquet"
    )
    pd.DataFrame({"x": x, "p": y, "q": -y}).to_parquet(tmp_path / "enb.parquet")
    monkeypatch.setattr(shared, "FOLDER", tmp_path)


@pytest.mark.usefixtures("made_up")
def test_a_linear_model_learns_a_line() -> None:
    order = {"table": "servo", "model": "linear", "fold": 3, "seed": 0, "settings": "{}", "budget_s": 1.0}
    row = job.fitted(order | {"threads": 1})
    assert row["rows"] == 72 and row["kind"] == "regression"
    assert row["rmse"] < 0.1 and row["nll"] < -1 and row["fit_s"] > 0
    assert json.loads(json.dumps(row)) == row


@pytest.mark.usefixtures("made_up")
def test_outputs_are_fitted_one_by_one_and_averaged() -> None:
    order = {"table": "enb", "model": "linear", "fold": 0, "seed": 0, "settings": "{}", "budget_s": 1.0}
    both = job.fitted(order | {"threads": 1})
    # The second output is the first with its sign changed: its scores are the same.
    one = job.begin(__import__("benchmarks.league.models.linear", fromlist=["x"]), task("enb").output(0),
                    Limits(1.0, 1, 0), {})  # fmt: skip
    first = task("enb").output(0)
    error = np.sqrt(np.mean((one().mean - first.y_test) ** 2)) / first.y.std()
    assert both["rmse"] == pytest.approx(error)


@pytest.mark.usefixtures("made_up")
def test_text_becomes_categories_or_numbers() -> None:
    found = task("servo", 1)
    assert isinstance(found.typed[0]["group"].dtype, pd.CategoricalDtype)
    assert found.numbers[0].dtype == float and found.numbers[1].shape[0] == 8
    assert len(found.X) == 72


class Constant:
    """A booster whose prediction is its setting, whatever the rows."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.space = {"value": (3.0, 0.0, 1.0, 2.0)}
        self.seconds, self.grown = seconds, []

    def rows(self, task: object) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros((60, 1)), np.zeros((5, 1))

    def grow(self, X, y, loss, setting, held=None, rounds=None):  # type: ignore[no-untyped-def]
        time.sleep(self.seconds)
        self.grown.append(setting["value"])
        found = Namespace(rounds=np.array([4 if rounds is None else rounds[0]]))
        found.predict = lambda rows: np.full(len(rows), setting["value"])
        return found


def test_the_search_finds_the_lowest_loss_and_stops_in_time() -> None:
    y, parts = np.full(60, 1.1), boosting.left_out(60, 0)
    assert sorted(np.concatenate(parts)) == list(range(60))
    found = boosting.search(Constant(), np.zeros((60, 1)), y, boosting.SQUARED, parts, Limits(5.0, 1, 0))
    assert found.setting == {"value": 1.0} and found.rounds == [4]
    assert found.loss == pytest.approx(0.01)
    slow = Constant(0.02)
    boosting.search(slow, np.zeros((60, 1)), y, boosting.SQUARED, parts, Limits(0.01, 1, 0))
    # The library's own settings are tried first, in all five folds, and nothing after the time is over.
    assert slow.grown == [3.0] * 5


def test_the_dispersion_is_that_of_the_draws() -> None:
    rng = np.random.default_rng(0)
    mean = np.full(20_000, 30.0)
    y = rng.negative_binomial(1 / 0.4, (1 / 0.4) / (1 / 0.4 + mean)).astype(float)
    assert boosting.likeliest_dispersion(y, mean) == pytest.approx(0.4, rel=0.05)
