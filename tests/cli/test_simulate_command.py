"""``widegp simulate``: the scenario's draw in a file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from cli.commands import run, run_json

from widegp.paper.scenarios import draw, sized


def test_the_table_is_the_draw_of_the_scenario(tmp_path):
    out = tmp_path / "c1.parquet"
    told = run_json("simulate", "C1", "--rows", 60, "--seed", 2, "--out", out)
    frame, made = pd.read_parquet(out), draw(sized("C1", 60), 2)
    assert list(frame.columns) == [f"x{j}" for j in range(1, 21)] + ["f", "y"]
    assert np.array_equal(frame["y"], made.y) and np.array_equal(frame["x20"], made.X[:, 19])
    assert told["rows"] == 60 and told["inputs"] == 20 and told["sigma_eps2"] == made.noise
    assert told["kbar"] == pytest.approx(2.13, abs=0.05)


def test_csv_and_methods(tmp_path):
    out = tmp_path / "c8.csv"
    result = run("simulate", "C8", "--rows", 30, "--method", "exact", "--out", out)
    assert result.exit_code == 0 and "30 rows of C8 with 80 inputs" in result.stdout
    frame = pd.read_csv(out)
    np.testing.assert_allclose(frame["f"], draw(sized("C8", 30), 0, method="exact").f, rtol=1e-12)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("C9", "--out", "a.csv"), "Unknown scenario 'C9'"),
        (("C1", "--out", "a.txt"), "name the format by its ending"),
        (("C1", "--out", "absent/a.csv"), "does not exist"),
        (("C1", "--out", "a.csv", "--rows", "1"), "too small; pass at least 2"),
    ],
)
def test_what_can_be_mended_is_said_in_one_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("simulate", *arguments)
    assert result.exit_code == 2 and words in result.stderr
    assert list(tmp_path.iterdir()) == []
