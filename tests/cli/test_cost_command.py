"""``widegp cost``: what it tells, for a table and for numbers alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from cli.commands import run, run_json

from widegp.choices.plan import chosen_plan
from widegp.cli.cost import duration
from widegp.cost import Calibration, Size, fit_seconds
from widegp.inference import choose
from widegp.inference.plan import fit_plan


@pytest.fixture(autouse=True)
def known_machine(monkeypatch):
    monkeypatch.setattr(choose, "calibrate", lambda *_: Calibration())


class TestPredictions:
    def test_sizes_alone(self):
        told = run_json("cost", "--rows", 1_000_000, "--inputs", 20)
        assert (told["rows"], told["inputs"]) == (1_000_000, 20)
        assert (told["approximation"], told["rank"], told["neighbors"]) == ("full-scale", 200, 30)
        size = Size("full-scale", 1_000_000, 20, 200, 30)
        assert told["fit_seconds"] == pytest.approx(fit_seconds(chosen_plan(size, Calibration())))
        plain = run_json("cost", "--rows", 1_000_000, "--inputs", 20, "--plain")
        assert plain["fit_seconds"] == pytest.approx(fit_seconds(fit_plan(size, Calibration())))
        assert told["fit_seconds"] == pytest.approx(sum(stage["seconds"] for stage in told["stages"]))
        assert [stage["stage"] for stage in told["stages"]][-3:] == ["whole", "posterior", "curvature"]
        assert told["seconds_per_1000_predictions"] > 0 and told["within_factor"] == 2
        assert 2**30 < told["peak_bytes"] < 2**34

    def test_a_table(self, table):
        told = run_json("cost", table, "--target", "price", "--drop", "id")
        # 80 rows, a tenth held out.
        assert told["rows"] == 72 and told["inputs"] >= 5
        assert told["approximation"] == "exact" and told["chosen"]
        assert told["rank"] is None and told["neighbors"] is None

    def test_dials_and_budget_decide(self):
        sizes = ("--rows", 50_000, "--inputs", 10)
        vfe = run_json("cost", *sizes, "--approximation", "vfe", "--rank", 300)
        assert (vfe["rank"], vfe["neighbors"], vfe["chosen"]) == (300, None, False)
        free = run_json("cost", *sizes)
        tight = run_json("cost", *sizes, "--budget", f"{0.3 * free['fit_seconds']:.0f}s")
        assert tight["rank"] < free["rank"] and tight["fit_seconds"] < 0.3 * free["fit_seconds"]
        plain = run_json("cost", *sizes, "--plain")["fit_seconds"]
        assert plain < free["fit_seconds"]
        assert run_json("cost", *sizes, "--plain", "--ard")["fit_seconds"] > 2 * plain

    def test_blocks_of_a_vast_table_are_known_too(self):
        assert run_json("cost", "--rows", 10**11, "--inputs", 3)["fit_seconds"] > 86_400

    def test_in_words(self):
        result = run("cost", "--rows", 40_000, "--inputs", 10)
        assert result.exit_code == 0
        shown = " ".join(result.stdout.split())
        for words in ("40,000 rows to fit, 10 inputs", "200 anchors, 30 neighbours (chosen by auto)", "about",
                      "coarse, 10,000 rows", "for 1,000 rows", "GiB above the table"):  # fmt: skip
            assert words in shown

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(0.0321, "0.032 s"), (7.26, "7.3 s"), (42.4, "42 s"), (100, "1.7 min"), (3600, "60 min"),
         (9000, "2.5 h"), (172_800, "2 days")],
    )  # fmt: skip
    def test_duration(self, seconds, text):
        assert duration(seconds) == text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "--rows and --inputs"),
        (("--rows", 100), "--rows and --inputs"),
        (("table", "--rows", 100, "--inputs", 3), "not both"),
        (("table",), "--target"),
        (("table", "--target", "nothing"), "nothing"),
        (("--rows", 1, "--inputs", 3), "--rows"),
    ],
)
def test_what_is_amiss_is_said(arguments, word, table):
    result = run("cost", *(table if a == "table" else a for a in arguments))
    assert result.exit_code == 2 and word in result.stderr and "Traceback" not in result.stderr


def test_classes_and_several_outputs_have_a_cost(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["x", "y", "z"]).assign(c=["yes", "no"] * 30)
    frame.to_csv(path := tmp_path / "t.csv", index=False)
    both = run_json("cost", path, "--target", "y", "--target", "z", "--drop", "c")
    assert (both["outputs"], both["inputs"], both["rows"]) == (2, 1, 54)
    classes = run_json("cost", path, "--target", "c")
    assert (classes["outputs"], classes["inputs"]) == (1, 3)
