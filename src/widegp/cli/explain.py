"""``widegp explain``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widegp.cli import options
from widegp.cli.output import console, print_json

if TYPE_CHECKING:
    from widegp.table_model import TableModel

SAMPLE_ROWS = 65536
# What a number rests on is said with it: only rows that the fit has not seen can tell what helps.
HELD_OUT = "rows that were held out when fitting"
OWN = (
    "rows that the model was fitted on: it has no held-out rows, so that there is no importance; pass a TABLE"
    " of other rows with the target, or fit again with --test-fraction above 0"
)


def explain(
    model: options.ModelFile,
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TABLE]",
            help="New rows, with the target, to explain the model on; by default its held-out ones.",
            callback=options.existing,
        ),
    ] = None,
    encoding: options.Encoding = None,
    level: options.Level = 0.95,
    seed: options.Seed = 0,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Say which columns a model needs, and what it does with them.

    Columns are shuffled between rows that were held out when fitting, or between the rows of TABLE, which
    should be rows that the fit has not seen.

    \b
    Examples:
      widegp explain houses.widegp
      widegp explain houses.widegp sold-later.csv --json
    """
    from widegp.cli.display import bar
    from widegp.explain import explain as explained
    from widegp.report.explained import render_explanation
    from widegp.sources import source_columns
    from widegp.table_model import TableModel

    fitted = TableModel.load(model)
    rows, basis = _held(fitted) if table is None else _rows(fitted, table, encoding)
    with bar(console(stderr=True)) as progress:
        found = explained(
            fitted.predicted.view(fitted.regressor), feature_names=fitted.encoder.feature_names,
            sources=source_columns(fitted.encoder), outputs=fitted.outputs, level=level, seed=seed,
            progress=progress, **rows,
        )  # fmt: skip
    if as_json:
        print_json({"model": str(model), "target": fitted.target, "basis": basis, **found})
    else:
        render_explanation(found, ", ".join(fitted.predicted.names), basis, verbose, console())


def _held(model: TableModel) -> tuple[dict[str, Any], str]:
    """The rows that the model holds, and what they are."""
    rows: dict[str, Any] = {"X_sample": model.inputs_held()}
    if model.study is None:
        return rows, OWN
    return rows | {"ranking": model.study.ranking}, HELD_OUT


def _rows(model: TableModel, table: Path, encoding: str | None) -> tuple[dict[str, Any], str]:
    """The first rows of a table, averages need no more, with their targets if it has them."""
    import numpy as np

    from widegp.data.tables import first_batch, open_table
    from widegp.data.text import Reading

    source = open_table(table, Reading(encoding=encoding))
    batch = next(source.batches(SAMPLE_ROWS))
    X = model.encoder.transform(batch)[0]
    lacking = [name for name in model.predicted.names if name not in source.names]
    if lacking:
        basis = f"rows of {table}, which has no {lacking[0]!r}, so that there is no importance"
        return {"X_sample": X}, basis
    y = model.observed(first_batch(source, batch))
    known = np.isfinite(y if y.ndim == 1 else y.sum(axis=1))
    rows = {"X_sample": X[known], "y": y[known]}
    if source.sha256() == model.provenance["table"]["sha256"]:
        return rows, f"rows of {table}, which the model was fitted on, so that columns look needed too much"
    return rows, f"rows of {table}"
