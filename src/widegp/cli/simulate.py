"""``widegp simulate``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from widegp.cli import options
from widegp.cli.output import print_json
from widegp.cli.writers import check_suffix, table_writer

if TYPE_CHECKING:
    from widegp.simulate import Simulation

Method = Literal["vecchia", "network", "full-scale", "exact"]
BATCH_ROWS = 65536


def simulate(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="C1 to C8 of the paper.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="CSV or Parquet file to write.")],
    method: Annotated[
        Method, typer.Option(help="vecchia: the paper's; network: truer in many inputs; exact: few rows.")
    ] = "vecchia",
    rows: Annotated[int | None, typer.Option(min=2, help="Rows; the scenario's own by default.")] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Draw a table of one of the paper's scenarios.

    Inputs x1, x2, ... lie in [-0.5, 0.5]; f is a draw of the Gaussian process and y = f + noise. To fit y,
    leave f out: widegp fit TABLE --target y --drop f.

    \b
    Examples:
      widegp simulate C1 --out c1.parquet
      widegp simulate C8 --rows 5000 --method network --seed 3 --out c8.csv
    """
    check_suffix(out)
    from widegp.files import check_place
    from widegp.paper.scenarios import draw, sized

    chosen = sized(scenario, rows)
    check_place(out)
    made = draw(chosen, seed, method=method)
    _write(made, out)
    n_rows, n_inputs = made.X.shape
    if as_json:
        print_json({
            "out": str(out), "scenario": scenario, "rows": n_rows, "inputs": n_inputs, "method": method,
            "seed": seed, "sigma_eps2": made.noise, "kbar": made.noise / chosen.noise_fraction,
            "jitter": made.jitter,
        })  # fmt: skip
        return
    typer.echo(f"{n_rows:,} rows of {scenario} with {n_inputs} inputs, noise {made.noise:.4g}, are in {out}.")


def _write(made: Simulation, out: Path) -> None:
    import pyarrow as pa

    columns = {f"x{j + 1}": made.X[:, j] for j in range(made.X.shape[1])}
    table = pa.table({**columns, "f": made.f, "y": made.y})
    with table_writer(out) as writer:
        for batch in table.to_batches(BATCH_ROWS):
            writer.write_batch(batch)
