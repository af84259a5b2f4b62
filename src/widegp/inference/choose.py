"""Choices left to the program: which approximation, which warp."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from widegp.approximations.build import Builder, Dials
from widegp.approximations.dense import Dense
from widegp.inference.fit import START_ROWS
from widegp.inference.objective import MapObjective
from widegp.inference.optimizers import lbfgs
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.priors import Prior
from widegp.kernels.base import Kernel
from widegp.warps import candidates, make_warp, profile_start

EXACT_ROWS = 2000


def choose_dials(dials: Dials, n_rows: int, n_inputs: int, ard: bool, budget: float | None) -> Dials:
    """Resolve ``"auto"``: exact while a fit takes about a minute, full-scale beyond."""
    if dials.name != "auto":
        return dials
    if n_rows <= EXACT_ROWS:
        return replace(dials, name="exact")
    return replace(dials, name="full-scale", rank=min(dials.rank, 200))


def choose_warp(
    asked: str | None, y: np.ndarray, target: np.ndarray, builder: Builder, kernel: Kernel, start: Values,
    priors: dict[str, Prior], scale: dict[str, float],
) -> tuple[str, np.ndarray]:  # fmt: skip
    """The name of the warp and where its parameters begin.

    ``"auto"`` fits each family of `candidates` with the kernel on a few rows by the exact likelihood,
    Jacobian included, and keeps the likeliest.
    """
    if asked is None or asked == "none":
        return "none", np.zeros(0)
    if asked != "auto":
        return asked, profile_start(target, asked, **scale)
    rows = np.random.default_rng(builder.seed).permutation(len(y))[: min(len(y), START_ROWS)]
    likelihood = Dense(builder.X[rows], builder.backend)
    scalar = {k: (np.asarray(v.mean()) if k == "sigma_u2" else v) for k, v in start.items()}
    best = (np.inf, "none", np.zeros(0))
    for name in candidates(y):
        warp, psi = make_warp(name, **scale), profile_start(target, name, **scale)
        values = scalar | ({"psi": psi} if psi.size else {})
        space = ParameterSpace.of(values, tuple(warp.bounds) if psi.size else ())
        objective = MapObjective(likelihood, kernel, target[rows], warp, priors, space)
        out = lbfgs(objective, space.pack(values), space.bounds(), len(rows), 20)
        if out.value < best[0]:
            best = (out.value, name, space.unpack(out.z).get("psi", np.zeros(0)))
    return best[1], best[2]
