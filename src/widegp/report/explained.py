"""What drives a model, on a terminal: columns by importance, then what it predicts along some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from widegp.report.formatting import exact, listed, number, percent, share_words, short

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

BAR = 20
EIGHTHS = " ▏▎▍▌▋▊▉█"
SHOWN = 12


def render_explanation(
    found: dict[str, Any], target: str, basis: str, verbose: bool, console: Console
) -> None:
    """The result of `widegp.explain.explain`; ``verbose`` shows all columns and what the numbers are."""
    from rich.text import Text

    keys = [key for key in ("importance", "effect", "interactions", "weight")
            if any(entry[key] is not None for entry in found["inputs"])]  # fmt: skip
    ranked = found["inputs"] if verbose else found["inputs"][:SHOWN]
    console.print(Text(f"What drives {short(target)}", style="bold"))
    console.print(_ranking(ranked, keys if verbose else keys[:2]))
    rest = found["inputs"][len(ranked) :]
    if rest:
        most = percent(max(entry[keys[0]] or 0.0 for entry in rest), 1)
        console.print(Text(f"{len(rest)} more columns, each {most} at most; --verbose lists them."))
    for group in found["together"]:
        console.print(Text(f"{group['words']} Shuffled as one: {share_words(group, keys[0])}."))
    curves = [words for curve in found["partial_dependence"] if (words := effect_words(curve))]
    if curves:
        console.print(Text(f"\nWhat it predicts of {short(target)} on average, other columns as they are:"))
    for words in curves:
        console.print(Text(f"  {words}"))
    console.print()
    for key in keys if verbose else keys[:1]:
        console.print(Text(f"{key.capitalize()}: {found['words'][key]}"))
    console.print(Text(f"Measured on {found['rows']:,} {basis}."))
    if verbose and found["balance"] is not None:
        shares = [f"{name} {percent(share)}" for name, share in found["balance"]["share"].items()]
        console.print(Text(f"Prior variance by part: {listed(shares)}."))


def _ranking(ranked: list[dict[str, Any]], keys: list[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("column")
    table.add_column("0 to 100%")
    for key in keys:
        table.add_column(key, justify="right")
    for entry in ranked:
        cells = (share_words(entry, key) for key in keys)
        # Text, not markup: a column may be called [red].
        table.add_row(Text(short(entry["name"])), bar(entry[keys[0]] or 0.0), *cells)
    return table


def bar(share: float) -> str:
    """A bar of BAR cells for 100%, to an eighth of a cell."""
    eighths = round(8 * BAR * min(max(share, 0.0), 1.0))
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()


def effect_words(curve: dict[str, Any]) -> str:
    """The mean at the first, middle and last value of a column; of levels the lowest and the highest."""
    mean, labels = curve["mean"], curve["labels"]
    if not mean:
        return ""
    if curve["kind"] == "category":
        chosen = sorted({mean.index(min(mean)), mean.index(max(mean))}, key=mean.__getitem__)
    else:
        chosen = sorted({0, len(mean) // 2, len(mean) - 1})
    at = [short(labels[k]) if labels else exact(rounded(curve["x"][k])) for k in chosen]
    output = f" ({short(curve['output'])})" if "output" in curve else ""
    told = ", ".join(f"{number(mean[k])} at {where}" for k, where in zip(chosen, at, strict=True))
    return f"{short(curve['name'])}{output}: {told}"


def rounded(x: float) -> float:
    """x to three digits, a whole number as it is."""
    return x if x == round(x) else float(f"{x:.3g}")
