"""``widegp compare``"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widegp.cli import options
from widegp.cli.display import FitDisplay
from widegp.cli.output import console, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from widegp.compare import ClassScore, Score
    from widegp.compare_kernels import KernelEvidence
    from widegp.table_split import Split

LOWER_IS_BETTER = ("rmse", "nll", "crps")
OF_CLASSES = {"log_loss": "log loss", "auc": "AUC", "brier": "Brier", "ece": "ECE", "accuracy": "accuracy"}
CLASSES_READ_AS = (
    "Log loss, Brier score and ECE (calibration): lower is better; AUC and accuracy: higher. Best in bold.",
)


def compare(
    table: options.TableFile,
    targets: options.Targets,
    drop: options.Drop = None,
    rank: options.Rank = 500,
    neighbors: options.Neighbors = 30,
    predict_neighbors: options.PredictNeighbors = 400,
    approximation: options.ApproximationOption = "auto",
    anchors: options.Anchors = "kmeans",
    ard: options.Ard = False,
    transform: options.TransformOption = None,
    plain: options.Plain = False,
    budget: options.Budget = None,
    test_fraction: options.TestFraction = 0.1,
    seed: options.Seed = 0,
    missing: options.Missing = "impute",
    missing_target: options.MissingTarget = "leave-out",
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    dates: options.Dates = None,
    encoding: options.Encoding = None,
    backend: options.BackendOption = "auto",
    level: options.Level = 0.95,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Compare activation kernels by their evidence instead.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Score widegp beside other models on the same rows.

    The others are the mean, linear regression and gradient boosting, which has no intervals of its own: once
    it gets one sd from its cross-validated residuals, once the ends of its intervals from quantile losses.
    All models get the same inputs; nothing is tuned. The time of each is that from the training rows to
    predictions with intervals of the held-out rows. Beside a target of two values, which holds classes, the
    others are its share, logistic regression and gradient boosting.

    With --kernels no row is held out: which activation, or mixture of them, do the rows prefer, and how sure
    is that? The answer is log p(y | kernel), the parameters integrated out, on at most 200 rows.

    \b
    Examples:
      widegp compare houses.csv --target price
      widegp compare houses.csv --target price --kernels
      widegp compare houses.csv --target price --ard --transform auto --test-fraction 0.2 --json
    """
    target = options.one_target(targets)
    settings = options.regressor_settings(
        rank=rank, neighbors=neighbors, predict_neighbors=predict_neighbors, approximation=approximation,
        anchors=anchors, ard=ard, transform=transform, plain=plain, budget=budget, backend=backend,
    )  # fmt: skip
    from widegp.compare import compare as scores_of
    from widegp.compare import compare_classes
    from widegp.data.tables import open_table
    from widegp.data.target_kinds import coded, target_kind
    from widegp.progress import Progress
    from widegp.table_split import split_table

    chosen = options.table_settings(
        drop, target=target, test_fraction=0.0 if kernels else test_fraction, seed=seed, missing=missing,
        missing_target=missing_target, decimal=decimal, thousands=thousands, dates=dates, encoding=encoding,
    )  # fmt: skip

    with FitDisplay(console(stderr=True), None) as display, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        display.update(Progress("reading the table"))
        source = open_table(table, chosen.reading)
        kind = target_kind(source, target)
        if kernels and kind.classes is not None:
            raise typer.BadParameter(
                "the evidence of kernels is that of a real target; leave it out for classes.",
                param_hint="'--kernels'",
            )
        split = split_table(source if kind.classes is None else coded(source, target, kind.classes), chosen)
        scores: list[Any]
        if kernels:
            from widegp.compare_kernels import compare_kernels

            ranked = compare_kernels(split.X, split.y, seed=seed, progress=display.update)
        elif not len(split.y_test):
            raise typer.BadParameter(
                "no rows are held out to compare on; pass a larger share.", param_hint="'--test-fraction'"
            )
        elif kind.classes is None:
            scores = list(scores_of(split, settings, seed, level, display.update))
        else:
            of_classes = settings | {"likelihood": kind.likelihood}
            scores = list(compare_classes(split, of_classes, seed, display.update))
    if kernels:
        _tell_kernels(ranked, split, {"table": str(table), "target": target, "seed": seed}, as_json)
        return
    if as_json:
        rows = {"rows": len(split.y), "rows_held_out": len(split.y_test)}
        print_json({"table": str(table), "target": target, "level": level, "seed": seed, **rows,
                    "models": [score.to_dict() for score in scores]})  # fmt: skip
        return
    screen = console()
    if kind.words:
        screen.print(kind.words, markup=False)
    screen.print(_as_table(scores, level) if kind.classes is None else _classes_as_table(scores))
    for line in _read_as(level, len(split.y_test)) if kind.classes is None else CLASSES_READ_AS:
        screen.print(line, markup=False)
    screen.print(
        f"{len(split.y):,} rows to fit on, {len(split.y_test):,} held out; seed {seed}.", markup=False
    )


