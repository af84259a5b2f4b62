"""Where a fit begins: a design over roughness and shape, profiled over scale and noise, then short fits.

The MAP loss of a table has several optima. A function that varies fast has a rough one, and beside it that of
the mean predictor, which puts everything down to noise; an optimiser finds the one nearest to its start. So
kernels over the whole range of roughness are compared first, at the cost of one eigendecomposition each, and
the optimiser starts from the best of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.dense import Dense
from widegp.compute.backend import Backend
from widegp.cost import START_ROWS
from widegp.inference.objective import MapObjective, Problem
from widegp.inference.optimizers import lbfgs
from widegp.inference.parameters import ParameterSpace, Values
from widegp.inference.priors import penalty

if TYPE_CHECKING:
    from widegp.inference.run import Run

# The design. Roughness: sigma_u2 times the typical |x|^2.
ROUGHNESS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
# sigma_a2: NEAR for bends among the rows; FAR times the roughness, at least FAR, for bends spread out beyond.
NEAR, FAR = 0.5, 4.0
# w, the share of the smooth part.
SMOOTH_SHARE = (0.3, 0.95)
# From here on the smooth activation alone is tried: the angular one gets no rougher.
ROUGH = 100.0
# Noise over the typical variance of the function.
NOISE_RATIOS = 10.0 ** np.arange(-4.0, 1.1, 0.5)
# Points of the design from which there is a short descent.
DESCENTS = 3
# Iterations of a short descent, and of the best ones' continuation.
SHORT, LONG = 15, 40
# Short descents within so many nats of the best go on; of those that went on, so many nats make a rival.
UNFINISHED_NATS, RIVAL_NATS = 20.0, 5.0
# Of two points that differ by less than this in every entry of z only the better is kept.
DISTINCT = 0.7
# One input is made so many times as rough as the others.
APART = (100.0, 10.0, 1e3, 0.01)
# So many of these starts are compared, on so many rows.
MOST_APART, APART_ROWS = 60, 300
# So many inputs may be changed one after the other, and each change must gain so many nats.
PASSES, APART_NATS = 3, 1.0


@dataclass(frozen=True)
class Start:
    """Parameters and their MAP loss on the rows of the start."""

    values: Values
    loss: float


def optima(
    run: Run, builder: Builder, problem: Problem, start: Values, space: ParameterSpace
) -> list[Start]:
    """Distinct optima of the exact MAP loss of at most START_ROWS random rows, best first.

    Those within RIVAL_NATS of the best are listed: more rows may turn their order. One variance serves all
    inputs; where ``start`` has one for each, they are equal in what is returned.
    """
    n = len(builder.X)
    rows = np.random.default_rng(builder.seed).permutation(n)[: min(n, START_ROWS)]
    scalar = isotropic(start, space.per_input)
    small, X = space.like(scalar), np.asarray(builder.X[rows])
    objective = problem.restricted(rows).on(Dense(X, builder.backend), small)

    def descend(values: Values, iterations: int) -> Start | None:
        out = lbfgs(run.task(objective, iterations), small.pack(values))
        return Start(small.unpack(out.z), out.value) if np.isfinite(out.value) else None

    designs = [scalar] if run.late() else [scalar, *_design(scalar, X, objective.problem.weight)]
    profiled = [_profiled(objective, values, builder.backend, X) for values in designs]
    chosen = _different([p for p in profiled if p is not None]) or [Start(scalar, np.inf)]
    short = [descend(candidate.values, SHORT) for candidate in chosen]
    found = _distinct([s for s in short if s is not None], small, UNFINISHED_NATS)
    longer = [descend(s.values, LONG if run.settings.exact else SHORT) or s for s in found]
    best = _distinct(longer, small, RIVAL_NATS) or [Start(scalar, np.inf)]
    return [Start(spread(s.values, start), s.loss) for s in best]


def _different(found: list[Start]) -> list[Start]:
    """The DESCENTS best, no two with the same roughness and share."""
    kept: dict[tuple[float, ...], Start] = {}
    for one in sorted(found, key=lambda s: s.loss):
        same = tuple(float(v) for k, v in one.values.items() if _role(k) in ("sigma_u2", "w"))
        kept.setdefault(same, one)
    return list(kept.values())[:DESCENTS]


def _role(name: str) -> str:
    """The parameter's name without that of the part of a sum or product to which it belongs."""
    return name.rsplit(".", 1)[-1]


def _design(scalar: Values, X: np.ndarray, weight: np.ndarray | None) -> Iterator[Values]:
    """Parameters from very smooth to very rough for rows X (n, I).

    A hidden unit bends where its pre-activation is 0, at distances of order sigma_a / sigma_u from the
    origin: among the rows where sigma_a2 is small against sigma_u2 |x|^2, evenly spread beyond them where it
    is large. The typical |x|^2 is a median, which rows far out do not move.
    """
    roles = {_role(name) for name in scalar}
    typical = max(float(_median(np.einsum("ij,ij->i", X, X), weight)), 1e-12)
    shares = SMOOTH_SHARE if "w" in roles else SMOOTH_SHARE[:1]
    places = (True, False) if "sigma_a2" in roles else (True,)
    for rough, near, share in product(ROUGHNESS, places, shares):
        if rough >= ROUGH and share != shares[-1]:
            continue
        changed = {
            "sigma_u2": rough / typical,
            "sigma_a2": NEAR if near else FAR * max(rough, 1.0),
            "w": share,
        }
        yield {name: np.full_like(value, changed.get(_role(name), value)) for name, value in scalar.items()}


