"""Every figure of the page as SVG, with a description for those who cannot see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from widegp.report import figures
from widegp.report.formatting import number, percent, short
from widegp.report.svg import inline_svg

if TYPE_CHECKING:
    from markupsafe import Markup

Summary = dict[str, Any]

AXES = {"correlation": "the correlation of two rows, from -1 to 1", "distance": "the distance of two rows"}


def of(summary: Summary) -> dict[str, Markup]:
    """The figures by name; "by-prediction" is missing where all predictions are alike, "rootogram" where the
    target holds no counts.
    """
    h, target, level = summary["held_out"], summary["target"], percent(summary["held_out"]["level"])
    promised = "; ".join(f"{percent(r['promised'])} hold {percent(r['held'], 1)}" for r in h["coverage"])
    counts = ", ".join(str(count) for count in h["pit"]["counts"])
    drawn = {
        "predicted": (
            figures.predictions(h, target),
            f"Observed against predicted {short(target)} for held-out rows;"
            f" {percent(summary['scores']['coverage'], 1)} lie inside their {level} interval.",
        ),
        "residuals": (
            figures.residuals(h, target),
            "Residuals of held-out rows against their prediction, with their mean in bins.",
        ),
        "calibration": (figures.calibration(h), f"Calibration curve: intervals of {promised}."),
        "pit": (
            figures.pit(h),
            f"Histogram of predictive probabilities (PIT) in ten bins: {counts};"
            f" {number(h['pit']['expected'])} expected in each.",
        ),
        "quantiles": (figures.quantiles(h), "Standardised residuals against normal quantiles."),
        "kernel": (
            figures.kernel_shape(summary["explanation"]["kernel_shape"]),
            f"The {summary['model']['kernel']} kernel and its parts over"
            f" {AXES[summary['explanation']['kernel_shape']['axis']]}.",
        ),
        "path": (
            figures.learning_path(summary["fit"]),
            f"Objective above its best value over {summary['fit']['iterations']} iterations; the fit ended:"
            f" {summary['fit']['reason']}.",
        ),
    }
    if h["rootogram"]:
        words = "Square roots of held-out rows by their count, hung from what is expected."
        drawn["rootogram"] = (figures.rootogram(h, target), words)
    if h["by_prediction"]:
        held = ", ".join(percent(part["coverage"][0]["held"]) for part in h["by_prediction"])
        drawn["by-prediction"] = (
            figures.by_prediction(h, target),
            f"Share held by {level} intervals from the smallest to the largest predictions: {held}; and their"
            " mean width.",
        )
    return {name: inline_svg(figure, name, words) for name, (figure, words) in drawn.items()}


def effects(summary: Summary) -> list[Markup]:
    """A curve for each of the strongest inputs, all on one scale."""
    curves, target = summary["explanation"]["partial_dependence"], summary["target"]
    if not curves:
        return []
    limits = figures.common_limits(curves)
    return [
        inline_svg(
            figures.partial_dependence(curve, target, limits),
            f"effect-{i}",
            f"Mean prediction of {short(target)} along {short(curve['name'])}, from"
            f" {number(curve['mean'][0])} at {figures.places(curve)[0]} to {number(curve['mean'][-1])} at"
            f" {figures.places(curve)[-1]}.",
        )
        for i, curve in enumerate(curves)
    ]


def parameter(i: int, entry: dict[str, Any], estimate: str) -> Markup:
    """Prior, posterior and estimate of the i-th parameter."""
    words = f"{entry['name']}: prior, posterior, and estimate {estimate}."
    return inline_svg(figures.parameter(entry), f"parameter-{i}", words)
