"""What the templates of the page show, section by section: rows of tables and short texts, never markup."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

from widegp.report import drawings
from widegp.report.formatting import (
    DASH,
    clean,
    exact,
    held_with_chance,
    memory,
    moment,
    number,
    part_range,
    percent,
    seconds,
    share_words,
    short,
)
from widegp.yardstick import NAME

Summary = dict[str, Any]

SHOWN_INPUTS = 15
STAGES = {
    "start": "finding a start", "search": "anchors and neighbours", "optimise": "optimising",
    "everything else": "choices, posterior, curvature and the rest",
}  # fmt: skip
# Name of a part of the kernel, its title, what it does.
PARTS = {
    "level": ("overall level", "where the function sits"),
    "smooth": ("smooth part", "bends gently and levels off far out (tanh)"),
    "angular": ("angular part", "straight pieces that meet in kinks and go on for ever (leaky ReLU)"),
    "network": ("network", "the function itself"),
    "noise": ("noise", "what a new observation adds"),
}


def tiles(summary: Summary) -> list[dict[str, str]]:
    """The scores at a glance; a card with a colour says why it has it."""
    s, level, verdict = summary["scores"], percent(summary["held_out"]["level"]), summary["verdict"]
    error, beside = summary["rmse_error"], summary["yardstick"]
    rmse = f"RMSE, ± {number(error, 1)} (standard error)" if error else "RMSE"
    better = beside is not None and beside["better"]
    reason = f"Why: {NAME} is off by {number(beside['rmse'])} on the same rows" if better else ""
    boosting = f"; {NAME} {number(beside['rmse'])}" if beside is not None and not better else ""
    entries = [
        ("", "Explained", percent(s.get("r2")), "of the variation (R²)", ""),
        (
            verdict["tone"], "Intervals held", percent(s["coverage"], 1), f"of the values; {level} promised",
            f"Why: {verdict['why']}" if verdict["why"] else "",
        ),
        (
            "fair" if better else "", "Typical error", number(s["rmse"]),
            f"{rmse}; mean absolute {number(s['mae'])}{boosting}", reason,
        ),
        ("", "Mean width", number(s["width"]), f"of a {level} interval", ""),
        ("", "CRPS", number(s["crps"]), "mean distance of forecast and value; smaller is better", ""),
        ("", "Log score", number(s["nll"]), f"mean −log density; {number(s['nll_z'])} in units of the spread",
         ""),
    ]  # fmt: skip
    return [dict(zip(("tone", "name", "value", "note", "why"), entry, strict=True)) for entry in entries]


def thinned(summary: Summary) -> str:
    shown, rows = len(summary["held_out"]["points"]["y"]), summary["held_out"]["rows"]
    return f" {shown:,} of {rows:,} rows are shown." if shown < rows else ""


def coverage(summary: Summary) -> list[list[str]]:
    return [
        [percent(r["promised"]), percent(r["held"], 1), f"{percent(r['low'], 1)} to {percent(r['high'], 1)}"]
        for r in summary["held_out"]["coverage"]
    ]


def deviance(summary: Summary) -> str:
    """Deviances of counts, "" of other targets."""
    found = summary["held_out"].get("deviance") or {}
    names = {key: key.removesuffix("_deviance").replace("_", "-") for key in found} | {
        "poisson_deviance": "Poisson"
    }
    told = [f"{names[key]} {number(value)}" for key, value in found.items()]
    return f" Mean deviance: {', '.join(told)}." if told else ""


def compatible(summary: Summary) -> str:
    """True coverages of the forecast's own level that the held-out rows leave possible."""
    low, high = (percent(p, 1) for p in summary["held_out"]["plausible"])
    level = percent(summary["held_out"]["level"])
    return f"true coverages of the {level} intervals from {low} to {high} are compatible with it."


def thirds(summary: Summary) -> dict[str, Any] | None:
    """Coverage by thirds of the prediction; their width is in the figure above."""
    found = summary["held_out"]["thirds"]
    if not found:
        return None
    levels = [percent(c["promised"]) for c in found[0]["coverage"]]
    rows = [[part_range(part), *map(held_with_chance, part["coverage"])] for part in found]
    return {"columns": [("predicted", ""), *((level, "n") for level in levels)], "rows": rows}


def ranking(summary: Summary) -> dict[str, Any] | None:
    """Inputs by the first of importance, effect and weight that is known; bars reach to 100%."""
    e = summary["explanation"]
    ranked = e["inputs"]
    if not ranked:
        return None
    keys = [key for key in ("importance", "effect", "weight") if ranked[0].get(key) is not None]
    heads = {"importance": "importance", "effect": "effect", "weight": "weight (ARD)"}
    numbers = [(heads[key], "n") for key in keys]
    return {
        "words": [(key, e["words"][key]) for key in keys],
        # The first number stands before its bar, where a phone still has room for it.
        "columns": [("input", ""), *numbers[:1], ("", "wide"), *numbers[1:]],
        "shown": SHOWN_INPUTS,
        "rows": [
            {
                "name": item["name"],
                "share": min(max(item[keys[0]], 0.0), 1.0),
                "cells": [share_words(item, key) for key in keys],
            }
            for item in ranked
        ],
        "together": [
            f"{group['words']} Shuffled as one: {share_words(group, keys[0])}."
            for group in e.get("together", ())
        ],
    }


