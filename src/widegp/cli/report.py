"""``widegp report``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widegp.cli import options
from widegp.cli.output import console, not_the_same, print_json

if TYPE_CHECKING:
    from widegp.table_model import TableModel


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
    if fitted.classes is not None:
        _report_classes(fitted, out, as_json)
        return
    from widegp.cli.display import bar
    from widegp.explain import explain
    from widegp.report import render_html, summarise
    from widegp.sources import source_columns

    names, sources = fitted.encoder.feature_names, source_columns(fitted.encoder)
    ranking = None if fitted.study is None else fitted.study.ranking
    with bar(console(stderr=True)) as progress:
        explanation = explain(
            fitted.regressor, fitted.inputs_held(), names, sources=sources, ranking=ranking, progress=progress
        )
    summary = summarise(
        fitted.regressor, fitted.held_out, fitted.encoder.summary(), fitted.provenance,
        explanation=explanation,
    )  # fmt: skip
    page = render_html(summary).encode()
    write_whole(out, page)
    if as_json:
        print_json({"out": str(out), "bytes": len(page), "verdict": summary["verdict"]})
    else:
        typer.echo(summary["verdict"]["headline"])
        typer.echo(f"The report is in {out} ({len(page) / 1024:.0f} KiB).")


def _report_classes(fitted: TableModel, out: Path, as_json: bool) -> None:
    from widegp.files import write_whole
    from widegp.report import render_html_classes, summarise_classes
    from widegp.report.classes import headline

    assert fitted.held_out is not None
    summary = summarise_classes(fitted.held_out, fitted.provenance, fitted.regressor.result_)
    page = render_html_classes(summary).encode()
    write_whole(out, page)
    if as_json:
        print_json({"out": str(out), "bytes": len(page), "scores": summary["scores"]})
    else:
        typer.echo(headline(summary))
        typer.echo(f"The report is in {out} ({len(page) / 1024:.0f} KiB).")
