"""Standard errors at the MAP, and the directions that the data leave open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.family import Family
from widegp.inference.fit import Fitted
from widegp.inference.objective import MapObjective
from widegp.inference.result import Direction, FitResult, Reason

STEP = 1e-3
# Rows that suffice for second derivatives: an eigenvalue summed over so many is right to a few per cent.
FEW_ROWS = 50_000
# Posterior sd of an unconstrained direction above which prior, not data, decided it.
OPEN_SD = 0.5


def described(fitted: Fitted, builder: Builder) -> FitResult:
    """How the fit ended, with standard errors and open directions."""
    errors: dict[str, float] = {}
    undetermined: tuple[Direction, ...] = ()
    # A Laplace evidence costs ten times as much, and as many of them as parameters most of a fit.
    if isinstance(fitted.objective, MapObjective):
        fitted.run.watch.begin("curvature", fitted.values)
        errors, undetermined = describe(fitted)
    optimum = fitted.optimum
    return FitResult(
        reason=optimum.reason, objective=optimum.value, path=optimum.path, n_iter=optimum.n_iter,
        n_evaluations=optimum.n_evaluations, jitter=optimum.jitter,
        approximation=builder.dials.name, backend=builder.backend.name, problem=optimum.problem,
        rounds=fitted.rounds, standard_errors=errors, undetermined=undetermined,
        seconds=dict(fitted.seconds),
    )  # fmt: skip


def describe(fitted: Fitted) -> tuple[dict[str, float], tuple[Direction, ...]]:
    """Laplace: H = d^2 L / dz^2 by differences of the gradient, covariance H^-1.

    A vector of variances (ARD) enters by its common scale, so the cost is one gradient per parameter name.
    Returns standard errors of the parameters themselves, and the open directions of z.
    """
    objective, z = _on_few_rows(fitted.objective), fitted.optimum.z
    if fitted.optimum.reason is Reason.FAILED or z.size == 0:
        return {}, ()
    names, basis = _directions(fitted)
    evaluate = fitted.run.journaled(objective)
    here = fitted.optimum.gradient if objective is fitted.objective else None
    here = evaluate(z).gradient if here is None else here
    H = np.empty((len(names), len(names)))
    for j, direction in enumerate(basis):
        there = evaluate(z + STEP * direction)
        if there.problem:
            return {}, ()
        H[j] = basis @ (there.gradient - here) / STEP
    values, vectors = np.linalg.eigh((H + H.T) / 2)
    sds = 1 / np.sqrt(np.maximum(values, 1e-4))
    covariance = (vectors * sds**2) @ vectors.T
    open_ones = tuple(
        Direction(dict(zip(names, vectors[:, k].tolist(), strict=True)), float(sds[k]))
        for k in range(len(values))
        if sds[k] > OPEN_SD
    )
    space, errors = objective.space, {}
    parts = space.split(z)
    for j, name in enumerate(names):
        root = name.split("[")[0]
        # A vector's direction is a unit vector: each entry moves by 1 / sqrt(k) of the step along it.
        share = 1 / np.sqrt(parts[root].size) if name == root else 1.0
        mean_slope = np.mean(np.abs(space.map_of(root).slope(parts[root])))
        errors[name] = float(np.sqrt(covariance[j, j]) * mean_slope * share)
    return errors, open_ones


def _on_few_rows(objective: MapObjective) -> MapObjective:
    """The objective estimated from FEW_ROWS rows where there are many more; its curvature hardly differs."""
    whole = objective.likelihood
    if whole.n_rows <= 2 * FEW_ROWS or not isinstance(whole, Family):
        return objective
    rows = np.random.default_rng(0).choice(whole.n_rows, FEW_ROWS, replace=False)
    return replace(objective, likelihood=whole.batch(np.sort(rows)))


def _directions(fitted: Fitted) -> tuple[list[str], np.ndarray]:
    """One direction of z per parameter name; psi keeps its own entries."""
    names: list[str] = []
    rows: list[np.ndarray] = []
    labels = fitted.objective.space.labels()
    for name, shape in fitted.objective.space.shapes.items():
        members = np.array([label.split("[")[0] == name for label in labels])
        if name == "psi":
            for j in np.flatnonzero(members):
                names.append(labels[j])
                rows.append(np.eye(len(labels))[j])
        else:
            names.append(name)
            rows.append(members.astype(float) / (1.0 if shape == () else np.sqrt(members.sum())))
    return names, np.array(rows)
