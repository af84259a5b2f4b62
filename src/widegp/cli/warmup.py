"""``widegp warmup``"""

from __future__ import annotations

import json
import time

import typer

from widegp.cli import options

# More pairs of rows than NumPy compares, so that the compiled search runs too.
ROWS, INPUTS, RANK, NEIGHBORS = 1_100, 3, 20, 5


def warmup(as_json: options.Json = False) -> None:
    """Compile once for this processor what a first fit would otherwise wait for.

    What is compiled is kept beside the package, or where NUMBA_CACHE_DIR says, until widegp changes.

    \b
    Examples:
      widegp warmup
      widegp warmup --json
    """
    if not as_json:
        typer.echo("Compiling once for this processor ...", nl=False)
    began = time.perf_counter()
    import numpy as np

    from widegp.compute.backend import choose_backend
    from widegp.data.input_maps import QuantileScaler
    from widegp.kernels import Mixed
    from widegp.measure import Setting, evaluation, table
    from widegp.trees import TreesInput

    # Variances by input run every loop of one variance, and one more.
    kernel = Mixed(sigma_u2=np.full(INPUTS, 1 / INPUTS))
    X, y = table(ROWS, INPUTS)
    evaluation(X, y, kernel, 0.1, Setting("full-scale", RANK, NEIGHBORS))()
    # Predictions factorise cells.
    choose_backend(kernel).residual_inverse(kernel, X[:9], np.zeros((9, 0)), np.full(9, 0.1))
    # One row and many rows use different loops.
    TreesInput.fit(QuantileScaler.fit(X).transform(X), y, 0).transform(X[:1])
    seconds = time.perf_counter() - began
    typer.echo(json.dumps({"seconds": seconds}) if as_json else f" {seconds:.0f} s.")
