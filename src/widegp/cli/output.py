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


def summary_of(model: TableModel, explained: bool = False) -> dict[str, Any]:
    """The summary of a model with held-out rows; ``explained`` adds what drives it, which takes a while."""
    from widegp.report import own_explanation, summarise, summarise_classes, summarise_outputs

    held_out: Any = model.held_out
    assert held_out is not None
    ranking = None if model.study is None else model.study.ranking
    explanation = _explanation(model, ranking) if explained else None
    told, outputs = model.provenance, model.predicted.names
    columns = [column for column in model.encoder.summary() if column["name"] not in outputs]
    if model.outputs is None:
        regressor: Any = model.regressor
        explanation = explanation or own_explanation(regressor, model.encoder.feature_names, ranking)
        return summarise(regressor, held_out, columns, told, explanation=explanation)
    make = summarise_outputs if model.classes is None else summarise_classes
    summary = make(held_out, told, [part.result for part in model.parts], columns, explanation)
    return summary | {"ranking": [] if ranking is None else ranking["inputs"]}


def _explanation(model: TableModel, ranking: dict[str, Any] | None) -> dict[str, Any]:
    from widegp.cli.display import bar
    from widegp.explain import explain
    from widegp.sources import source_columns

    with bar(console(stderr=True)) as progress:
        return explain(
            model.predicted.view(model.regressor), model.inputs_held(), model.encoder.feature_names,
            sources=source_columns(model.encoder), outputs=model.outputs, ranking=ranking,
            progress=progress,
        )  # fmt: skip
