"""``widegp fit``"""

from __future__ import annotations

import contextlib
import shlex
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widegp.cli import options
from widegp.cli.display import FitDisplay
from widegp.cli.errors import interrupted_with
from widegp.cli.output import console, not_the_same, print_json, summary_of, warn

if TYPE_CHECKING:
    from widegp.table_model import TableModel

JOURNAL = "fit.journal"
# Columns named in the line of those left out.
MOST_NAMED = 8


def fit(
    table: options.TableFile,
    targets: options.Targets,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="File for the model.")],
    drop: options.Drop = None,
    likelihood: options.LikelihoodOption = "auto",
    kernel: options.KernelName = "auto",
    rank: options.Rank = 500,
    neighbors: options.Neighbors = 30,
    predict_neighbors: options.PredictNeighbors = 400,
    approximation: options.ApproximationOption = "auto",
    anchors: options.Anchors = "kmeans",
    ard: options.Ard = False,
    transform: options.TransformOption = None,
    plain: options.Plain = False,
    conformal: options.Conformal = False,
    budget: options.Budget = None,
    test_fraction: options.TestFraction = 0.1,
    group: options.Group = None,
    seed: options.Seed = 0,
    missing: options.Missing = "impute",
    missing_target: options.MissingTarget = "leave-out",
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    dates: options.Dates = None,
    encoding: options.Encoding = None,
    keep_held_out: Annotated[
        bool, typer.Option("--keep-held-out", help="Leave the held-out rows out of the saved model too.")
    ] = False,
    backend: options.BackendOption = "auto",
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder in which every step is written down as it is made."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the fit in --checkpoint.")] = False,
    yardstick: Annotated[
        bool, typer.Option("--yardstick/--no-yardstick", help="Gradient boosting beside it, in seconds.")
    ] = True,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Fit a model to a table and save it.

    Some rows are held out to score the model, whose parameters are estimated from the others. The saved model
    has the same parameters and has then seen all rows, unless --keep-held-out is given. Gradient boosting is
    fitted on the same rows, so that its error stands beside.

    \b
    Examples:
      widegp fit houses.csv --target price --out houses.widegp
      widegp fit rock.csv --target cadmium --target zinc --out rock.widegp
      widegp fit visits.csv --target visits --likelihood negative-binomial --out visits.widegp
      widegp fit houses.parquet --target price --drop id,street --ard --budget 5m --out houses.widegp
      widegp fit patients.csv --target score --group patient --out patients.widegp
      widegp fit haeuser.csv --target preis --decimal , --encoding cp1252 --out haeuser.widegp
      widegp fit big.parquet --target y --checkpoint run1 --out big.widegp
      widegp fit big.parquet --target y --checkpoint run1 --resume --out big.widegp
    """
    not_the_same(out, table=table)
    journal = _journal(checkpoint, resume)
    settings = options.regressor_settings(
        kernel=kernel, rank=rank, neighbors=neighbors, predict_neighbors=predict_neighbors,
        approximation=approximation, anchors=anchors, ard=ard, transform=transform, plain=plain,
        conformal=conformal, budget=budget, backend=backend, likelihood=likelihood,
        checkpoint=None if journal is None else str(journal),
    )  # fmt: skip
    if resume and journal is not None:
        _say_what_is_resumed(journal)
    saved = False
    with interrupted_with(lambda: _how_to_go_on(journal, out if saved else None)):
        with FitDisplay(console(stderr=True), budget) as display, _folder(journal):
            model = _fitted(
                table, targets, out, display, settings, drop=options.columns(drop),
                test_fraction=test_fraction, group=group, seed=seed, missing=missing,
                missing_target=missing_target, keep_held_out=keep_held_out, yardstick=yardstick,
                decimal=decimal, thousands=thousands, dates=dates, encoding=encoding,
            )  # fmt: skip
            saved = True
            if journal is not None:
                # The model is on disk: nothing is left to go on with.
                journal.unlink(missing_ok=True)
        _show(model, out, as_json, verbose)


def _fitted(
    table: Path, targets: list[str], out: Path, display: FitDisplay, settings: dict[str, Any], **split: Any
) -> TableModel:
    """The model, saved to ``out``; ``split`` says which columns and rows to fit on."""
    from widegp.files import check_place
    from widegp.table_model import TableModel

    # Hours of fitting must not end at a file that cannot be written.
    check_place(out)
    with warnings.catch_warnings():
        # They are kept with the model and shown with the scores.
        warnings.simplefilter("ignore")
        if display.budget is not None:
            settings = settings | {"budget": max(1.0, display.budget - display.spent)}
        model = TableModel.fit(
            table, targets, progress=display.update, command=_command(), **split, **settings
        )
        model.save(out)
    return model


def _journal(checkpoint: Path | None, resume: bool) -> Path | None:
    """The journal's file, which must be there only to go on with."""
    if checkpoint is None:
        if resume:
            raise typer.BadParameter(
                "it needs --checkpoint DIR, the folder of the fit to go on with.", param_hint="'--resume'"
            )
        return None
    if checkpoint.exists() and not checkpoint.is_dir():
        raise typer.BadParameter(
            f"{checkpoint} is a file; pass the name of a folder.", param_hint="'--checkpoint'"
        )
    journal = checkpoint / JOURNAL
    if journal.exists() and not resume:
        raise typer.BadParameter(
            f"{journal} holds an unfinished fit; pass --resume to go on with it, or remove the file.",
            param_hint="'--checkpoint'",
        )
    return journal


