"""``widegp explain``"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widegp.cli import options
from widegp.cli.output import console, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from widegp.progress import Listener, Progress
    from widegp.table_model import TableModel

SAMPLE_ROWS = 65536
BAR = 10
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
    from widegp.explain import explain as explained
    from widegp.sources import source_columns
    from widegp.table_model import TableModel

    fitted = TableModel.load(model)
    rows, basis = _held(fitted) if table is None else _rows(fitted, table, encoding)
    with _bar() as progress:
        found = explained(
            fitted.predicted.view(fitted.regressor), feature_names=fitted.encoder.feature_names,
            sources=source_columns(fitted.encoder), outputs=fitted.outputs, level=level, seed=seed,
            progress=progress, **rows,
        )  # fmt: skip
    if as_json:
        print_json({"model": str(model), "target": fitted.target, "basis": basis, **found})
    else:
        console().print(_as_text(found, ", ".join(fitted.predicted.names), basis, verbose))


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


def _bar() -> AbstractContextManager[Listener | None]:
    """A bar on a terminal, nothing elsewhere."""
    screen = console(stderr=True)
    return _ShownBar(screen) if screen.is_terminal else nullcontext()


class _ShownBar:
    def __init__(self, screen: Any) -> None:
        from rich import progress

        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(), console=screen, transient=True,
        )  # fmt: skip
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> Listener:
        self.bar.start()
        return self.tell

    def tell(self, event: Progress) -> None:
        if event.stage not in self.tasks:
            self.tasks[event.stage] = self.bar.add_task(event.stage, total=event.total)
        self.bar.update(self.tasks[event.stage], completed=event.iteration)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def _as_text(found: dict[str, Any], target: str, basis: str, verbose: bool) -> RenderableType:
    """Columns by importance with the ends of their effects, those that move together, then what is what."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from widegp.report.formatting import percent, share_words, short

    curves = {curve["name"]: curve for curve in found["partial_dependence"]}
    keys = [key for key in ("importance", "effect", "interactions", "weight")
            if any(entry[key] is not None for entry in found["inputs"])]  # fmt: skip
    shown = Table(title=Text(f"What drives {short(target)}"))
    shown.add_column("column")
    shown.add_column("0 to 100%")
    for name in map(Text, (*keys, f"{found['effects_on']} of {short(target)}")):
        shown.add_column(name, justify="right")
    for entry in found["inputs"]:
        cells = [share_words(entry, key) for key in keys]
        bar = "█" * round(BAR * min(max(entry[keys[0]] or 0.0, 0.0), 1.0))
        shown.add_row(Text(short(entry["name"])), bar, *cells, Text(_ends(curves.get(entry["name"]))))
    lines = [f"{g['words']} Shuffled as one: {share_words(g, keys[0])}." for g in found["together"]]
    lines += [f"{key.capitalize()}: {found['words'][key]}" for key in keys]
    lines += [f"Measured on {found['rows']:,} {basis}."]
    if verbose and found["balance"] is not None:
        shares = ", ".join(f"{name} {percent(part)}" for name, part in found["balance"]["share"].items())
        lines += [f"Prior variance by part: {shares}."]
    return Group(shown, *map(Text, lines))


def _ends(curve: dict[str, Any] | None) -> str:
    """First, middle and last value, to see a rise, a fall or a hump; of levels the lowest and highest."""
    from widegp.report.formatting import number, short

    if curve is None:
        return ""
    mean, output = curve["mean"], f"{short(curve['output'])}: " if "output" in curve else ""
    if curve["kind"] == "category":
        low, high = min(range(len(mean)), key=mean.__getitem__), max(range(len(mean)), key=mean.__getitem__)
        ends = " → ".join(f"{short(curve['labels'][g])} {number(mean[g])}" for g in (low, high))
        return output + ends
    chosen = [mean[0], mean[len(mean) // 2], mean[-1]] if len(mean) > 2 else mean
    return output + " → ".join(number(value) for value in chosen)
