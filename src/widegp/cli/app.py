"""All commands in one place. To add one: write its function in a file of its own and name it in COMMANDS.

Files of commands import nothing heavy at the top, so that ``widegp --help`` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from widegp.cli.bench import bench
from widegp.cli.compare import compare
from widegp.cli.cost import cost
from widegp.cli.errors import GuardedCommands
from widegp.cli.explain import explain
from widegp.cli.fit import fit
from widegp.cli.identify import identify
from widegp.cli.paper import paper
from widegp.cli.predict import predict
from widegp.cli.report import report
from widegp.cli.simulate import simulate
from widegp.cli.update import update
from widegp.cli.warmup import warmup

COMMANDS: tuple[Callable[..., Any], ...] = (
    fit, predict, update, report, explain, compare, identify, simulate, paper, bench, cost, warmup,
)  # fmt: skip

app = typer.Typer(
    cls=GuardedCommands,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in COMMANDS:
    app.command(context_settings={"help_option_names": ["-h", "--help"]})(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from widegp import __version__

        typer.echo(f"widegp {__version__}")
        raise typer.Exit


@app.callback()
def widegp(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Predictions with intervals for the rows of a table, by Gaussian processes.

    \b
    Examples:
      widegp fit houses.csv --target price --out houses.widegp
      widegp predict houses.widegp new.csv --out predicted.csv
      widegp report houses.widegp --out report.html

    Exit codes: 0 done; 2 something to mend, said in one sentence; 130 interrupted; 1 a bug. With
    WIDEGP_TRACEBACK=1 in the environment an error shows where it arose.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
