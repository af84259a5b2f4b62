"""More rows for a fitted model, without a new fit.

The posterior given further rows is that of conditioning on all of them at the same parameters, scaler, warp,
metric, noise and anchors: the new rows come last in the order of conditioning, so that nothing that was
computed for the others changes. On the way each new row is predicted from all rows before it; how well that
went, beside how left-out rows of the fit are predicted, says when parameters should be estimated anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from widegp.approximations.base import Grown
from widegp.approximations.registry import approximation
from widegp.compute.backend import Backend
from widegp.engines.blocks import BlockedRows
from widegp.fitted import FittedGP
from widegp.inference.result import Growth
from widegp.neighbors import nearest_before
from widegp.tails import NORMAL
from widegp.training_table import new_rows

# New rows whose joint covariance is factorised at once; and that are searched for neighbours at once.
BLOCK_ROWS = 512
PART_ROWS = 16_384


class NewRows(NamedTuple):
    """X (q, I) and y (q,) in their own units; weight and noise (q,), the variances of y given f, or None.

    A row of weight w counts as w rows with the same target.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None
    noise: np.ndarray | None = None

    def of(self, rows: slice | np.ndarray) -> NewRows:
        """Some of them."""
        return NewRows(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


def grown_model(asked: Any, X: Any, y: Any, known: dict[str, Any]) -> FittedGP | tuple[FittedGP, ...]:
    """What the estimator ``asked`` was fitted to, given the rows X (q, I), y (q,) or (q, T) too.

    ``known`` of the rows: their weight and noise, or None.
    """
    new = NewRows(*new_rows(asked, X, y, **known))
    if not isinstance(asked.fitted_, tuple):
        return grown(asked.fitted_, new)
    outputs = zip(asked.fitted_, new.y.T, strict=True)
    return tuple(grown(one, new._replace(y=own)) for one, own in outputs)


def grown(model: FittedGP, new: NewRows) -> FittedGP:
    """``model`` given the ``new`` rows too; ``result.growth`` has one entry more."""
    if model.likelihood is not None:
        raise ValueError(
            f"A model of likelihood {type(model.likelihood).__name__} cannot take more rows: it does not keep"
            " the targets that its mode was found from; fit again with all rows."
        )
    found = []
    for start in range(0, len(new.y), PART_ROWS):
        model, growth = _given(model, new.of(slice(start, start + PART_ROWS)))
        found.append(growth)
    if not found:
        return model
    result = replace(model.result, growth=(*model.result.growth, Growth.pooled(found)))
    return replace(model, result=result).predicting_on(model.predictor.engine)


def _given(model: FittedGP, new: NewRows) -> tuple[FittedGP, Growth]:
    """The model and its members given some rows, and how well the model predicted these at its mode."""
    whole, growth = _one_given(model, new)
    made = [_one_given(one, new)[0] for one in model.models] if model.members else []
    members = tuple(
        replace(member, posterior=one.posterior, rows=one.rows)
        for member, one in zip(model.members, made, strict=True)
    )
    return replace(whole, members=members), growth


def _one_given(model: FittedGP, new: NewRows) -> tuple[FittedGP, Growth]:
    """The same of a single posterior."""
    X, z, spread = model.inputs.transform(new.X), model.standardised(new.y), _spread(model, new)
    slopes = _log_slope(model, new.y)
    backend, rows = model.predictor.backend, model.rows
    blocks = _blocks(model, backend, X, z, spread)
    with backend.scope():
        made = approximation(model.approximation).grown(model.posterior, backend, blocks)
    kept = None if rows is None else rows.grown(X, z, spread)
    return replace(model, posterior=made.posterior, rows=kept), _judged(model, made, slopes)


def _blocks(
    model: FittedGP, backend: Backend, X: np.ndarray, z: np.ndarray, spread: np.ndarray | None
) -> BlockedRows:
    """Rows X (q, I) with the rows before them that they condition on, where they do."""
    rows, q = model.rows, len(z)
    if rows is None:
        return BlockedRows(X, z, spread, np.zeros((q, 0), np.int32), BLOCK_ROWS, backend.pads)
    count = model.posterior.neighbors
    if count is None:
        raise ValueError(
            "The model comes from a version of widegp that did not keep on how many rows each row was"
            " conditioned; fit it again."
        )
    n = len(rows.X)
    near = nearest_before(rows.points, rows.kernel.embedding(X), count, lambda: rows.index)
    halo = np.unique(near[(near >= 0) & (near < n)])
    place = np.full(n + q + 1, -1, np.int32)
    place[halo], place[n : n + q] = q + np.arange(len(halo)), np.arange(q)
    X_halo, z_halo, spread_halo = rows.taken(halo, 1.0)
    own = np.ones(q) if spread is None else spread
    blocked = BlockedRows(
        np.concatenate([X, X_halo]), np.append(z, z_halo), np.append(own, spread_halo), place[near],
        BLOCK_ROWS, backend.pads,
    )  # fmt: skip
    return blocked.restricted(np.arange(q), BLOCK_ROWS)


def _spread(model: FittedGP, new: NewRows) -> np.ndarray | None:
    """Noise variances of new rows in units of sigma_eps2, (q,); None where all are 1."""
    spread: Any = None
    if new.noise is not None:
        spread = new.noise / (model.target.sd**2 * model.posterior.noise)
    elif model.noise_model is not None:
        spread = model.noise_model.spread(model.inputs.transform(new.X))
    if new.weight is not None:
        spread = (1.0 if spread is None else spread) / new.weight
    return spread


def _log_slope(model: FittedGP, y: np.ndarray) -> np.ndarray:
    """log dz/dy (q,) of targets in their own units; those that the warp excludes are refused."""
    warp = model.warp
    slope = warp.warp.terms(model.target.transform(y), warp.psi).log_jacobian
    excluded = np.flatnonzero(~np.isfinite(slope))
    if excluded.size:
        raise ValueError(
            f"The target of new row {excluded[0]} is {y[excluded[0]]:g}, which the model's {warp.name} warp"
            " excludes; leave that row out, or fit again with it."
        )
    return slope - np.log(warp.s * model.target.sd)


def _judged(model: FittedGP, made: Grown, slopes: np.ndarray) -> Growth:
    """log p(y_i) = log p(t_i) - log sd_i + log dz/dy_i  beside what is expected of log p(t)."""
    law, q = model.tails or NORMAL, len(made.t)
    mean, sd, known = model.result.left_out or (*law.log_density_moments(), np.inf)
    level = float(np.mean(slopes - made.log_sd))
    scores = law.log_density(made.t)
    chance = max(sd, float(scores.std())) / np.sqrt(q)
    return Growth(q, float(scores.mean()) + level, mean + level, float(chance), float(sd / np.sqrt(known)))
