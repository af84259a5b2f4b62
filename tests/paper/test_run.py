"""A whole run at toy sizes: every part, its files, and going on after a stop."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widegp.data.errors import TableError
from widegp.paper import real, run, studies
from widegp.paper.plan import quick_plan
from widegp.paper.published import TABLES
from widegp.paper.run import PARTS, TARGETS, parts_of, run_paper
from widegp.paper.scenarios import draw, sized
from widegp.progress import Progress
from widegp.simulate import SCENARIOS, mean_variance


def real_table(path, target, n, n_inputs, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_inputs))
    columns = {f"c{j}": X[:, j] for j in range(n_inputs)}
    pq.write_table(pa.table({**columns, target: 50 + 10 * np.tanh(X[:, 0]) + rng.normal(size=n)}), path)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    real_table(folder / real.SUPERCONDUCTIVITY, "critical_temp", 120, 5, 0)
    real_table(folder / real.YEAR_PART, "year", 130, 4, 1)
    return folder


@pytest.fixture(scope="module")
def plan(data):
    tiny = replace(
        quick_plan(data=data), rows=110, draws=2, splits=2, replications=2, rank=10, neighbors=4,
        predict_neighbors=8, sound_rows=80, ranks=(1000,), whole_rows=150, whole_inputs=3, whole_width=16,
        sound_sizes=(100,),
        cost_ranks=(5,), cost_neighbors=(0, 3), widths=(4, 8, 16), network_draws=20, profile_rows=25,
        spectrum_rows=30,
    )  # fmt: skip
    return tiny


@pytest.fixture(scope="module")
def few(monkeypatch_module):
    """One scenario of each kind and one profile: the others take the same path."""
    monkeypatch_module.setattr(run.scenarios, "NAMES", ("C1", "C8"))
    monkeypatch_module.setattr(studies, "PROFILED", ("w",))
    kept = {name: part for name, part in PARTS.items() if name not in [f"C{k}" for k in range(2, 8)]}
    monkeypatch_module.setattr(run, "PARTS", kept)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def report(plan, few, tmp_path_factory):
    return run_paper(tmp_path_factory.mktemp("report"), plan)


def test_every_table_is_compared(report):
    assert set(report.comparisons) == set(TABLES)
    for label, rows in report.comparisons.items():
        assert all(row.table == label for row in rows)
        assert any(row.paper is not None for row in rows), label


def test_csv_files_hold_the_comparisons(report):
    for label, rows in report.comparisons.items():
        path = report.page.parent / f"{label.removeprefix('tab:')}.csv"
        with path.open(newline="") as file:
            read = list(csv.DictReader(file))
        assert len(read) == len(rows)
        for cells, row in zip(read, rows, strict=True):
            assert cells["published"] == row.published and cells["mark"] == row.mark
            assert cells["paper"] == "" if row.paper is None else float(cells["paper"]) == row.paper


def test_the_page_has_every_table_and_figure_and_loads_nothing(report):
    page = report.page.read_text(encoding="utf-8")
    assert all(label in page for label in TABLES)
    assert page.count('<svg class="figure"') == 10
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "8,162 rows" in page and "quick run" in page
    kept, missed = report.marks()
    assert f"{kept} bounds kept, {missed} missed" in page and kept + missed > 30


def test_k_bar_is_that_of_the_papers_number_of_rows(report):
    rows = {r.row: r for r in report.comparisons["tab:cenarios_simulacao_kmix"] if r.quantity == "kbar"}
    for name in ("C1", "C8"):
        scenario, seed = SCENARIOS[name], ("C1", "C8").index(name)
        assert rows[name].paper == pytest.approx(mean_variance(scenario.kernel(), scenario.inputs(seed)))
        assert rows[name].mark == "pass"


def test_kernels_and_budgets_come_back_to_the_digits(report):
    for label in ("tab:corr-kernels", "tab:budget_r_choice"):
        assert {row.mark for row in report.comparisons[label]} == {"pass"}


def test_small_scenarios_are_not_marked(report):
    labels = ("tab:map_params_50eps_anchors", "tab:test_metrics_50eps_anchors", "tab:C1_reps_summary_50eps")
    for label in labels:
        assert {(row.mark, row.sound_mark) for row in report.comparisons[label]} == {("", "")}
        assert all("110 rows" in row.note for row in report.comparisons[label])


def test_a_part_of_the_year_table_has_no_bounds(report):
    years = [r for r in report.comparisons["tab:real_metrics_50eps"] if r.row.startswith("R1")]
    assert years and all(row.mark == "" for row in years)
    assert {r.quantity: r for r in years}["n_rows"].paper == 130


def test_the_same_run_again_computes_nothing(report, plan, few):
    again = run_paper(report.page.parent, plan, progress=lambda event: pytest.fail(str(event)))
    assert again.comparisons == report.comparisons


def test_a_lost_result_alone_is_computed_again(report, plan, few):
    lost = report.page.parent / "results" / "C1" / "paper-first-1.json"
    lost.unlink()
    said: list[Progress] = []
    run_paper(report.page.parent, plan, ["C1"], said.append)
    assert [event.stage.split(":")[0] for event in said] == ["C1/paper-first-1"]


def test_targets():
    assert parts_of([]) == list(run.PARTS)
    assert parts_of(["C8"]) == ["C8"]
    several = parts_of(["tab:budget_r_choice", "fig:calibration"])
    assert several == ["C1", "superconductivity", "ranks", "times"]
    assert set(TABLES) < set(TARGETS)
    with pytest.raises(ValueError, match=r"no 'C9' in the paper; choose from C1"):
        parts_of(["C9"])


def test_without_data_the_page_says_so(tmp_path, plan, few):
    report = run_paper(tmp_path, replace(plan, data=None), ["tab:real_metrics_50eps"])
    assert report.comparisons == {}
    assert report.page.exists()


def test_draws_are_the_scenarios_own(monkeypatch):
    small = replace(SCENARIOS["C1"], n_rows=40)
    monkeypatch.setitem(SCENARIOS, "C1", small)
    from widegp.simulate import draw_scenario

    ours, theirs = draw(sized("C1", 40), 3), draw_scenario("C1", 3)
    assert np.array_equal(ours.X, theirs.X) and np.array_equal(ours.y, theirs.y)


class TestYearFile:
    def test_the_first_column_is_the_year(self, tmp_path):
        path = tmp_path / "YearPredictionMSD.txt"
        rows = np.round(np.random.default_rng(0).normal(size=(6, 91)), 3)
        rows[:, 0] = np.arange(1999, 2005)
        path.write_text("\n".join(",".join(f"{v:g}" for v in row) for row in rows) + "\n")
        read = real.read_year_file(path)
        assert read.y.tolist() == rows[:, 0].tolist()
        np.testing.assert_allclose(read.X, rows[:, 1:])

    def test_another_table_is_refused_in_words(self, tmp_path):
        path = tmp_path / "other.txt"
        path.write_text("1,2,3\n4,5,6\n")
        with pytest.raises(TableError, match="3 columns where YearPredictionMSD"):
            real.read_year_file(path)