@contextlib.contextmanager
def _folder(journal: Path | None) -> Iterator[None]:
    """The folder of the journal, made if need be; this fit's, begun here or earlier, is removed if empty."""
    own = journal is not None and (journal.exists() or not journal.parent.exists())
    if journal is not None:
        journal.parent.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if own and journal is not None and not journal.exists():
            with contextlib.suppress(OSError):
                journal.parent.rmdir()


def _say_what_is_resumed(journal: Path) -> None:
    """One line on stderr; a journal that is none is refused later."""
    if not journal.exists():
        typer.echo(f"Nothing to resume in {journal.parent}; starting afresh.", err=True)
        return
    from widegp.inference.journal import evaluations

    if known := evaluations(journal):
        typer.echo(f"Resuming from {known:,} evaluations in {journal}.", err=True)


def _how_to_go_on(journal: Path | None, saved: Path | None) -> str:
    if saved is not None:
        return f"Interrupted; the fit is finished and its model is in {saved}."
    if journal is None:
        return "Interrupted; no model was written. With --checkpoint DIR a fit can go on where it stopped."
    if not journal.exists():
        return f"Interrupted; no model was written and nothing computed yet. Begin again with: {_command()}"
    again = _command() if "--resume" in sys.argv else f"{_command()} --resume"
    return f"Interrupted; what was computed is in {journal}. Go on with: {again}"


def _command() -> str:
    return shlex.join(["widegp", *sys.argv[1:]])


def _show(model: TableModel, out: Path, as_json: bool, verbose: bool) -> None:
    from widegp.report.formatting import seconds

    if model.held_out is None:
        _show_unscored(model, out, as_json)
        return
    summary = summary_of(model)
    if as_json:
        print_json({"model": str(out)} | _compact(summary))
        return
    from widegp.report import render_terminal

    screen = console()
    render_terminal(summary, screen, verbose)
    told = model.provenance
    for text in told.get("remarks", ()):
        typer.echo(text)
    _print_left_out(model)
    seen = f"parameters as scored, predictions from all {told['rows_conditioned_on']:,} rows"
    if told["rows_conditioned_on"] <= told["rows"]:
        seen = f"the model as scored, fitted on {told['rows_conditioned_on']:,} training rows"
    took = seconds(told["seconds"])
    screen.print(f"Saved to {out} after {took}: {seen}.", markup=False)


def _print_left_out(model: TableModel) -> None:
    """One line for the columns that the fit could not use, one for those written in a notation of their own.

    What was dropped by choice is no news.
    """
    notices = [notice for column in model.encoder.columns for notice in column.notes]
    apart = [notice for notice in notices if notice.is_left_out and notice.kind != "by choice"]
    for title, news in (("Left out", apart), ("Read", [n for n in notices if n.kind == "notation"])):
        told = [f"{' '.join(notice.column.split())} ({notice.words()})" for notice in news]
        more = f" and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
        if told:
            typer.echo(f"{title}: {', '.join(told[:MOST_NAMED])}{more}.")


def _compact(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary without the points of its plots."""
    from widegp.report.notices import sentences

    if "parameters" not in summary:
        return {key: value for key, value in summary.items() if key not in ("curves", "held_out")}
    kept = ("target", "verdict", "notices", "yardstick", "scores", "undetermined", "columns", "provenance")
    apart = {"fit": ("path",), "held_out": ("points", "calibration", "pit", "quantiles", "trend")}
    compact = {key: summary[key] for key in kept} | {"warnings": sentences(summary["notices"])}
    for part, left_out in apart.items():
        compact[part] = {key: value for key, value in summary[part].items() if key not in left_out}
    compact["model_settings"] = summary["model"]
    compact["parameters"] = [
        {key: value for key, value in entry.items() if key != "curves"} for entry in summary["parameters"]
    ]
    return compact


def _show_unscored(model: TableModel, out: Path, as_json: bool) -> None:
    regressor, told = model.regressor, model.provenance
    first = model.parts[0]
    if as_json:
        result = {"reason": first.result.reason, "converged": regressor.converged_}
        params = [part.params for part in model.parts] if len(model.parts) > 1 else first.params
        parts = {"scores": None, "fit": result, "parameters": params, "provenance": told}
        print_json({"model": str(out), "target": model.target, "warnings": told["warnings"]} | parts)
        return
    for text in told["warnings"]:
        warn(text)
    for text in told.get("remarks", ()):
        typer.echo(text)
    _print_left_out(model)
    typer.echo(f"Fit: {first.result.reason}. No row was held out, so there are no scores.")
    typer.echo(f"Saved to {out}: the model fitted on all {told['rows']:,} rows.")
