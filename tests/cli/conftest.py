"""One small table in a file and one small model of it, for all tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.commands import QUICK, houses, run


@pytest.fixture(scope="session")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("table") / "houses.csv"
    houses().to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory, table) -> Path:
    path = tmp_path_factory.mktemp("model") / "houses.widegp"
    result = run("fit", table, "--target", "price", "--out", path, "--test-fraction", 0.4, *QUICK)
    assert result.exit_code == 0, result.stderr
    return path
