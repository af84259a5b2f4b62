"""What a command prints, and the files it writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from widegp.table_model import TableModel


def console(stderr: bool = False) -> Console:
    """Progress goes to stderr, results to stdout: a pipe gets results alone."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def print_json(value: Mapping[str, Any]) -> None:
    """One object on stdout, strictly JSON: what is not a finite number is null."""
    from widegp.report.formatting import plain

    typer.echo(json.dumps(plain(value), allow_nan=False, ensure_ascii=False))


def warn(text: str) -> None:
    """One line on stderr."""
    print(f"Warning: {' '.join(text.split())}", file=sys.stderr)


def not_the_same(out: Path, **inputs: Path | None) -> None:
    """Refuse to write over what the command reads."""
    for name, path in inputs.items():
        if path is not None and out.exists() and path.exists() and out.samefile(path):
            raise typer.BadParameter(f"{out} is the {name} itself; pass another name.", param_hint="'--out'")


def summary_of(model: TableModel) -> dict[str, Any]:
    """The summary of a model with held-out rows."""
    from widegp.report import summarise

    assert model.held_out is not None
    return summarise(
        model.regressor, model.held_out, model.encoder.summary(), model.provenance,
        feature_names=model.encoder.feature_names,
        ranking=None if model.study is None else model.study.ranking,
    )  # fmt: skip