def _tell_kernels(found: list[KernelEvidence], split: Split, about: dict[str, Any], as_json: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from widegp.compare_kernels import MOST_ROWS, in_words
    from widegp.report.formatting import percent

    rows = min(len(split.y), MOST_ROWS)
    if as_json:
        kernels = [one.to_dict() for one in found]
        print_json({**about, "rows": rows, "kernels": kernels, "words": in_words(found)})
        return
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("kernel", "log evidence", "±", "behind", "probability", "Pareto k"):
        shown.add_column(name, justify="left" if name == "kernel" else "right")
    for one in found:
        cells = (f"{x:.2f}" for x in (one.log_evidence, one.error, one.behind))
        shown.add_row(one.kernel, *cells, percent(one.probability), f"{one.pareto_k:.2f}")
    screen = console()
    screen.print(shown)
    for line in in_words(found):
        screen.print(line, markup=False)
    screen.print(f"{rows:,} of {len(split.y):,} rows; seed {about['seed']}.", markup=False)


def _read_as(level: float, rows: int) -> list[str]:
    """What the columns hold."""
    from widegp.report.calibration import chance
    from widegp.report.formatting import percent

    low, high = chance(level, rows)
    return [
        "RMSE, NLL, CRPS: lower is better, best in bold. Coverage should be the level in its head; chance"
        f" alone gives {percent(low)} to {percent(high)} at {percent(level)}.",
        "Time: from the training rows to predictions with intervals of the held-out rows, for every model"
        " alike (gradient boosting is fitted five more times for its sd, six more times for quantiles).",
    ]


def _as_table(scores: list[Score], level: float) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from widegp.report.formatting import number, percent, seconds

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("model")
    for name in ("RMSE", "NLL", "CRPS", "50%", "80%", percent(level), "width", "time"):
        shown.add_column(name, justify="right")
    smallest = {name: min(getattr(score, name) for score in scores) for name in LOWER_IS_BETTER}
    for score in scores:
        cells = [
            f"[bold]{number(value)}[/bold]" if value == smallest[name] else number(value)
            for name in LOWER_IS_BETTER
            for value in [getattr(score, name)]
        ]
        held = (percent(share) for share in (score.coverage_50, score.coverage_80, score.coverage))
        shown.add_row(score.model, *cells, *held, number(score.width), seconds(score.seconds))
    return shown


def _classes_as_table(scores: list[ClassScore]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from widegp.report.formatting import number, seconds

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("model")
    for name in (*OF_CLASSES.values(), "time"):
        shown.add_column(name, justify="right")
    best = {}
    for name in OF_CLASSES:
        values = [getattr(score, name) for score in scores]
        best[name] = max(values) if name in ("auc", "accuracy") else min(values)
    for score in scores:
        found = {name: getattr(score, name) for name in OF_CLASSES}
        cells = [f"[bold]{number(v)}[/bold]" if v == best[name] else number(v) for name, v in found.items()]
        shown.add_row(score.model, *cells, seconds(score.seconds))
    return shown
