"""``widegp bench``"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from widegp.cli import options
from widegp.cli.output import console, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from widegp.measure import Figure


def bench(
    rows: Annotated[int, typer.Option(min=200, help="Of the larger table; the other has a quarter.")] = 20000,
    rank: Annotated[int, typer.Option(min=1, help="Anchors of vfe.")] = 500,
    full_scale_rank: Annotated[int, typer.Option(min=1, help="Anchors of full-scale.")] = 200,
    neighbors: options.Neighbors = 30,
    repeats: Annotated[int, typer.Option(min=1, help="Calls whose median is taken, after a first one.")] = 3,
    as_json: options.Json = False,
) -> None:
    """Measure how fast this machine is, in about a minute.

    One evaluation of the objective with its gradient, of which a plain fit takes 4 to 20, beside the matrix
    products that it cannot do without; the search for neighbours; prediction. Simulated tables with 50
    inputs, float64.

    \b
    Examples:
      widegp bench
      widegp bench --rows 100000 --json
    """
    from widegp.measure import INPUTS, machine, survey

    dials = {"inputs": INPUTS, "rank": rank, "full_scale_rank": full_scale_rank, "neighbors": neighbors}
    here, figures = machine(), []
    with console(stderr=True).status("measuring") as status:
        for figure in survey((rows // 4, rows), rank, full_scale_rank, neighbors, repeats):
            figures.append(figure)
            status.update(f"measured: {figure.name}, {figure.rows:,} rows")
    if as_json:
        print_json({"machine": here, **dials, "figures": [figure.to_dict() for figure in figures]})
        return
    out = console()
    out.print(_view(figures))
    out.print(_about(here, dials), markup=False, soft_wrap=True)


def _view(figures: list[Figure]) -> Table:
    from rich.table import Table

    view = Table(box=None, pad_edge=False)
    view.add_column("what", no_wrap=True)
    for name in ("rows", "seconds", "rows/s", "bare products", "ratio"):
        view.add_column(name, justify="right")
    for figure in figures:
        products = "" if figure.products is None else f"{figure.products:.3f} s"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        view.add_row(
            figure.name, f"{figure.rows:,}", f"{figure.seconds:.3f}", f"{figure.rate:,.0f}", products, ratio
        )
    return view


def _about(here: dict[str, Any], dials: dict[str, int]) -> str:
    """Dials, machine and versions, a line each."""
    memory = f", {here['memory_gib']} GiB" if here["memory_gib"] else ""
    versions = ", ".join(f"{name} {number}" for name, number in here["versions"].items())
    return "\n".join([
        f"evaluation: one objective with gradient; I = {dials['inputs']},"
        f" r = {dials['rank']} (vfe) and {dials['full_scale_rank']} (full-scale),"
        f" m = {dials['neighbors']}, float64",
        f"{here['processor']}, {here['threads']} of {here['cores']} cores{memory}, load {here['load']}",
        f"{here['system']}, Python {here['python']}; {versions}",
    ])  # fmt: skip
