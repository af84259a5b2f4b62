"""``widegp cost``"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from widegp.cli import options
from widegp.cli.output import console, print_json

if TYPE_CHECKING:
    from widegp.approximations.layout import Dials
    from widegp.compute.backend import Backend
    from widegp.cost import Calibration, Size, Stage

# Rows of made-up numbers on which single evaluations are timed.
TIMED_ROWS = 6000
# No block has more rows, so that a larger table need not be imagined to know its blocks.
MANY_ROWS = 2**22


PerhapsTable = Annotated[
    Path | None, typer.Argument(metavar="[TABLE]", help="The table, as for 'widegp fit'.")
]
PerhapsTargets = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", metavar="TEXT", help="Column to predict, needed with TABLE; may be repeated."
    ),
]


class Asked(NamedTuple):
    """The settings of 'widegp fit' that decide its cost."""

    approximation: str
    rank: int
    neighbors: int
    predict_neighbors: int
    ard: bool
    plain: bool
    budget: float | None
    backend: str


def cost(
    table: PerhapsTable = None,
    targets: PerhapsTargets = None,
    drop: options.Drop = None,
    rows: Annotated[int | None, typer.Option(min=3, help="Rows to fit, instead of TABLE.")] = None,
    inputs: Annotated[int | None, typer.Option(min=1, help="Inputs, instead of TABLE.")] = None,
    rank: options.Rank = 500,
    neighbors: options.Neighbors = 30,
    predict_neighbors: options.PredictNeighbors = 400,
    approximation: options.ApproximationOption = "auto",
    ard: options.Ard = False,
    plain: options.Plain = False,
    budget: options.Budget = None,
    test_fraction: options.TestFraction = 0.1,
    missing: options.Missing = "impute",
    missing_target: options.MissingTarget = "leave-out",
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    dates: options.Dates = None,
    encoding: options.Encoding = None,
    backend: options.BackendOption = "auto",
    as_json: options.Json = False,
) -> None:
    """Say what a fit will cost on this machine, before it starts.

    Single evaluations on made-up numbers are timed for some seconds; counts of work do the rest. The dials
    are those that 'widegp fit' would choose; its trials on held-out rows are counted unless --plain, --ard
    or --budget leave them out, and so are its scores: predictions of the held-out rows, shuffled columns,
    gradient boosting. Times hold to within a factor of 2 on an idle machine. Classes and counts are taken
    for numbers, several outputs for as many fits.

    \b
    Examples:
      widegp cost --rows 1000000 --inputs 20
      widegp cost --rows 1000000 --inputs 20 --approximation vfe --rank 300
      widegp cost houses.parquet --target price --budget 5m --json
    """
    fitted, scored = _shape(
        table, rows, inputs, drop, targets, test_fraction=test_fraction, missing=missing,
        missing_target=missing_target, decimal=decimal, thousands=thousands, dates=dates, encoding=encoding,
    )  # fmt: skip
    asked = Asked(approximation, rank, neighbors, predict_neighbors, ard, plain, budget, backend)
    told = _told(asked, fitted, scored, max(1, len(targets or ())))
    if as_json:
        print_json(told)
    else:
        _show(told)


def _told(asked: Asked, fitted: tuple[int, int], scored: tuple[int, int], outputs: int = 1) -> dict[str, Any]:
    """All that the command tells of so many rows to fit and inputs, rows to score and columns; several
    outputs are counted one by one, classes and counts as numbers.
    """
    from widegp.approximations.layout import Dials
    from widegp.choices.plan import chosen_plan
    from widegp.command_time import AfterFit
    from widegp.compute.backend import choose_backend
    from widegp.cost import Size
    from widegp.inference.choose import choose_dials
    from widegp.inference.plan import fit_plan
    from widegp.kernels.registry import USUAL, named

    (n, n_inputs), ard, budget = fitted, asked.ard, asked.budget
    kernel = named(USUAL).at_start(n_inputs)
    backend = choose_backend(kernel, asked.backend)
    rates = _rates(min(n, TIMED_ROWS), n_inputs, kernel, backend)
    wanted = Dials(asked.approximation, asked.rank, asked.neighbors, "kmeans", "random", None)
    dials = choose_dials(wanted, n, n_inputs, ard, budget, lambda: rates)
    size = Size.of(dials, fitted, ard)
    plan = (fit_plan if asked.plain or ard or budget is not None else chosen_plan)(size, rates)
    plan = tuple(replace(s, before=outputs * s.before, each=outputs * s.each) for s in plan)
    told = _predicted(size, plan, asked.predict_neighbors, rates, _block_rows(dials, size, backend))
    told["chosen"] = asked.approximation == "auto"
    after = AfterFit(*scored, asked.predict_neighbors).plan(size, rates)
    told["outputs"] = outputs
    told["scoring"] = [{"stage": s.name, "seconds": outputs * s.seconds} for s in after]
    told["command_seconds"] = told["fit_seconds"] + sum(stage["seconds"] for stage in told["scoring"])
    return told


def _shape(
    table: Path | None, rows: int | None, inputs: int | None, drop: list[str] | None,
    targets: list[str] | None, **given: Any,
) -> tuple[tuple[int, int], tuple[int, int]]:  # fmt: skip
    """Rows to fit and inputs after encoding; rows to score and columns of the table."""
    if table is None:
        if rows is None or inputs is None:
            raise typer.BadParameter("pass a TABLE with its --target, or both --rows and --inputs.")
        share = given["test_fraction"]
        return (rows, inputs), (int(rows * share / (1 - share)), inputs)
    if rows is not None or inputs is not None:
        raise typer.BadParameter("pass either a TABLE or --rows and --inputs, not both.")
    if not targets:
        raise typer.BadParameter(
            "a TABLE needs it: the other columns are the inputs.", param_hint="'--target'"
        )
    from widegp.data.tables import open_table
    from widegp.table_split import split_table
    from widegp.table_targets import target_of

    settings = options.table_settings(drop, target=targets[0], further=tuple(targets[1:]), **given)
    source = open_table(table, settings.reading)
    split = split_table(target_of(source, targets, {}).read(source), settings)
    n, n_inputs = split.X.shape
    return (n, n_inputs), (len(split.y_test), len(split.encoder.input_names))


def _rates(n: int, n_inputs: int, kernel: Any, backend: Backend) -> Any:
    import numpy as np

    from widegp.inference.choose import calibrate

    return calibrate(np.random.default_rng(0).standard_normal((n, n_inputs)), kernel, backend, 0)


def _predicted(
    size: Size, plan: tuple[Stage, ...], predict_neighbors: int, rates: Calibration, block_rows: int
) -> dict[str, Any]:
    """What a fit and its predictions take, in seconds and bytes."""
    from widegp import cost

    per_row = cost.prediction_seconds(size, predict_neighbors, rates, 1000)
    return {
        "rows": size.n_rows,
        "inputs": size.n_inputs,
        "approximation": size.name,
        "rank": size.shape.r if size.approximation.anchors != "none" else None,
        "neighbors": size.shape.m if size.approximation.neighbors else None,
        "ard": size.ard,
        "fit_seconds": cost.fit_seconds(plan),
        "within_factor": cost.WITHIN,
        "stages": [{"stage": s.name, "rows": s.rows, "seconds": s.seconds} for s in plan],
        "evaluation_seconds": cost.evaluation_seconds(size, rates),
        "seconds_per_1000_predictions": 1000 * per_row,
        "peak_bytes": cost.peak_bytes(size, block_rows),
    }


def _block_rows(dials: Dials, size: Size, backend: Backend) -> int:
    import numpy as np

    from widegp.approximations.build import Builder

    imagined = np.broadcast_to(0.0, (min(size.n_rows, MANY_ROWS), size.n_inputs))
    return Builder(imagined, dials, backend, 0).block_rows()


def _show(told: dict[str, Any]) -> None:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    for name, text in _facts(told).items():
        grid.add_row(name, text)
    console().print(grid)


def _facts(told: dict[str, Any]) -> dict[str, str]:
    """One line per prediction, in words."""
    whole, factor = told["command_seconds"], told["within_factor"]
    parts = [told["approximation"]]
    parts += [f"{told[key]:,} {word}" for key, word in DIALS.items() if told[key] is not None]
    facts = {
        "table": f"{told['rows']:,} rows to fit, {told['inputs']:,} inputs"
        + (f", {told['outputs']} outputs" if told["outputs"] > 1 else ""),
        "model": ", ".join(parts) + (" (chosen by auto)" if told["chosen"] else ""),
        "in all": f"about {duration(whole)}: from {duration(whole / factor)} to {duration(whole * factor)}",
        "fit": f"about {duration(told['fit_seconds'])}",
    }
    for stage in told["stages"]:
        name = f"{stage['stage']}, {stage['rows']:,} rows" if stage["stage"] == "coarse" else stage["stage"]
        facts[f"  {name}"] = duration(stage["seconds"])
    if told["scoring"]:
        facts["scores"] = f"about {duration(sum(stage['seconds'] for stage in told['scoring']))}"
    facts |= {f"  {stage['stage']}": duration(stage["seconds"]) for stage in told["scoring"]}
    facts["one evaluation"] = duration(told["evaluation_seconds"])
    facts["prediction"] = f"about {duration(told['seconds_per_1000_predictions'])} for 1,000 rows"
    facts["memory"] = f"at most about {told['peak_bytes'] / 2**30:.2g} GiB above the table"
    return facts


DIALS = {"rank": "anchors", "neighbors": "neighbours"}


def duration(seconds: float) -> str:
    """0.03 s, 42 s, 12 min, 3.4 h, 2.1 days: two digits and the unit that keeps them readable."""
    for limit, size, unit in ((100, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{_rounded(seconds / size)} {unit}"
    return f"{_rounded(seconds / 86_400)} days"


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
