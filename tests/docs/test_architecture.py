"""The map of the rooms in docs/architecture.md: every room of the package is on it, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What makes the package a package has no room: the list of public names.
APART = {"__init__.py", "__pycache__", "py.typed"}


def rooms_of_the_table() -> set[str]:
    """All names in backticks in the first column of the first table."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.split("| room |")[1].split("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for cell in first for name in re.findall(r"`([^`]+)`", cell)}


def test_every_module_and_package_is_in_the_table_of_rooms():
    found = {path.name + "/" * path.is_dir() for path in (ROOT / "src" / "widegp").iterdir()}
    found = {name for name in found if name.rstrip("/") not in APART}
    # Some rooms are named by the one file of a package that matters there.
    told = {name for name in rooms_of_the_table() if name.count("/") == name.endswith("/")}
    assert found == told, f"missing: {sorted(found - told)}; gone: {sorted(told - found)}"
