"""The sections of the page, each a function of the summary; an empty one is left out."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from itertools import cycle
from typing import Any

from widegp.report import figures
from widegp.report.formatting import DASH, clean, exact, memory, moment, number, percent, seconds, short
from widegp.report.markup import bar, definitions, figure, table, text
from widegp.report.svg import inline_svg

Summary = dict[str, Any]

SHOWN_INPUTS = 15
STAGES = {
    "start": "finding a start", "search": "anchors and neighbours", "optimise": "optimising",
    "everything else": "curvature, posterior and the rest",
}  # fmt: skip
PART_WORDS = {
    "level": "overall level: where the function sits",
    "smooth": "smooth part: bends gently and levels off far out (tanh)",
    "angular": "angular part: straight pieces that meet in kinks and go on for ever (leaky ReLU)",
    "network": "network: the function itself",
    "noise": "noise: what a new observation adds",
}
SHAPES = {
    "correlation": (
        "the correlation of two rows, from -1 to 1",
        "At ρ = 1 they are alike, at ρ = −1 opposite. A smooth part that bends near ρ = 1 lets the function"
        " wiggle; an angular part gives straight pieces and kinks.",
    ),
    "distance": (
        "the distance of two rows",
        "The sooner the curve falls, the quicker the function changes; where it is flat at distance 0 the"
        " function is smooth, where it starts with a slope it is rough.",
    ),
}
TONES = {
    "honest": "good", "honest at one level": "fair", "nearly narrow": "fair", "nearly wide": "fair",
    "narrow": "bad", "wide": "fair",
}  # fmt: skip


def tiles(summary: Summary) -> str:
    s, level = summary["scores"], percent(summary["held_out"]["level"])
    error = summary["rmse_error"]
    rmse = f"RMSE, ± {number(error, 1)} (standard error)" if error else "RMSE"
    tone = TONES.get(summary["verdict"]["intervals"], "")
    entries = [
        ("", "Explained", percent(s.get("r2")), "of the variation (R²)"),
        (tone, "Intervals hold", percent(s["coverage"], 1), f"of the values; {level} promised"),
        ("", "Typical error", number(s["rmse"]), f"{rmse}; mean absolute {number(s['mae'])}"),
        ("", "Mean width", number(s["width"]), f"of a {level} interval"),
        ("", "CRPS", number(s["crps"]), "mean distance of forecast and value; smaller is better"),
        (
            "",
            "Log score",
            number(s["nll"]),
            f"mean −log density; {number(s['nll_z'])} in units of the spread",
        ),
    ]
    return '<dl class="tiles">' + "".join(
        f'<div class="tile {tone}"><dt>{escape(name)}</dt><dd><span class="value">{escape(value)}</span>'
        f'<span class="small">{escape(note)}</span></dd></div>'
        for tone, name, value, note in entries
    ) + "</dl>"  # fmt: skip


def warnings(summary: Summary) -> str:
    if not summary["warnings"]:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in summary["warnings"])
    title = '<h2 id="wary">Be aware</h2>'
    return f'<section class="warnings" aria-labelledby="wary">{title}<ul>{items}</ul></section>'


def predictions(summary: Summary) -> str:
    h, target = summary["held_out"], summary["target"]
    level, held = percent(h["level"]), percent(summary["scores"]["coverage"], 1)
    thinned = f" {len(h['points']['y']):,} of {h['rows']:,} rows are shown." if _is_thinned(h) else ""
    first = figure(
        figures.predictions(h, target),
        "predicted",
        f"Observed against predicted {short(target)} for held-out rows; {held} lie inside their {level}"
        " interval.",
        "Each dot is a held-out row: on the dashed line the prediction was right. Bars are the"
        f" {level} intervals of some of the rows.{thinned}",
    )
    second = figure(
        figures.residuals(h, target),
        "residuals",
        "Residuals of held-out rows against their prediction, with their mean in bins.",
        "Error against prediction. Squares are means of equally many rows with twice their standard error:"
        " away from zero, the model is biased there.",
    )
    return f'<div class="grid">{first}{second}</div>'


def intervals(summary: Summary) -> str:
    h = summary["held_out"]
    rows = [
        [percent(r["promised"]), percent(r["held"], 1), f"{percent(r['low'], 1)} to {percent(r['high'], 1)}"]
        for r in h["coverage"]
    ]
    promised = "; ".join(f"{a} hold {b}" for a, b, _ in rows)
    curve = figure(
        figures.calibration(h),
        "calibration",
        f"Calibration curve: intervals of {promised}.",
        "How often intervals of every size hold the observed value. On the dashed line they keep their"
        " promise; below it they are too narrow, above it too wide.",
    )
    histogram = figure(
        figures.pit(h),
        "pit",
        "Histogram of predictive probabilities (PIT) in ten bins: "
        + ", ".join(str(count) for count in h["pit"]["counts"])
        + f"; {number(h['pit']['expected'])} expected in each.",
        "Where observed values fall in their predictive distribution (PIT). Flat is honest; a hump in the"
        " middle means intervals too wide, high ends too narrow, a slope a bias.",
    )
    quantile = figure(
        figures.quantiles(h),
        "quantiles",
        "Standardised residuals against normal quantiles.",
        "Standardised residuals in order, against a normal distribution. Dots that leave the grey band at the"
        " ends are tails that the model does not foresee.",
    )
    columns = [("interval promises", ""), ("holds", "n"), ("range of chance", "n")]
    coverage = table("Held-out rows inside their interval, level by level.", columns, rows)
    note = (
        f"With {h['rows']:,} held-out rows, an honest model gets a share in the range of chance in 95 cases"
        " of 100. Outside it, the intervals of that level are too narrow (below) or too wide (above)."
    )
    coverage += f'<p class="small after">{note}</p>'
    return f'<div class="grid">{curve}{histogram}{quantile}<div class="card">{coverage}</div></div>'


def inputs(summary: Summary) -> str:
    e = summary["explanation"]
    ranked = e["inputs"]
    if not ranked:
        return ""
    effects, weights = (ranked[0][key] is not None for key in ("effect", "weight"))
    words = e["words"]
    keys = [key for key, there in (("effect", effects), ("weight", weights)) if there]
    intro = " ".join(f"<strong>{key.capitalize()}</strong>: {escape(words[key])}" for key in keys)
    top = max((item[keys[0]] for item in ranked), default=1.0) or 1.0
    heads = {"effect": "effect", "weight": "weight (ARD)"}
    columns = [("input", ""), ("", "wide"), *((heads[key], "n") for key in keys)]
    rows = [
        [text(item["name"]), bar(item[keys[0]] / top), *(escape(percent(item[key], 1)) for key in keys)]
        for item in ranked
    ]
    ranking = table("Inputs, strongest first.", columns, rows[:SHOWN_INPUTS], safe=True)
    if len(rows) > SHOWN_INPUTS:
        rest = table("", columns, rows[SHOWN_INPUTS:], safe=True)
        ranking += f"<details><summary>{len(rows) - SHOWN_INPUTS} more inputs</summary>{rest}</details>"
    ranking = f'<div class="card scroll" tabindex="0">{ranking}</div>'
    return f'<p class="intro">{intro}</p>{ranking}{_effects(summary)}'


def _effects(summary: Summary) -> str:
    curves, target = summary["explanation"]["partial_dependence"], summary["target"]
    if not curves:
        return ""
    limits = figures.common_limits(curves)
    drawn = "".join(
        figure(
            figures.partial_dependence(curve, target, limits),
            f"effect-{i}",
            f"Mean prediction of {short(target)} along {short(curve['name'])}, from"
            f" {number(curve['mean'][0])} at {exact(curve['x'][0])} to {number(curve['mean'][-1])} at"
            f" {exact(curve['x'][-1])}.",
            "",
        )
        for i, curve in enumerate(curves)
    )
    band = escape(summary["explanation"]["words"]["band"])
    return f'<div class="grid narrow">{drawn}</div><p class="small after">{band}</p>'


def shape(summary: Summary) -> str:
    e, model = summary["explanation"], summary["model"]
    share = e["balance"]["share"]
    words = {name: PART_WORDS.get(name, f"{name}: a part of the kernel") for name in share}
    say = {name: text.split(":")[0] for name, text in words.items()}
    own = cycle(("network", "angular", "level"))
    tones = {name: name if name in PART_WORDS else next(own) for name in share}
    stack = "".join(
        f'<span class="{tones[k]}" style="flex:{max(v, 0.002):.4f} 0 0"></span>' for k, v in share.items()
    )
    key = "".join(
        f'<li><i class="{tones[k]}"></i><strong>{escape(percent(v, 1))}</strong> {escape(words[k])}</li>'
        for k, v in share.items()
    )
    spoken = ", ".join(f"{say[k]} {percent(v, 1)}" for k, v in share.items())
    over, caption = SHAPES[e["kernel_shape"]["axis"]]
    kernel = figure(
        figures.kernel_shape(e["kernel_shape"]),
        "kernel",
        f"The {model['kernel']} kernel and its parts over {over}.",
        f"How much two rows tell about each other. {caption}",
    )
    mix = "" if e["balance"]["w"] is None else f" The mixing weight w is {number(e['balance']['w'])}."
    return (
        f'<div class="grid">{kernel}<div class="card"><h3>Where the prior variance comes from</h3>'
        f'<div class="stack" role="img" aria-label="{escape(spoken)}">{stack}</div><ul class="key">{key}</ul>'
        f'<p class="small after">Mean prior variance of an observation over rows of the table,'
        f" by part of the kernel.{mix}</p></div></div>"
    )


def parameters(summary: Summary) -> str:
    cards = "".join(_parameter(i, entry) for i, entry in enumerate(summary["parameters"]))
    legend = (
        "Estimates maximise the posterior (MAP), on the scale of standardised inputs and target. Grey is the"
        " prior, blue what prior and data together leave open (Laplace approximation), the line the estimate;"
        " curves are scaled to one height. ± is one standard error."
    )
    open_ones = summary["undetermined"]
    told = '<p class="small">The data determine every direction of the parameters.</p>'
    if open_ones:
        items = "".join(f"<li>{escape(direction['words'])}</li>" for direction in open_ones)
        told = (
            f"<p>{len(open_ones)} direction{'s' if len(open_ones) > 1 else ''} of the parameters"
            f" {'are' if len(open_ones) > 1 else 'is'} left to the prior. Predictions hardly depend on"
            " them, but read the estimates concerned with care.</p>"
            f'<ul class="plainlist">{items}</ul>'
        )
    return (
        f'<p class="intro">{legend}</p><div class="grid tight">{cards}</div>'
        f'<div class="card after"><h3>What the data leave open</h3>{told}</div>'
    )


def _parameter(i: int, entry: dict[str, Any]) -> str:
    value, error = entry["value"], entry["standard_error"]
    shown = (
        number(value) if not isinstance(value, list) else f"{number(min(value), 2)} … {number(max(value), 2)}"
    )
    estimate = shown + (f" ± {number(error, 2)}" if error else "")
    picture = inline_svg(
        figures.parameter(entry),
        f"parameter-{i}",
        f"{entry['name']}: prior, posterior, and estimate {estimate}.",
    )
    prior = f"Prior: {entry['prior']}." if entry["prior"] else "No prior."
    return (
        f'<figure class="card parameter"><h3>{escape(entry["title"].capitalize())} <span class="small"><code>'
        f'{escape(entry["name"])}</code></span></h3><p class="estimate">{escape(estimate)}</p>'
        f"<p>{escape(entry['meaning'])} {escape(entry['plain'])}</p>{picture}"
        f"<figcaption>{escape(prior)}</figcaption></figure>"
    )


def fit(summary: Summary) -> str:
    f, model = summary["fit"], summary["model"]
    anchors = f", {model['anchors']:,} anchors" if model["anchors"] else ""
    facts = [
        ("ended", f"{f['reason']}, after {f['iterations']} iterations and {f['evaluations']} evaluations"),
        ("approximation", f"{model['approximation']}{anchors}"),
        ("kernel", model["kernel"]),
        ("warp of the target", model["warp"]),
        ("backend", f["backend"]),
        ("jitter", number(f["jitter"]) if f["jitter"] else "none needed"),
        ("time", seconds(f["total_seconds"])),
        ("peak memory", memory(f["peak_memory"])),
    ]  # fmt: skip
    top = max(f["seconds"].values(), default=0.0) or 1.0
    rows = [
        [escape(STAGES.get(name, f"{name} first")), bar(value / top), seconds(value)]
        for name, value in f["seconds"].items()
    ]
    cost = table("Seconds by stage.", [("stage", ""), ("", "wide"), ("time", "n")], rows, safe=True)
    path = figure(
        figures.learning_path(f),
        "path",
        f"Objective above its best value over {f['iterations']} iterations; the fit ended: {f['reason']}.",
        "Distance of the objective (minus log posterior) from its best value, on a log scale. A path that"
        " ends low and steep has converged; one that ends high was cut short.",
    )
    return f'<div class="grid">{path}<div class="card">{definitions(facts)}<br>{cost}</div></div>'


def data(summary: Summary) -> str:
    columns = summary["columns"]
    if not columns:
        return ""
    heads = [
        ("column", ""),
        ("kind", ""),
        ("missing", "n"),
        ("levels", "n"),
        ("range", "n"),
        ("note", "note"),
    ]
    rows = [
        [
            text(c.get("name", "")),
            text(c.get("kind", "")),
            _count(c.get("missing")),
            _count(c.get("levels")),
            _range(c.get("min"), c.get("max")),
            escape(clean(c["note"])) if c.get("note") else "",
        ]
        for c in columns
    ]
    # A phone has no room for columns that say nothing.
    kept = [j for j in range(len(heads)) if j < 3 or any(row[j] not in ("", DASH) for row in rows)]
    heads, rows = [heads[j] for j in kept], [[row[j] for j in kept] for row in rows]
    body = table(f"{len(columns)} input columns as the model sees them.", heads, rows, safe=True)
    if len(columns) > 30:
        body = f"<details><summary>Show the {len(columns)} input columns</summary>{body}</details>"
    return f'<div class="card scroll" tabindex="0">{body}</div>'


def provenance(summary: Summary) -> str:
    facts = list(_flat(summary["provenance"]))
    return f'<div class="card">{definitions(facts)}</div>' if facts else ""


def _flat(values: dict[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, dict):
            # What is off or has no value says nothing about the model.
            told = [f"{key} {item}" for key, item in value.items() if item is not None and item is not False]
            if told:
                yield name, ", ".join(told)
        elif name == "date" and value:
            yield name, moment(value)
        elif name == "peak_memory":
            yield "peak memory", memory(value)
        elif value not in (None, "", [], {}):
            words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield name.replace("_", " "), words


def _is_thinned(held_out: dict[str, Any]) -> bool:
    return len(held_out["points"]["y"]) < held_out["rows"]


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else DASH if value is None else text(value)


def _range(low: Any, high: Any) -> str:
    ends = [exact(v) if isinstance(v, int | float) else text(v) for v in (low, high) if v is not None]
    return " to ".join(ends) if len(ends) == 2 else DASH
