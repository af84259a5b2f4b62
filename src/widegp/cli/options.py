"""Options that commands share, with the words of their help."""

from __future__ import annotations

import codecs
import csv
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def seconds(text: str) -> float:
    """ "90s", "5m" or "2h" in seconds; a number alone may mean any of them, so the unit is asked for."""
    if re.fullmatch(r"\s*\d+(?:\.\d*)?\s*", str(text)):
        number = str(text).strip()
        raise typer.BadParameter(
            f"{number!r} has no unit; write {number}s, {number}m or {number}h for seconds, minutes or hours."
        )
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|m|min|h)\s*", str(text))
    value = float(found[1]) * SECONDS[found[2]] if found else math.nan
    if not value > 0:
        raise typer.BadParameter(f"{text!r} is not a time; write it like 90s, 5m or 2h.")
    return value


def existing(path: Path | None) -> Path | None:
    """Refuse what is not there before libraries are loaded, which takes seconds."""
    if path is None:
        return None
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise typer.BadParameter(f"{path} does not exist; check the path.") from None
    except (OSError, ValueError):
        # The reader has better words for it.
        pass
    return path


def fraction(value: float) -> float:
    if not 0 <= value < 1:
        raise typer.BadParameter(
            f"{value:g} is not a share of the rows; pass a number from 0 to below 1, e.g. 0.1."
        )
    return value


def probability(value: float) -> float:
    if not 0 < value < 1:
        raise typer.BadParameter(f"{value:g} is not a probability; pass a number between 0 and 1, e.g. 0.95.")
    return value


def kernel_name(name: str) -> str:
    """Refuse a kernel that there is not; the usual one is known without loading the others."""
    if name not in ("auto", "mixed"):
        from widegp.kernels import NAMES

        _refuse_unknown("kernel", name, NAMES)
    return name


def approximation_name(name: str) -> str:
    """Refuse an approximation that there is not; the usual ones are known without loading the others."""
    if name not in ("auto", "exact", "full-scale"):
        from widegp.approximations.registry import APPROXIMATIONS

        _refuse_unknown("approximation", name, APPROXIMATIONS)
    return name


def likelihood_name(name: str) -> str:
    """Refuse a likelihood that there is not; the usual ones are known without loading the others."""
    if name not in ("auto", "gaussian"):
        from widegp.likelihoods import NAMES

        _refuse_unknown("likelihood", name, NAMES)
    return name


def _refuse_unknown(kind: str, name: str, names: Iterable[str]) -> None:
    if name not in names:
        raise typer.BadParameter(f"there is no {kind} {name!r}; choose one of auto, {', '.join(names)}.")


def encoding(name: str | None) -> str | None:
    """Refuse encodings that Python does not know."""
    try:
        return name if name is None else codecs.lookup(name).name
    except LookupError:
        raise typer.BadParameter(f"{name!r} is no encoding; write one like cp1252 or utf-16.") from None


AnchorRule = Literal["kmeans", "kmeans++", "random", "first", "greedy"]
Transform = Literal["none", "auto", "box-cox", "yeo-johnson", "sinh-arcsinh", "sqrt", "log"]
BackendName = Literal["auto", "native", "xla"]

