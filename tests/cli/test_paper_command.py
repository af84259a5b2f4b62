"""``widegp paper``: targets, folders, interrupts."""

from __future__ import annotations

import pytest
from cli.commands import run, run_json

from widegp.paper import run as paper_run


def test_a_table_by_its_label(tmp_path):
    out = tmp_path / "report"
    told = run_json("paper", "tab:corr-kernels", "--quick", "--out", out)
    assert told["kept"] == 3 and told["missed"] == 0
    assert [row["published"] for row in told["comparisons"]] == ["0.9999", "0.9983", "0.9919"]
    assert (out / "index.html").exists() and (out / "corr-kernels.csv").exists()


def test_a_missed_bound_is_named(tmp_path, monkeypatch):
    off = {"tanh x sigmoid": 0.5}
    monkeypatch.setitem(paper_run.PARTS, "kernels", lambda plan, store: off)
    result = run("paper", "tab:corr-kernels", "--quick", "--out", tmp_path / "r")
    assert result.exit_code == 0
    where = "tab:corr-kernels, tanh x sigmoid, correlation"
    assert f"Missed: {where}: published 0.9999, ours 0.5 (bound 5e-05)." in result.stdout
    assert "0 bounds kept, 1 missed" in result.stdout


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("C9",), "There is no 'C9' in the paper; choose from C1"),
        (("--data", "absent"), "absent does not exist"),
        (("--year-file", "absent.txt"), "absent.txt does not exist"),
        (("--out", "file"), "file is a file; pass the name of a folder"),
    ],
)
def test_what_can_be_mended_is_said_in_one_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    result = run("paper", *arguments)
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())


def test_an_interrupt_says_how_to_go_on(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(paper_run.PARTS, "kernels", stop)
    result = run("paper", "tab:corr-kernels", "--out", tmp_path / "r")
    assert result.exit_code == 130 and "what was computed is in" in result.stderr


def test_the_folder_of_the_environment_may_be_absent(tmp_path, monkeypatch):
    monkeypatch.setenv("WIDEGP_DATA", str(tmp_path / "absent"))
    told = run_json("paper", "tab:real_metrics_50eps", "--quick", "--out", tmp_path / "r")
    assert told["comparisons"] == []
