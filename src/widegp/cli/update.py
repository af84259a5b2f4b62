"""``widegp update``"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widegp.cli import options
from widegp.cli.errors import interrupted_with
from widegp.cli.output import print_json, warn

if TYPE_CHECKING:
    from widegp.inference.result import FitResult


def update(
    model: options.ModelFile,
    table: options.TableFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="File for the model; by default MODEL itself."),
    ] = None,
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> None:
    """Add the rows of a table to a model, without a new fit.

    Predictions are then conditioned on these rows too; the parameters stay as they were fitted. Each row is
    first predicted from those before it: the answer says how well that went beside what the model expected,
    and whether it is time to fit again. The scores of a report stay those of the fit.

    \b
    Examples:
      widegp update houses.widegp today.csv
      widegp update houses.widegp today.csv --out houses-today.widegp
    """
    began, place = time.perf_counter(), model if out is None else out
    stopped = f"Interrupted; {place} is as it was. Run the same command to begin again."
    with interrupted_with(lambda: stopped):
        from widegp.data.tables import open_table
        from widegp.data.text import Reading
        from widegp.files import check_place
        from widegp.table_model import TableModel

        check_place(place)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            grown = TableModel.load(model).update(open_table(table, Reading(encoding=encoding)))
        grown.save(place)
    results = {name: part.result for name, part in zip(grown.predicted.names, grown.parts, strict=True)}
    said = [str(w.message) for w in caught if w.category is UserWarning]
    if as_json:
        each = {name: _told(result) for name, result in results.items()}
        told: dict[str, Any] = {"outputs": each} if len(each) > 1 else next(iter(each.values()))
        due = any(result.refit_due for result in results.values())
        told = {"out": str(place)} | told | {"refit_due": due, "warnings": said}
        print_json(told | {"seconds": time.perf_counter() - began})
        return
    for text in said:
        warn(text)
    for name, result in results.items():
        growth = result.growth[-1]
        typer.echo(f"{name}: {growth.words}" if len(results) > 1 else growth.words)
        if result.refit_due and not growth.refit_due:
            typer.echo("Together with rows added before them they are worse than chance: a new fit is due.")
    total = grown.provenance["rows_conditioned_on"]
    typer.echo(f"The model in {place} now knows {total:,} rows.")


def _told(result: FitResult) -> dict[str, Any]:
    """Of the rows that one output was given last."""
    growth = result.growth[-1]
    low, high = growth.range
    told = {"rows": growth.rows, "score": growth.score, "expected": growth.expected}
    return told | {"low": low, "high": high, "refit_due": result.refit_due}
