"""Markdown of numbers: tables, and lists in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any


def number(value: Any, digits: int = 3) -> str:
    """A number to ``digits`` places, or a dash where there is none."""
    if isinstance(value, str):
        return value
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells are text already."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    names = list(names)
    if len(names) < 2:
        return "".join(names)
    return ", ".join(names[:-1]) + " and " + names[-1]


def counted(count: int, noun: str, many: str | None = None) -> str:
    """1 table, 2 tables."""
    return f"{count} {noun if count == 1 else many or noun + 's'}"
