"""Ctrl-C, kills and full disks, in processes of their own where signals and limits are real."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from cli.commands import QUICK, houses, run

from widegp.held_out import HeldOut
from widegp.table_model import TableModel


def same_fit(left, right):
    a, b = (TableModel.load(path).regressor for path in (left, right))
    assert a.params_.keys() == b.params_.keys()
    for name, value in a.params_.items():
        np.testing.assert_array_equal(value, b.params_[name])


def test_an_interrupted_fit_says_how_to_go_on_and_ends_the_same(table, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    fit = ["fit", table, "--target", "price", *QUICK, "--out"]
    assert run(*fit, tmp_path / "straight").exit_code == 0
    with monkeypatch.context() as interrupted:
        interrupted.setattr(HeldOut, "of", stop)
        plain = run(*fit, tmp_path / "m")
        kept = run(*fit, tmp_path / "m", "--checkpoint", tmp_path / "run")
    for result, words in ((plain, "--checkpoint"), (kept, "--resume")):
        assert result.exit_code == 130 and result.stdout == ""
        assert result.stderr.count("\n") == 1 and words in result.stderr
        assert result.stderr.startswith("Interrupted; ")
    assert not (tmp_path / "m").exists() and (tmp_path / "run" / "fit.journal").stat().st_size > 0
    assert run(*fit, tmp_path / "m", "--checkpoint", tmp_path / "run").exit_code == 2
    other = run(*fit, tmp_path / "m", "--checkpoint", tmp_path / "run", "--resume", "--seed", 1)
    assert other.exit_code == 2 and "another table or with other settings" in other.stderr
    resumed = run(*fit, tmp_path / "m", "--checkpoint", tmp_path / "run", "--resume")
    assert resumed.exit_code == 0 and resumed.stderr.startswith("Resuming from ")
    same_fit(tmp_path / "straight", tmp_path / "m")
    assert not (tmp_path / "run").exists()


def test_nothing_to_resume_is_said(table, tmp_path):
    fit = ["fit", table, "--target", "price", *QUICK, "--out", tmp_path / "m", "--resume"]
    result = run(*fit, "--checkpoint", tmp_path / "run")
    assert result.exit_code == 0 and (tmp_path / "m").exists()
    assert result.stderr == f"Nothing to resume in {tmp_path / 'run'}; starting afresh.\n"
    assert not (tmp_path / "run").exists()


def broken_off(*_, **__):
    """Compiled code that an interrupt breaks off and that reports something else."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise RuntimeError("a callback failed") from None


@pytest.mark.parametrize("where", ["load", "predict_columns"])
def test_an_interrupted_prediction_says_that_its_file_was_not_written(
    where, model, table, tmp_path, monkeypatch
):
    monkeypatch.setattr(TableModel, where, broken_off)
    result = run("predict", model, table, "--out", tmp_path / "p.csv")
    assert result.exit_code == 130 and os.listdir(tmp_path) == []
    assert "p.csv was not written. Run the same command" in result.stderr


def test_interrupts_before_the_first_evaluation_and_after_the_last(table, tmp_path, monkeypatch):
    fit = ["fit", table, "--target", "price", *QUICK, "--out", tmp_path / "m"]
    with monkeypatch.context() as early:
        early.setattr(TableModel, "fit", broken_off)
        result = run(*fit, "--checkpoint", tmp_path / "run")
    assert result.exit_code == 130 and "Begin again with: widegp" in result.stderr
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr("widegp.cli.fit._show", broken_off)
    result = run(*fit, "--checkpoint", tmp_path / "run")
    assert result.exit_code == 130 and f"its model is in {tmp_path / 'm'}." in result.stderr
    assert os.listdir(tmp_path) == ["m"]


def test_ctrl_c_in_a_process_of_its_own(tmp_path):
    houses(150).to_csv(tmp_path / "t.csv", index=False)
    fit = ["fit", "t.csv", "--target", "price", "--ard", "--out", "m", "--checkpoint", "run"]
    child = subprocess.Popen(
        [sys.executable, "-m", "widegp.cli", *fit],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    journal = tmp_path / "run" / "fit.journal"
    try:
        while child.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") > 5):
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        out, said = child.communicate(timeout=120)
    finally:
        child.kill()
    assert child.returncode == 130 and out == ""
    assert said.count("\n") == 1 and "widegp fit t.csv" in said and said.rstrip().endswith("--resume")
    assert sorted(os.listdir(tmp_path)) == ["run", "t.csv"] and os.listdir(tmp_path / "run") == [
        "fit.journal"
    ]


def test_a_termination_removes_what_was_begun(model, table, tmp_path, monkeypatch):
    def killed(*_):
        assert any(name.endswith(".tmp") for name in os.listdir(tmp_path))
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(os, "fsync", killed)
    result = run("predict", model, table, "--out", tmp_path / "p.csv")
    assert result.exit_code == 130 and result.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == [] and signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("out", ["p.csv", "p.parquet"])
def test_a_disk_that_fills_up(out, model, tmp_path):
    """A limit on the size of files fails in the middle of a write, as a full disk does."""
    houses(3000).to_csv(tmp_path / "t.csv", index=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        result = run("predict", model, tmp_path / "t.csv", "--out", tmp_path / out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.exit_code == 2 and result.stdout == "", result.stderr
    assert result.stderr.count("\n") == 1 and "space left on the disk" in result.stderr
    assert os.listdir(tmp_path) == ["t.csv"]
