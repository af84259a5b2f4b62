"""A small table, and a way to run commands in this process."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from widegp.cli.app import app

QUICK = ("--approximation", "vfe", "--rank", "8", "--plain")


def houses(n: int = 80, seed: int = 0) -> pd.DataFrame:
    """Numbers, words, dates, gaps and an identifier; price is nearly linear in size and rooms."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "id": [f"{i:04d}x" for i in range(n)],
            "size": rng.uniform(20, 200, n).round(1),
            "rooms": rng.integers(1, 7, n),
            "city": rng.choice(["Aix", "Bonn, old", 'C"hur'], n),
            "built": pd.date_range("2000-01-01", periods=n, freq="40D").strftime("%Y-%m-%d"),
        }
    )
    noise = rng.normal(0, 10, n)
    frame["price"] = (3 * frame["size"] + 20 * frame["rooms"] + 50 * (frame["city"] == "Aix") + noise).round(
        2
    )
    frame.loc[3, "size"] = np.nan
    return frame


def run(*arguments: object):
    """The result of ``widegp`` with these arguments."""
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="widegp")


def run_json(*arguments: object) -> dict:
    """What a command prints with --json, and that it prints nothing else."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@contextmanager
def without_rights():
    """Rights of files count inside, for root too."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
