"""``widegp compare``"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from widegp.cli import options
from widegp.cli.display import FitDisplay
from widegp.cli.output import console, print_json

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from widegp.compare import Score
    from widegp.compare_kernels import KernelEvidence
    from widegp.data.tables import TableSource
    from widegp.progress import Listener
    from widegp.table_split import Split, TableSettings
    from widegp.table_targets import TableTarget

LOWER_IS_BETTER = ("rmse", "nll", "crps")
HIGHER_IS_BETTER = ("auc", "accuracy")
# Scores that are shown, by kind of target, with the words of their columns.
HEADS = {
    "classes": {
        "log_loss": "log loss", "auc": "AUC", "brier": "Brier", "ece": "ECE", "accuracy": "accuracy",
    },
    "counts": {
        "deviance": "deviance", "log_score": "log score", "crps": "CRPS", "rmse": "RMSE",
        "coverage": "coverage",
    },
}  # fmt: skip
READ_AS = {
    "classes": "Log loss, Brier score and ECE (calibration): lower is better; AUC and accuracy: higher. Best"
    " in bold.",
    "counts": "Poisson deviance, log score (mean −log probability), CRPS and RMSE: lower is better, best in"
    " bold. Means of the others get the dispersion of cross-validated ones.",
}


Kernels = Annotated[
    bool, typer.Option("--kernels", help="Compare activation kernels by their evidence instead.")
]


class Asked(NamedTuple):
    """What is compared on which rows, and how it is told: ``settings`` are those of the regressor, ``chosen``
    those of the table; ``level`` is the probability of intervals.
    """

    table: Path
    targets: list[str]
    settings: dict[str, Any]
    chosen: TableSettings
    level: float
    as_json: bool

    @property
    def about(self) -> dict[str, Any]:
        """What every answer begins with."""
        return {"table": str(self.table), "target": ", ".join(self.targets), "seed": self.chosen.seed}

    def read(self, display: FitDisplay) -> tuple[TableSource, TableTarget]:
        """The table, and what is predicted of it."""
        from widegp.data.tables import open_table
        from widegp.progress import Progress
        from widegp.table_targets import target_of

        display.update(Progress("reading the table"))
        source = open_table(self.table, self.chosen.reading)
        return source, target_of(source, self.targets, self.settings)


def compare(
    table: options.TableFile,
    targets: options.Targets,
    drop: options.Drop = None,
    likelihood: options.LikelihoodOption = "auto",
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
    group: options.Group = None,
    seed: options.Seed = 0,
    missing: options.Missing = "impute",
    missing_target: options.MissingTarget = "leave-out",
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    dates: options.Dates = None,
    encoding: options.Encoding = None,
    backend: options.BackendOption = "auto",
    level: options.Level = 0.95,
    kernels: Kernels = False,
    as_json: options.Json = False,
) -> None:
    """Score widegp beside other models on the same rows.

    The others are the mean, linear regression and gradient boosting, which has no intervals of its own: once
    it gets one sd from its cross-validated residuals, once the ends of its intervals from quantile losses.
    All models get the same inputs; nothing is tuned. The time of each is that from the training rows to
    predictions with intervals of the held-out rows. Beside classes the others are their shares, logistic
    regression and gradient boosting; beside counts (--likelihood) Poisson regression and boosting.

    With --kernels no row is held out: which activation, or mixture of them, do the rows prefer, and how sure
    is that? The answer is log p(y | kernel), the parameters integrated out, on at most 200 rows.

    \b
    Examples:
      widegp compare houses.csv --target price
      widegp compare houses.csv --target price --kernels
      widegp compare houses.csv --target price --ard --transform auto --test-fraction 0.2 --json
    """
    settings = options.regressor_settings(
        rank=rank, neighbors=neighbors, predict_neighbors=predict_neighbors, approximation=approximation,
        anchors=anchors, ard=ard, transform=transform, plain=plain, budget=budget, backend=backend,
        likelihood=likelihood,
    )  # fmt: skip
    first, *further = targets
    chosen = options.table_settings(
        drop, target=first, further=tuple(further), test_fraction=0.0 if kernels else test_fraction,
        group=group, seed=seed, missing=missing, missing_target=missing_target, decimal=decimal,
        thousands=thousands, dates=dates, encoding=encoding,
    )  # fmt: skip
    asked = Asked(table, targets, settings, chosen, level, as_json)
    (_compare_kernels if kernels else _compare_models)(asked)


def _compare_kernels(asked: Asked) -> None:
    """By their evidence on all rows."""
    from widegp.table_split import split_table
    from widegp.table_targets import OneNumber

    with _display() as display:
        source, predicted = asked.read(display)
        if not isinstance(predicted, OneNumber):
            raise typer.BadParameter(
                "the evidence of kernels is that of one number; leave it out for classes and outputs.",
                param_hint="'--kernels'",
            )
        split = split_table(predicted.read(source), asked.chosen)
        from widegp.compare_kernels import compare_kernels

        ranked = compare_kernels(split.X, split.y, seed=asked.chosen.seed, progress=display.update)
    _tell_kernels(ranked, split, asked.about, asked.as_json)


def _compare_models(asked: Asked) -> None:
    """By their scores of held-out rows."""
    from widegp.table_split import split_table

    with _display() as display:
        source, predicted = asked.read(display)
        split = split_table(predicted.read(source), asked.chosen)
        if not len(split.y_test):
            raise typer.BadParameter(
                "no rows are held out to compare on; pass a larger share.", param_hint="'--test-fraction'"
            )
        kind, scores = _scored(predicted, split, asked, display.update)
    rows, held, level, seed = len(split.y), len(split.y_test), asked.level, asked.chosen.seed
    if asked.as_json:
        counted = {"rows": rows, "rows_held_out": held}
        print_json(asked.about | {"level": level, **counted, "models": _as_dicts(scores)})
        return
    screen = console()
    if predicted.words:
        screen.print(predicted.words, markup=False)
    for output, own in scores.items():
        if output:
            screen.print(f"\n{output}", markup=False)
        screen.print(_as_table(own, level) if kind == "numbers" else _scores_as_table(own, HEADS[kind]))
    for line in _read_as(level, held) if kind == "numbers" else [READ_AS[kind]]:
        screen.print(line, markup=False)
    screen.print(f"{rows:,} rows to fit on, {held:,} held out; seed {seed}.", markup=False)


@contextlib.contextmanager
def _display() -> Iterator[FitDisplay]:
    """Progress on stderr, and no warnings of fits that are compared as they are."""
    with FitDisplay(console(stderr=True), None) as display, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield display


def _scored(
    predicted: TableTarget, split: Split, asked: Asked, progress: Listener
) -> tuple[str, dict[str, list[Any]]]:
    """The kind of target, and the scores of every model by output; "" where there is one."""
    from widegp.compare import compare as compare_numbers
    from widegp.compare_targets import compare_classes, compare_counts, compare_outputs
    from widegp.likelihoods import make_likelihood
    from widegp.table_targets import Classes, OneNumber, Outputs

    settings, level, seed = asked.settings, asked.level, asked.chosen.seed
    if isinstance(predicted, Classes):
        return "classes", {"": list(compare_classes(split, settings, predicted, seed, progress))}
    if isinstance(predicted, Outputs):
        found: dict[str, list[Any]] = {name: [] for name in predicted.names}
        for output, score in compare_outputs(split, settings, predicted, level, seed, progress):
            found[output].append(score)
        return "numbers", found
    assert isinstance(predicted, OneNumber)
    if make_likelihood(settings["likelihood"]).support == "counts":
        return "counts", {"": list(compare_counts(split, settings, predicted, level, seed, progress))}
    return "numbers", {"": list(compare_numbers(split, settings, seed, level, progress))}


def _as_dicts(scores: dict[str, list[Any]]) -> list[dict[str, Any]]:
    named = [(output, score) for output, own in scores.items() for score in own]
    return [({"output": output} if output else {}) | score.to_dict() for output, score in named]


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


def _scores_as_table(scores: list[Any], heads: dict[str, str]) -> Table:
    """A line for each model, the best of each score in bold but for coverage, which has no best."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from widegp.report.formatting import number, seconds

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("model")
    for title in (*heads.values(), "time"):
        shown.add_column(title, justify="right")
    best: dict[str, Any] = {}
    for name in heads:
        values = [getattr(score, name) for score in scores if getattr(score, name) is not None]
        if values and name != "coverage":
            best[name] = max(values) if name in HIGHER_IS_BETTER else min(values)
    for score in scores:
        found = {name: getattr(score, name) for name in heads}
        cells = [f"[bold]{number(v)}[/bold]" if v == best.get(k, "") else number(v) for k, v in found.items()]
        shown.add_row(score.model, *cells, seconds(score.seconds))
    return shown
