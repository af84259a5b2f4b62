"""Where a model of a table comes from: rows, settings, versions, memory, and what was odd."""

from __future__ import annotations

import platform
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from widegp.approximations.registry import approximation
from widegp.conformal import rows_apart
from widegp.data.errors import quoted
from widegp.data.tables import TableSource
from widegp.machine import peak_memory, versions
from widegp.notices import in_words
from widegp.table_split import Split, TableSettings

# Notices of a split that are about its rows and its target; the others are about columns.
ABOUT_ROWS = ("no target", "notation", "held groups")


def of_table(table: TableSource, rows: int) -> dict[str, Any]:
    """Which file it was, if one, and how many of its rows have a target."""
    path = None if table.path is None else str(table.path)
    return {"path": path, "sha256": table.sha256(), "rows": rows}


def of_split(split: Split, settings: TableSettings) -> dict[str, Any]:
    """Which rows and columns were taken."""
    return {
        "target": settings.target, "drop": list(settings.drop), "seed": settings.seed,
        "test_fraction": settings.test_fraction, "group": settings.group, "missing": settings.missing,
        "rows": len(split.y), "rows_held_out": len(split.y_test),
        "details": details(split),
    }  # fmt: skip


def of_choice(model: Any) -> dict[str, Any]:
    """What ``"auto"`` took: the settings are what was asked for, and it may take less."""
    if model.approximation != "auto":
        return {}
    # Several outputs and classes share all that is told here.
    one = model.fitted_[0] if isinstance(model.fitted_, tuple) else model.fitted_
    anchors = {"anchors": len(one.anchors)} if approximation(one.approximation).anchors != "none" else {}
    return {"chosen": {"approximation": one.approximation} | anchors}


def of_machine() -> dict[str, Any]:
    """Versions and memory."""
    return {"peak_memory": peak_memory(), "versions": {"python": platform.python_version(), **versions()}}


def rows_known(model: Any, n_rows: int) -> int:
    """How many of the rows given to a model it predicts from: those that calibrate it are kept apart."""
    return n_rows - rows_apart(n_rows) if model.conformal else n_rows


def remarks(split: Split, model: Any) -> list[str]:
    """What becomes of rows: those left out, a target read in a notation of its own, those that calibrate."""
    apart = len(split.y) - rows_known(model, len(split.y))
    calibrated = [f"{apart:,} rows to fit were kept apart to calibrate what is predicted."] * bool(apart)
    gone = [f"{n.words(c)}." for n, c in split.warnings.items() if n.kind == "no target" and c]
    read = [f"Target {quoted(n.column)}: {n.words()}." for n in split.warnings if n.kind == "notation"]
    read += [f"Column {quoted(n.column)}: {n.words()}." for n in split.warnings if n.kind == "held groups"]
    return gone + read + calibrated


def details(split: Split) -> list[str]:
    """What the held-out rows have and the training rows have not, in one line."""
    about = Counter({n: c for n, c in split.warnings.items() if n.kind not in ABOUT_ROWS})
    told = in_words(about)
    return [f"Held-out rows: {'; '.join(told)}."] if told else []


def warned(split: Split) -> list[str]:
    """Inputs that look like row numbers."""
    out: list[str] = []
    alone = len(split.encoder.input_names) == 1
    for column in split.encoder.columns:
        ordered = [notice for notice in column.notes if notice.kind == "in order" and not alone]
        out += [f"{quoted(column.name)}: {notice.words()}." for notice in ordered]
    return out


def news(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """The texts of the warnings, each once; not what the result says itself, nor what is for developers."""
    quiet = (
        ConvergenceWarning,
        DeprecationWarning,
        PendingDeprecationWarning,
        FutureWarning,
        ResourceWarning,
    )
    return list(dict.fromkeys(str(w.message) for w in caught if not issubclass(w.category, quiet)))
