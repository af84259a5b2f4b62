"""Matplotlib figures as SVG that can stand in a page: themed, described, with ids of their own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING

from widegp.extras import needed
from widegp.report.formatting import SUPERSCRIPTS

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe and Ito's blue and vermillion, which readers with any colour vision can tell apart. In the page each
# colour becomes a CSS variable, so that one drawing serves a light and a dark page.
INK, MUTED, RULE, BLUE, ORANGE, GREY = "#1c2733", "#5a6673", "#dde2e8", "#0072b2", "#d55e00", "#8b96a3"
VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule", BLUE: "blue", ORANGE: "orange", GREY: "grey"}

SIZE = (4.1, 3.2)

# From which size of the axis on a unit is used, what it stands for, and how it is written.
UNITS = ((1e9, 1e9, "bn"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))


def new_figure(size: tuple[float, float] = SIZE) -> tuple[Figure, Axes]:
    """One plain panel without a frame; no pyplot, so that nothing global is left behind."""
    figure, panels = new_panels(1, size)
    return figure, panels[0]


def new_panels(count: int, size: tuple[float, float] = SIZE) -> tuple[Figure, list[Axes]]:
    """``count`` such panels above each other, which share their x axis."""
    needed("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", dpi=180)
    figure.patch.set_visible(False)
    panels = [figure.add_subplot(count, 1, 1)]
    panels += [figure.add_subplot(count, 1, k, sharex=panels[0]) for k in range(2, count + 1)]
    for axes in panels:
        axes.patch.set_visible(False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(GREY)
        axes.tick_params(colors=MUTED, labelsize=9, length=3, color=GREY)
        axes.grid(color=RULE, lw=0.7)
        axes.set_axisbelow(True)
        # Few and short, so that labels never run into each other.
        axes.locator_params(nbins=5)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(_ticks_of(axis))
    for axes in panels[:-1]:
        axes.tick_params(labelbottom=False)
    return figure, panels


def tick(value: float, low: float, high: float) -> str:
    """The label of a tick on an axis from ``low`` to ``high``: 2018; 250k; 1.5M; 3 × 10⁻⁵."""
    largest = max(abs(low), abs(high))
    if abs(value) <= 1e-9 * abs(high - low):
        return "0"
    if not 1e-3 <= largest < 1e12:
        mantissa, power = f"{value:e}".split("e")
        return f"{float(mantissa):.4g} × 10{str(int(power)).translate(SUPERSCRIPTS)}".replace("-", "−")
    # Years and other numbers of four digits are read as they are.
    scale, unit = next((entry[1:] for entry in UNITS if largest >= entry[0]), (1.0, ""))
    return f"{value / scale:.6g}{unit}".replace("-", "−")


def _ticks_of(axis: Axis) -> Callable[[float, float], str]:
    return lambda value, _: tick(value, *axis.get_view_interval())


def label(axes: Axes, x: str = "", y: str = "") -> None:
    """Axis labels taken literally: a column may be called $x_1$."""
    axes.set_xlabel(x, color=INK, fontsize=10, parse_math=False)
    axes.set_ylabel(y, color=INK, fontsize=10, parse_math=False)


def log_scale(axes: Axes, which: str) -> None:
    """A log scale for "x" or "y"; its labels, 10⁻³, avoid matplotlib's slow parser of formulas."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(numticks=6))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"10{str(round(math.log10(value))).translate(SUPERSCRIPTS)}")


def legend(axes: Axes, columns: int = 3) -> None:
    """Above the panel, where it covers nothing."""
    axes.figure.legend(  # type: ignore[union-attr]
        loc="outside upper left", ncols=columns, frameon=False, fontsize=8.5, labelcolor=INK,
        handlelength=1.5, columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip


def inline_svg(figure: Figure, name: str, description: str) -> Markup:
    """The figure as an <svg> element named ``name``, with ``description`` for those who cannot see it."""
    import matplotlib
    from markupsafe import Markup

    out = StringIO()
    # The SVG writer reads these two settings from nowhere else; the context puts the old ones back.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    box = re.search(r'viewBox="([^"]+)"', text)
    body = re.sub(
        r"<metadata>.*?</metadata>", "", text[text.index(">", text.index("<svg")) + 1 :], flags=re.S
    )
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", body)
    # A hundredth of a point is finer than any screen; labels, which stand outside the tags, stay as they are.
    body = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), body)
    for colour, variable in VARIABLES.items():
        body = re.sub(rf"\b(fill|stroke|stop-color): {colour}\b", rf"\1: var(--{variable})", body)
    assert box is not None
    opening = Markup('<svg class="figure" viewBox="{}" role="img" aria-label="{}">')
    return opening.format(box[1], description) + Markup(body)