def columns(summary: Summary) -> dict[str, Any] | None:
    """The columns of the table; a phone has no room for those that say nothing."""
    if not summary["columns"]:
        return None
    numbers = (("missing", "n"), ("levels", "n"), ("range", "n"))
    heads = [("column", ""), ("kind", ""), *numbers, ("note", "note")]
    rows = [
        [
            c.get("name", ""), short(c.get("kind", "")), _count(c.get("missing")), _count(c.get("levels")),
            _range(c.get("min"), c.get("max")), clean(c["note"]) if c.get("note") else "",
        ]
        for c in summary["columns"]
    ]  # fmt: skip
    kept = [j for j in range(len(heads)) if j < 3 or any(row[j] not in ("", DASH) for row in rows)]
    return {"heads": [heads[j] for j in kept], "rows": [[row[j] for j in kept] for row in rows]}


def balance(summary: Summary) -> dict[str, Any]:
    """Shares of the prior variance by part of the kernel, and the mixing weight."""
    found = summary["explanation"]["balance"]
    others, parts = cycle(("network", "angular", "level")), []
    for name, share in found["share"].items():
        title, words = PARTS.get(name, (name, "a part of the kernel"))
        tone = name if name in PARTS else next(others)
        parts.append({"name": tone, "share": share, "title": title, "words": words})
    spoken = ", ".join(f"{part['title']} {percent(part['share'], 1)}" for part in parts)
    return {"parts": parts, "spoken": spoken, "w": found["w"]}


def parameters(summary: Summary) -> list[dict[str, Any]]:
    """Each parameter with its estimate in words and its drawing."""
    out = []
    for i, entry in enumerate(summary["parameters"]):
        value, error = entry["value"], entry["standard_error"]
        many = isinstance(value, list)
        shown = f"{number(min(value), 2)} … {number(max(value), 2)}" if many else number(value)
        estimate = shown + (f" ± {number(error, 2)}" if error else "")
        if entry.get("credible_interval"):
            low, high = entry["credible_interval"]
            estimate += f", 95% credible {number(low, 2)} to {number(high, 2)}"
        out.append(entry | {"estimate": estimate, "svg": drawings.parameter(i, entry, estimate)})
    return out


def fit_facts(summary: Summary) -> list[tuple[str, str]]:
    f, model = summary["fit"], summary["model"]
    anchors = f", {model['anchors']:,} anchors" if model["anchors"] else ""
    return [
        ("ended", f"{f['reason']}; iterations: {f['iterations']}, evaluations: {f['evaluations']}"),
        ("approximation", f"{model['approximation']}{anchors}"),
        ("kernel", model["kernel"]),
        ("warp of the target", model["warp"]),
        ("backend", f["backend"]),
        ("jitter", number(f["jitter"]) if f["jitter"] else "none needed"),
        ("time", seconds(f["total_seconds"])),
        ("peak memory", memory(f["peak_memory"])),
    ]


def stages(summary: Summary) -> list[tuple[str, float, str]]:
    """Stages of the fit, each with its share of the longest one and its time."""
    spent = summary["fit"]["seconds"]
    top = max(spent.values(), default=0.0) or 1.0
    return [(STAGES.get(name, f"{name} first"), t / top, seconds(t)) for name, t in spent.items()]


def provenance(summary: Summary) -> list[tuple[str, str]]:
    return list(_flat(summary["provenance"]))


def _flat(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict):
            # What is off or has no value says nothing about the model.
            told = [f"{key} {item}" for key, item in value.items() if item is not None and item is not False]
            if told:
                yield name, ", ".join(told)
        elif name == "updates":
            for one in value:
                yield "update", f"{moment(one['date'])}, {one['rows']:,} rows of {one['path'] or 'a frame'}"
        elif name == "date" and value:
            yield name, moment(value)
        elif name == "peak_memory":
            yield "peak memory", memory(value)
        elif name == "seconds":
            yield "time", seconds(value)
        elif name.startswith("rows") and isinstance(value, int):
            yield name.replace("_", " "), f"{value:,}"
        elif value not in (None, "", [], {}):
            parts = list(map(str, value)) if isinstance(value, list) else [str(value)]
            words = (" " if all(part.endswith(".") for part in parts) else ", ").join(parts)
            yield name.replace("_", " "), words


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else DASH if value is None else short(value)


def _range(low: Any, high: Any) -> str:
    ends = [exact(v) if isinstance(v, int | float) else short(v) for v in (low, high) if v is not None]
    return " to ".join(ends) if len(ends) == 2 else DASH