TableFile = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        callback=existing,
        help="CSV or TSV (also .gz, .zip), Excel, Parquet, Arrow or Feather file, or a folder of Parquet.",
    ),
]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", callback=existing, help="A file that 'widegp fit' wrote.")
]
Targets = Annotated[
    list[str],
    typer.Option(
        "--target", "-t", metavar="TEXT", help="Column to predict; repeat the option for several outputs."
    ),
]
OneTarget = Annotated[list[str], typer.Option("--target", "-t", metavar="TEXT", help="Column to predict.")]
LikelihoodOption = Annotated[
    str,
    typer.Option(
        callback=likelihood_name, metavar="NAME",
        help="What the target is: auto takes words and two values for classes (logit), others as numbers"
        " (gaussian); student-t, probit, poisson, negative-binomial or gamma where it is named.",
    ),
]
Drop = Annotated[
    list[str] | None, typer.Option("--drop", metavar="A,B", help="Columns to leave out; may be repeated.")
]
Decimal = Annotated[
    Literal[".", ","] | None, typer.Option(help="Decimal mark of numbers in text; else told by the cells.")
]
Thousands = Annotated[
    str | None, typer.Option(metavar="MARK", help="Mark between thousands: . , ' or a blank.")
]
Dates = Annotated[
    Literal["day-first", "month-first"] | None,
    typer.Option(help="What 01/02/2019 means; asked for where it matters."),
]
Encoding = Annotated[
    str | None,
    typer.Option(callback=encoding, help="Encoding of a text file, such as cp1252; by default UTF-8."),
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Hold out whole groups of rows, those of one value of this column, which is then no input.",
    ),
]
MissingTarget = Annotated[
    Literal["leave-out", "error"], typer.Option(help="Rows without a target: leave them out, or an error.")
]
KernelName = Annotated[
    str,
    typer.Option(
        callback=kernel_name, metavar="NAME",
        help="Kernel, such as mixed, tanh, rbf or matern32; auto: mixed, of few rows averaged with rbf.",
    ),
]
Rank = Annotated[
    int,
    typer.Option(
        min=1,
        help="Number of anchors, points that carry the coarse shape of the function; auto takes at most 200"
        " unless --budget is given.",
    ),
]
Neighbors = Annotated[int, typer.Option(min=0, help="Nearest rows that each row is conditioned on.")]
PredictNeighbors = Annotated[
    int, typer.Option(min=0, help="Nearest rows that a prediction is conditioned on; fewer are faster.")
]
ApproximationOption = Annotated[
    str,
    typer.Option(
        callback=approximation_name, metavar="NAME",
        help="auto: exact for small tables, else full-scale; or vecchia, fitc, vfe, dtc, sor, subset,"
        " nystrom.",
    ),
]
Anchors = Annotated[AnchorRule, typer.Option(help="How the anchors are placed.")]
Ard = Annotated[
    bool,
    typer.Option(
        "--ard/--no-ard",
        help="One variance per input, which ranks the inputs; of other choices only that of a warp is made.",
    ),
]
TransformOption = Annotated[
    Transform | None,
    typer.Option(help="Monotone map of the target, estimated with the rest; auto, or none with --plain."),
]
Plain = Annotated[
    bool,
    typer.Option("--plain", help="A simpler, faster model: no metric, warp, varying noise or trees."),
]
Conformal = Annotated[
    bool,
    typer.Option(
        "--conformal",
        help="Calibrate the intervals on rows kept apart: a tenth, but at least 99 and at most a third.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        parser=seconds, metavar="TIME",
        help="Time for the whole command, like 90s or 5m; nothing is then tried on held-out rows.",
    ),
]
TestFraction = Annotated[
    float, typer.Option(callback=fraction, help="Share of the rows kept apart for the scores.")
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same split and fit.")]
Missing = Annotated[
    Literal["impute", "refuse"],
    typer.Option(
        help="Missing inputs: the training median, with a flag where 2% or more are missing; or an error."
    ),
]
BackendOption = Annotated[BackendName, typer.Option("--backend", help="native: CPU; xla: any device.")]
Level = Annotated[float, typer.Option(callback=probability, help="Probability of the intervals.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also parameters, and all that was chosen and left out.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout, and nothing else.")]


def one_target(targets: list[str]) -> str:
    """The one column to predict: of several options of the same name the last would win without a word."""
    if len(targets) > 1:
        named = " and ".join(repr(name) for name in targets)
        raise typer.BadParameter(
            f"{named} are {len(targets)} targets, and this command takes one; run it once for each, and pass"
            " --drop for the others.", param_hint="'--target'",
        )  # fmt: skip
    return targets[0]


def columns(drop: list[str] | None) -> tuple[str, ...]:
    """The names in "a,b" given once or several times; a name with a comma stands in quotation marks."""
    return tuple(name for names in csv.reader(drop or (), skipinitialspace=True) for name in names)


def table_settings(drop: list[str] | None, **given: Any) -> Any:
    """`TableSettings` from options of the same names."""
    from widegp.table_split import TableSettings

    return TableSettings.taken_from(given, drop=columns(drop))


def regressor_settings(**given: Any) -> dict[str, Any]:
    """Arguments of ``WideGPRegressor`` from options of the same names; ``transform`` has another there, and
    ``plain`` stands for those of `WideGPRegressor.plain`.
    """
    plain = given.pop("plain")
    if given.get("likelihood") == "auto":
        del given["likelihood"]
    transform = given.pop("transform") or ("none" if plain else "auto")
    plainly = {
        "metric": "iso", "noise": "constant", "scale_inputs": "standard", "trees": "none", "posterior": "map",
    }  # fmt: skip
    chosen = plainly if plain else {}
    return given | chosen | {"target_transform": None if transform == "none" else transform}
