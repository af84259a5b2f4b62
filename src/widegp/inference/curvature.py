"""Standard errors at the MAP, directions that the data leave open, parameters at an end of their range."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from widegp.approximations.build import Builder
from widegp.cost import CURVATURE_ROWS
from widegp.data.arrays import Floats
from widegp.inference.batches import of_rows
from widegp.inference.information import prior_information, ratios
from widegp.inference.objective import MapObjective
from widegp.inference.optimizers import differences
from widegp.inference.parameters import PSI
from widegp.inference.result import Direction, FitResult, Reason
from widegp.inference.rounds import Fitted

STEP = 1e-3
# Up to so many parameters each entry of a vector (ARD) has its own direction; beyond, their common scale.
FEW_PARAMETERS = 40
# Eigenvalues of H below this are raised to it: no posterior sd of z above 100 is reported.
FLATTEST = 1e-4
# Distance from a bound of z, in z, that counts as being there.
AT_BOUND = 1e-3


class Curvature(NamedTuple):
    """Standard errors of the parameters themselves, the undetermined directions of z, and notes."""

    standard_errors: dict[str, float]
    undetermined: tuple[Direction, ...]
    notes: tuple[str, ...] = ()


def described(fitted: Fitted, builder: Builder) -> FitResult:
    """How the fit ended, with standard errors and open directions."""
    found = Curvature({}, ())
    # A Laplace evidence costs ten times as much; one for each parameter would take nearly as long as the fit.
    if isinstance(fitted.objective, MapObjective):
        fitted.run.watch.begin("curvature", fitted.values)
        found = describe(fitted)
    optimum = fitted.optimum
    # A start that is the optimum already takes no iteration; its one evaluation counts as one.
    iterations = max(optimum.n_iter, 1 if optimum.reason is Reason.CONVERGED else 0)
    return FitResult(
        reason=optimum.reason, objective=optimum.value, path=optimum.path, n_iter=iterations,
        n_evaluations=optimum.n_evaluations, jitter=optimum.jitter,
        approximation=builder.dials.name, backend=builder.backend.name, problem=optimum.problem,
        rounds=fitted.rounds, standard_errors=found.standard_errors, undetermined=found.undetermined,
        seconds=dict(fitted.seconds), notes=found.notes,
    )  # fmt: skip


def describe(fitted: Fitted) -> Curvature:
    """Laplace: H = d^2 L / dz^2 by differences of the gradient, covariance H^-1.

    The data's information is H less the Hessian of the priors' penalty; `widegp.inference.information`
    compares it with that of the priors. With many parameters a vector (ARD) enters by its common scale.
    """
    notes = at_bounds(fitted)
    objective, z = _on_few_rows(fitted.objective), fitted.optimum.z
    if fitted.optimum.reason is Reason.FAILED or z.size == 0:
        return Curvature({}, (), notes)
    names, basis = _directions(objective)
    H = _hessian(fitted, objective, basis)
    if H is None:
        return Curvature({}, (), notes)
    # The gradient of the penalty holds no rows: its differences cost nothing.
    prior = basis @ differences(objective.prior_gradient, z, objective.prior_gradient(z)) @ basis.T
    open_ones = tuple(
        Direction(dict(zip(names, found.direction.tolist(), strict=True)), found.sd)
        for found in ratios(H - prior, _prior_information(objective, basis))
        if found.undetermined
    )
    return Curvature(_standard_errors(objective, z, names, basis, H), open_ones, notes)


def at_bounds(fitted: Fitted) -> tuple[str, ...]:
    """A sentence for every parameter that ended at an end of its range."""
    space, z = fitted.objective.space, fitted.optimum.z
    found = []
    for label, at, (low, high) in zip(space.labels(), z, space.bounds(), strict=True):
        name = label.split("[")[0]
        if min(at - low, high - at) < AT_BOUND and name != PSI.name:
            kind = space.declared[name].kind
            end, which = (kind.lower, "smallest") if at - low < high - at else (kind.upper, "largest")
            found.append(f"{label} ended at {end:g}, the {which} value that a fit may reach.")
    return tuple(found)


def _hessian(fitted: Fitted, objective: MapObjective, basis: np.ndarray) -> np.ndarray | None:
    """B H B' for directions B (k, p), or None where an evaluation failed."""
    evaluate, z = fitted.run.journaled(objective), fitted.optimum.z
    here = fitted.optimum.gradient if objective is fitted.objective else None
    here = evaluate(z).gradient if here is None else here
    H = np.empty((len(basis), len(basis)))
    for j, direction in enumerate(basis):
        there = evaluate(z + STEP * direction)
        if there.problem:
            return None
        H[j] = basis @ (there.gradient - here) / STEP
    return (H + H.T) / 2


def _prior_information(objective: MapObjective, basis: Floats) -> Floats:
    """v' P v for every direction v of the basis."""
    space, priors = objective.space, objective.problem.priors
    each: list[float] = []
    for name, shape in space.shapes.items():
        kind = space.declared[name].kind
        prior = priors.get(name)
        known = prior_information(prior, space.map_of(name), kind.lower, kind.upper)
        each += [known] * int(np.prod(shape))
    return basis**2 @ np.array(each, np.float64)


def _standard_errors(
    objective: MapObjective, z: np.ndarray, names: list[str], basis: np.ndarray, H: np.ndarray
) -> dict[str, float]:
    """sd of z times d theta / dz, by direction; the name of a vector stands for its common scale."""
    values, vectors = np.linalg.eigh(H)
    covariance = basis.T @ ((vectors / np.maximum(values, FLATTEST)) @ vectors.T) @ basis
    space, errors, start = objective.space, {}, 0
    for name, part in space.split(z).items():
        inside = slice(start, start := start + part.size)
        slopes = np.ravel(np.abs(space.map_of(name).slope(part)))
        if name != PSI.name and part.size:
            # All entries move together: the sd of the mean of their z.
            errors[name] = float(np.sqrt(covariance[inside, inside].mean()) * slopes.mean())
        own = [(j, f"{name}[{j}]") for j in range(part.size) if f"{name}[{j}]" in names]
        sds = np.sqrt(np.diagonal(covariance)[inside])
        errors |= {label: float(sds[j] * slopes[j]) for j, label in own}
    return errors


def _on_few_rows(objective: MapObjective) -> MapObjective:
    """The objective estimated from CURVATURE_ROWS rows where there are many more; an eigenvalue of the
    curvature summed over so many is right to a few per cent.
    """
    whole = objective.likelihood
    if whole.n_rows <= 2 * CURVATURE_ROWS or whole.summed is None:
        return objective
    return of_rows(objective, CURVATURE_ROWS, np.random.default_rng(0))


def _directions(objective: MapObjective) -> tuple[list[str], np.ndarray]:
    """Directions of z with their names: one per entry where they are few, else one per name, psi's apart."""
    labels = objective.space.labels()
    units = np.eye(len(labels))
    if len(labels) <= FEW_PARAMETERS:
        return labels, units
    names: list[str] = []
    rows: list[np.ndarray] = []
    for name, shape in objective.space.shapes.items():
        members = units[[label.split("[")[0] == name for label in labels]]
        if shape == () or name == PSI.name:
            names += [label for label in labels if label.split("[")[0] == name]
            rows += list(members)
        else:
            names.append(name)
            rows.append(members.sum(0) / np.sqrt(len(members)))
    return names, np.array(rows)
