"""``widegp identify``"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated

import typer

from widegp.cli import options
from widegp.cli.display import FitDisplay
from widegp.cli.output import console, print_json

if TYPE_CHECKING:
    from widegp.estimator import WideGPRegressor
    from widegp.table_split import Split


Parameter = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Whose profile to trace; the least determined one by default."),
]
WithProfile = Annotated[
    bool, typer.Option("--profile/--no-profile", help="Trace a profile: a hundred evaluations.")
]


def identify(
    table: options.TableFile,
    targets: options.OneTarget,
    drop: options.Drop = None,
    parameter: Parameter = None,
    profile: WithProfile = True,
    rank: options.Rank = 500,
    neighbors: options.Neighbors = 30,
    approximation: options.ApproximationOption = "auto",
    anchors: options.Anchors = "kmeans",
    ard: options.Ard = False,
    transform: options.TransformOption = None,
    budget: options.Budget = None,
    seed: options.Seed = 0,
    missing: options.Missing = "impute",
    missing_target: options.MissingTarget = "leave-out",
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    dates: options.Dates = None,
    encoding: options.Encoding = None,
    backend: options.BackendOption = "auto",
    as_json: options.Json = False,
) -> None:
    """Say which parameters a table determines, and which it leaves to the priors.

    A model is fitted to all rows; standard errors come from the Fisher information of their inputs, with the
    priors and without.

    \b
    Examples:
      widegp identify houses.csv --target price
      widegp identify houses.csv --target price --parameter w --json
    """
    target = options.one_target(targets)
    settings = options.regressor_settings(
        rank=rank, neighbors=neighbors, approximation=approximation, anchors=anchors, ard=ard,
        transform=transform, plain=True, budget=budget, backend=backend, random_state=seed,
    )  # fmt: skip
    from widegp.identifiability import identify_table
    from widegp.progress import Progress
    from widegp.table_split import split_table

    chosen = options.table_settings(
        drop, target=target, test_fraction=0.0, seed=seed, missing=missing, missing_target=missing_target,
        decimal=decimal, thousands=thousands, dates=dates, encoding=encoding,
    )  # fmt: skip

    with FitDisplay(console(stderr=True), budget) as display, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        display.update(Progress("reading the table"))
        split = split_table(table, chosen)
        model = _fitted(split, settings, display)
        display.update(Progress("information and profile"))
        found = identify_table(split.X, split.y, model, parameter=parameter, with_profile=profile, seed=seed)
    if as_json:
        print_json({"table": str(table), "target": target, "rows": len(split.y), **found.to_dict()})
        return
    console().print(found.describe(), markup=False)


def _fitted(split: Split, settings: dict, display: FitDisplay) -> WideGPRegressor:
    from widegp.estimator import WideGPRegressor

    return WideGPRegressor.plain(**settings).fit(split.X, split.y, progress=display.update)
