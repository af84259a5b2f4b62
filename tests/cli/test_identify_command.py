"""``widegp identify``: what a table determines, on the terminal and as JSON."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from cli.commands import run, run_json

from widegp import WideGPRegressor
from widegp.identifiability import identify_table


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.uniform(-1, 1, (45, 2)), columns=["a", "b"])
    frame["y"] = np.tanh(2 * frame["a"]) + 0.5 * frame["b"] + rng.normal(0, 0.1, len(frame))
    path = tmp_path_factory.mktemp("identify") / "numbers.csv"
    frame.to_csv(path, index=False)
    return path


def test_json_is_what_the_library_finds(numbers):
    told = run_json("identify", numbers, "--target", "y", "--no-profile")
    frame = pd.read_csv(numbers)
    X, y = frame[["a", "b"]].to_numpy(), frame["y"].to_numpy()
    model = WideGPRegressor.plain(random_state=0).fit(X, y)
    found = identify_table(X, y, model, with_profile=False).to_dict()
    assert told["rows"] == 45 and told["profile"] is None
    for ours, theirs in zip(told["parameters"], found["parameters"], strict=True):
        assert ours["name"] == theirs["name"]
        assert ours["log_standard_error"] == pytest.approx(theirs["log_standard_error"], rel=1e-3)


def test_the_terminal_names_parameters_and_a_profile(numbers):
    result = run("identify", numbers, "--target", "y", "--parameter", "w")
    assert result.exit_code == 0, result.stderr
    for words in ("sigma_eps2", "data alone", "Condition number", "Profile of w"):
        assert words in result.stdout


def test_a_parameter_that_is_not_there(numbers):
    result = run("identify", numbers, "--target", "y", "--parameter", "beta")
    assert result.exit_code == 2 and "no parameter 'beta'" in result.stderr
