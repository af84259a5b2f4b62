"""``widegp paper``"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from widegp.cli import options
from widegp.cli.errors import interrupted_with
from widegp.cli.output import print_json

DATA = "WIDEGP_DATA"


def paper(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WHAT]...", help="C1 to C8, tab:LABEL or fig:NAME; everything if left out."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the page, the tables, the results.")
    ] = Path("paper-report"),
    quick: Annotated[bool, typer.Option("--quick", help="Small tables and few draws: minutes.")] = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help=f"Folder of the real tables; ${DATA} by default."),
    ] = None,
    year_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YearPredictionMSD.txt as UCI has it: the whole of that table."),
    ] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Run the paper's tables again and compare.

    Each published number stands beside ours under the paper's own protocol and under the sound default.
    Every result is kept as it is made: the same command goes on where an interrupted one stopped.

    \b
    Examples:
      widegp paper --quick
      widegp paper C1
      widegp paper tab:real_metrics_50eps --data tables
      widegp paper --data tables --year-file YearPredictionMSD.txt --out paper-report
    """
    folder = _data(data)
    _must_exist(year_file, "--year-file")
    if out.exists() and not out.is_dir():
        raise typer.BadParameter(f"{out} is a file; pass the name of a folder.", param_hint="'--out'")
    with interrupted_with(lambda: _how_to_go_on(out)):
        from widegp.paper.plan import Plan, quick_plan
        from widegp.paper.run import parts_of, run_paper
        from widegp.progress import print_line

        targets = what or []
        parts_of(targets)
        full = Plan(seed=seed, data=folder, year_file=year_file)
        plan = quick_plan(seed, folder, year_file) if quick else full
        report = run_paper(out, plan, targets, print_line)
    kept, missed = report.marks()
    if as_json:
        rows = [row.to_dict() for table in report.comparisons.values() for row in table]
        print_json({"page": str(report.page), "kept": kept, "missed": missed, "comparisons": rows})
        return
    for rows_of_table in report.comparisons.values():
        for row in rows_of_table:
            if "miss" in (row.mark, row.sound_mark):
                typer.echo(_missed(row.to_dict()))
    typer.echo(f"{kept} bounds kept, {missed} missed. The report is {report.page}.")


def _how_to_go_on(out: Path) -> str:
    again = shlex.join(["widegp", *sys.argv[1:]])
    if not out.exists():
        return f"Interrupted; nothing was computed yet. Begin again with: {again}"
    return f"Interrupted; what was computed is in {out}. Go on with: {again}"


def _missed(row: dict) -> str:
    where = f"{row['table']}, {row['row']}, {row['quantity']}"
    if row["mark"] == "miss":
        ours = f"published {row['published']}, ours {row['paper']:.5g} (bound {row['bound']})"
    else:
        ours = f"sound default {row['sound']:.5g} ({row['sound_bound']})"
    return f"Missed: {where}: {ours}."


def _data(given: Path | None) -> Path | None:
    """The folder asked for, which must exist, or that of the environment, which may not."""
    _must_exist(given, "--data")
    if given is not None:
        return given
    named = os.environ.get(DATA)
    return Path(named) if named else None


def _must_exist(path: Path | None, option: str) -> None:
    if path is not None and not path.exists():
        raise typer.BadParameter(f"{path} does not exist; check the path.", param_hint=f"'{option}'")
