"""``widegp explain``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widegp.cli import options
from widegp.cli.output import console, print_json

if TYPE_CHECKING:
    import numpy as np
    from rich.console import RenderableType

    from widegp.table_model import TableModel

SAMPLE_ROWS = 65536


def explain(
    model: options.ModelFile,
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TABLE]",
            help="Rows to explain the model on; its own if left out.",
            callback=options.existing,
        ),
    ] = None,
    encoding: options.Encoding = None,
    level: options.Level = 0.95,
    seed: options.Seed = 0,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Say which inputs drive a model, and how.

    Effects are averages over rows: of TABLE, or of the anchors and rows that the model holds.

    \b
    Examples:
      widegp explain houses.widegp
      widegp explain houses.widegp houses.csv --json
    """
    from widegp.explain import explain as explained
    from widegp.explain import source_columns
    from widegp.table_model import TableModel

    fitted = TableModel.load(model)
    rows = fitted.inputs_held() if table is None else _rows(fitted, table, encoding)
    found = explained(
        fitted.regressor, rows, fitted.encoder.feature_names,
        sources=source_columns(fitted.encoder), level=level, seed=seed,
    )  # fmt: skip
    if as_json:
        print_json({"model": str(model), "target": fitted.target, **found})
    else:
        console().print(_as_text(found, fitted.target, verbose))


def _rows(model: TableModel, table: Path, encoding: str | None) -> np.ndarray:
    """The inputs of the first rows of a table: averages need no more."""
    from widegp.data.tables import open_table
    from widegp.data.text import Reading

    batch = next(open_table(table, Reading(encoding=encoding)).batches(SAMPLE_ROWS))
    rows: np.ndarray = model.encoder.transform(batch)[0]
    return rows


def _as_text(found: dict[str, Any], target: str, verbose: bool) -> RenderableType:
    """Inputs by effect with the ends of their curves; ``verbose``, the balance of the kernel's parts too."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from widegp.report.formatting import number, percent, short

    # A curve along one level of a category is not one along the category: its name tells them apart.
    curves = {(curve["index"], curve["name"]): curve for curve in found["partial_dependence"]}
    inputs = Table(title=Text(f"What drives {short(target)}"))
    for name in ("input", "effect", "weight", Text(f"mean of {short(target)} from low to high")):
        inputs.add_column(name, justify="left" if name == "input" else "right")
    for entry in found["inputs"]:
        curve = curves.get((entry["index"], entry["name"]))
        ends = "" if curve is None else " → ".join(number(v) for v in _ends(curve["mean"]))
        inputs.add_row(Text(short(entry["name"])), percent(entry["effect"]), percent(entry["weight"]), ends)
    shares = ", ".join(f"{name} {percent(share)}" for name, share in found["balance"]["share"].items())
    words = [found["words"]["effect"], found["words"]["weight"]]
    words += [f"Prior variance by part: {shares}."] if verbose else []
    return Group(inputs, *map(Text, words))


def _ends(curve: list[float]) -> list[float]:
    """First, middle and last value: enough to see a rise, a fall or a hump."""
    return [curve[0], curve[len(curve) // 2], curve[-1]] if len(curve) > 2 else curve
