"""``widegp report``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from widegp.cli import options
from widegp.cli.output import not_the_same, print_json, summary_of


def report(
    model: options.ModelFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="File for the page.")],
    as_json: options.Json = False,
) -> None:
    """Write an HTML page about a model.

    Scores, calibration, parameters, inputs, and where the model comes from, in one file that loads nothing.

    \b
    Examples:
      widegp report houses.widegp --out report.html
    """
    not_the_same(out, model=model)
    from widegp.files import check_place, write_whole
    from widegp.table_model import TableModel

    check_place(out)
    fitted = TableModel.load(model)
    if fitted.held_out is None:
        raise ValueError(
            f"{model} was fitted on all rows and has no scores; fit it with --test-fraction above 0."
        )
    from widegp.report import headline, render_html

    summary = summary_of(fitted, explained=True)
    page = render_html(summary).encode()
    write_whole(out, page)
    if as_json:
        told = {"verdict": summary["verdict"]} if "verdict" in summary else {"headline": headline(summary)}
        print_json({"out": str(out), "bytes": len(page), **told})
    else:
        typer.echo(headline(summary))
        typer.echo(f"The report is in {out} ({len(page) / 1024:.0f} KiB).")