def one_per_input(objective: MapObjective, values: Values, X: np.ndarray, backend: Backend) -> Values | None:
    """Where to begin with one sigma_u2 per input, other than at ``values``; None where that is as good.

    objective : of rows X (n, I), with a variance for each input.

    A function that varies fast along one of several inputs is noise to one variance for all, and from there
    no gradient leads to it. So one input after the other is made rougher, or smoother, than the others.
    """
    rows = np.random.default_rng(0).permutation(len(X))[:APART_ROWS]
    part, X = objective.problem.restricted(rows), X[rows]
    few = part.on(Dense(X, backend), objective.space)
    typical = _median(X * X, part.weight)
    best, moved = _profiled(few, values, backend, X), False
    for _ in range(PASSES):
        if best is None:
            break
        tried = islice(_apart_design(best.values, typical, objective.space.per_input), MOST_APART)
        found = [p for p in (_profiled(few, one, backend, X) for one in tried) if p is not None]
        better = min(found, key=lambda s: s.loss, default=best)
        if better.loss > best.loss - APART_NATS:
            break
        best, moved = better, True
    return best.values if best is not None and moved else None


def _apart_design(values: Values, typical: np.ndarray, per_input: tuple[str, ...]) -> Iterator[Values]:
    """``values`` with the variance of one input changed, bends where they are or spread out with it.

    typical : x_j^2 of a typical row (I,).
    """
    biased = [name for name in values if _role(name) == "sigma_a2"]
    for factor, far in product(APART, (True, False) if biased else (False,)):
        if far and factor < 1:
            continue
        for j, size in enumerate(typical):
            times = np.where(np.arange(len(typical)) == j, factor, 1.0)
            changed = {name: values[name] * times for name in per_input}
            if factor > 1:
                changed |= {k: np.asarray(SMOOTH_SHARE[-1]) for k in values if _role(k) == "w"}
            if far:
                rough = max(float(changed[name][j]) * size for name in per_input)
                changed |= {name: np.asarray(FAR * max(rough, 1.0)) for name in biased}
            yield values | changed


def _profiled(objective: MapObjective, values: Values, backend: Backend, X: np.ndarray) -> Start | None:
    """min over s and r of -log N(y; 0, s (C + r D)) - log p(theta), with C = K / median diag K.

    A median, since a row far out may have a variance that is larger than all the others together.
    D holds the noise variances in units of sigma_eps2 = s r. With D^-1/2 C D^-1/2 = U diag(l) U' and
    e = U' D^-1/2 y the best s for a ratio r is mean e^2 / (l + r), or noise / r where that is known. s goes
    to sigma_v2. y is centred, so sigma_b2, which moves the level alone, keeps its value.
    """
    observed = objective.problem.observed(values)
    K = np.asarray(backend.cross(objective.problem.kernel_at(values), X, X))
    level = float(_median(np.diagonal(K), objective.problem.weight))
    if not np.all(np.isfinite(K)) or level <= 0:
        return None
    noise_sd = np.sqrt(np.ones(len(X)) if observed.spread is None else observed.spread)
    eigenvalues, U = np.linalg.eigh(K / (level * np.outer(noise_sd, noise_sd)))
    squares, best = (U.T @ (observed.y / noise_sd)) ** 2, None
    for ratio in NOISE_RATIOS:
        spectrum = np.maximum(eigenvalues, 0.0) + ratio
        known = "sigma_eps2" not in values
        free = max(float(np.sum(squares / spectrum)) / objective.n_rows, 1e-12)
        scale = objective.problem.noise / ratio if known else free
        trial = _rescaled(values, scale / level, scale * ratio)
        loss = 0.5 * float(np.sum(np.log(scale * spectrum) + squares / (scale * spectrum)))
        loss += objective.problem.repetition(scale * ratio)[0]
        loss += penalty(objective.problem.priors, trial)[0]
        if best is None or loss < best.loss:
            best = Start(trial, loss)
    return best


def _median(x: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Of each column of x (n, ...), every row counted ``weight`` (n,) times."""
    return np.asarray(np.quantile(x, 0.5, axis=0, weights=weight, method="inverted_cdf"))


def _rescaled(values: Values, factor: float, noise: float) -> Values:
    """The same with every sigma_v2 times ``factor`` and, where it is estimated, this noise."""
    moved = {name: value * factor for name, value in values.items() if _role(name) == "sigma_v2"}
    return {**values, **moved, **({"sigma_eps2": np.asarray(noise)} if "sigma_eps2" in values else {})}


def _distinct(found: list[Start], space: ParameterSpace, nats: float) -> list[Start]:
    """The best, and those within ``nats`` of it that are not next to a better one; best first."""
    kept: list[Start] = []
    for one in sorted(found, key=lambda s: s.loss):
        z = space.pack(one.values)
        near = any(np.abs(z - space.pack(other.values)).max() < DISTINCT for other in kept)
        if not kept or (not near and one.loss <= kept[0].loss + nats):
            kept.append(one)
    return kept


def isotropic(values: Values, per_input: tuple[str, ...]) -> Values:
    """The same with one variance for all inputs."""
    return {k: np.asarray(v.mean()) if k in per_input else v for k, v in values.items()}


def spread(values: Values, like: Values) -> Values:
    """The same with a variance for every input where ``like`` has one."""
    return {name: np.broadcast_to(value, like[name].shape).copy() for name, value in values.items()}
