"""``widegp warmup``"""

from __future__ import annotations

import time

import typer

# More pairs of rows than NumPy compares, so that the compiled search runs too.
ROWS, INPUTS, RANK, NEIGHBORS = 1_100, 3, 20, 5


def warmup() -> None:
    """Compile once for this processor what a first fit would otherwise wait for.

    What is compiled is kept beside the package, or where NUMBA_CACHE_DIR says, until widegp changes.

    \b
    Example:
      widegp warmup
    """
    typer.echo("Compiling once for this processor ...", nl=False)
    began = time.perf_counter()
    import numpy as np

    from widegp.kernels import Mixed
    from widegp.measure import evaluation, table

    # A variance for every input needs whatever one for all of them does, and one loop more.
    kernel = Mixed(sigma_u2=np.full(INPUTS, 1 / INPUTS))
    evaluation(*table(ROWS, INPUTS), "full-scale", kernel, 0.1, RANK, NEIGHBORS)()
    typer.echo(f" {time.perf_counter() - began:.0f} s.")
