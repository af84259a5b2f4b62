"""Profile posteriors: how far one parameter can move when the others follow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import PchipInterpolator

from widegp.inference.objective import Answer, MapObjective
from widegp.inference.optimizers import Task, lbfgs
from widegp.inference.result import Reason

# Half the 95% quantile of chi-square with one degree of freedom.
DROP = 1.920729
# Steps aim at this increase of sqrt(2 drop), a third of the way to the end of a 95% interval.
ROOT_STEP = 0.66
# After a last step longer than this, one more value is tried where the drop seems to be crossed.
WIDE_STEP = 1.0


@dataclass(frozen=True)
class Profile:
    """min over the others of L_MAP(theta), less its minimum, along one parameter.

    ``values`` (g,) ascending, ``curve`` (g,) with minimum 0, ``others`` (g, p) all parameters in the order of
    ``labels``; ``estimate`` has the smallest value of the curve. ``interval`` holds the ends at which the
    curve passes ``drop``; an end that the curve does not reach within the values tried is None.
    ``unfinished`` counts the values at which the other parameters did not converge.
    """

    name: str
    values: np.ndarray
    curve: np.ndarray
    estimate: float
    interval: tuple[float | None, float | None]
    labels: tuple[str, ...]
    others: np.ndarray
    drop: float = DROP
    unfinished: int = 0

    def __str__(self) -> str:
        low, high = self.interval
        lower = f"below {self.values[0]:.3g}" if low is None else f"{low:.3g}"
        upper = f"beyond {self.values[-1]:.3g}" if high is None else f"{high:.3g}"
        return f"{self.name}: {self.estimate:.3g}, profile interval {lower} to {upper}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "name": self.name,
            "values": self.values.tolist(),
            "curve": self.curve.tolist(),
            "estimate": self.estimate,
            "interval": list(self.interval),
            "drop": self.drop,
            "unfinished": self.unfinished,
        }


@dataclass(frozen=True)
class _Point:
    z: np.ndarray
    value: float
    converged: bool


@dataclass(frozen=True)
class Steps:
    """How far a profile goes: outward until it has risen by ``drop``, or until ``max_points`` values a side
    are spent; at each value the others move for at most ``max_iter`` iterations.
    """

    max_iter: int = 100
    max_points: int = 8
    drop: float = DROP


STEPS = Steps()


def profile(
    objective: MapObjective,
    start: np.ndarray,
    name: str,
    grid: ArrayLike | None = None,
    steps: Steps = STEPS,
) -> Profile:
    """L_p(t) = min { L_MAP(theta) : theta_name = t }, eq. (map_loss_body), by L-BFGS over the others.

    Parameters
    ----------
    objective : the MAP loss, exact or approximate; see `map_objective`.
    start : z (p,), the minimum or a point from which it is found first.
    name : one entry of ``objective.space.labels()``, such as ``"w"`` or ``"sigma_u2[3]"``.
    grid : values of the parameter; by default steps outward from the minimum, each about a third of the
        way to the end of a 95% interval, as far as ``steps`` say.
    steps : limits of the search.
    """
    labels = tuple(objective.space.labels())
    if name not in labels:
        raise ValueError(f"There is no parameter {name!r} to profile; choose from {', '.join(labels)}.")
    j = labels.index(name)
    best = _minimise(objective, start, None, steps.max_iter)
    along = _Along(objective, j, best, steps)
    if grid is None:
        points = [best, *along.march(1.0), *along.march(-1.0)]
    else:
        mapped = objective.space.map_of(name.split("[")[0])
        targets = np.sort(mapped.inverse(np.asarray(grid, float)))
        points = [best, *along.sweep(targets[targets >= best.z[j]])]
        points += along.sweep(targets[targets < best.z[j]][::-1])
    return _assembled(objective, name, j, sorted(points, key=lambda p: p.z[j]), steps.drop)


def _minimise(objective: MapObjective, z: np.ndarray, held: int | None, max_iter: int) -> _Point:
    """Minimise over all entries of z, or all but ``held``."""
    free = np.array([k for k in range(len(z)) if k != held], int)
    whole = np.array(z, float)

    def restricted(part: np.ndarray) -> Answer:
        whole[free] = part
        answer = objective(whole)
        return answer._replace(gradient=answer.gradient[free])

    bounds = objective.space.bounds()
    task = Task(restricted, [bounds[k] for k in free], objective.n_rows, max_iter)
    out = lbfgs(task, whole[free])
    if out.reason is Reason.FAILED:
        raise ArithmeticError(f"The objective cannot be evaluated where the profile starts: {out.problem}.")
    z = np.array(z, float)
    z[free] = out.z
    return _Point(z, out.value, out.reason.converged)


@dataclass(frozen=True)
class _Along:
    """The profile along entry ``j`` of z, from the minimum ``best`` of the objective."""

    objective: MapObjective
    j: int
    best: _Point
    steps: Steps

    def held(self, z: np.ndarray) -> _Point:
        """The minimum over the others, z_j held."""
        return _minimise(self.objective, z, self.j, self.steps.max_iter)

    def sweep(self, targets: Iterable[float]) -> list[_Point]:
        """Values in the given order, each from where the one before it ended."""
        out: list[_Point] = []
        z = self.best.z
        for target in targets:
            z = z.copy()
            z[self.j] = target
            out.append(self.held(z))
            z = out[-1].z
        return out

    def march(self, sign: float) -> list[_Point]:
        """Outward from the minimum, with steps adapted so that sqrt(2 drop) grows evenly."""
        j, best, drop = self.j, self.best, self.steps.drop
        low, high = self.objective.space.bounds()[j]
        out: list[_Point] = []
        here, step, last_root = best, 0.2, 0.0
        while len(out) < self.steps.max_points:
            z = here.z.copy()
            z[j] = np.clip(here.z[j] + sign * step, low, high)
            if z[j] == here.z[j]:
                break
            here = self.held(z)
            out.append(here)
            root = float(np.sqrt(2 * max(here.value - best.value, 0.0)))
            if here.value - best.value > 1.05 * drop:
                if root - last_root > WIDE_STEP:
                    share = (np.sqrt(2 * drop) - last_root) / (root - last_root)
                    z = here.z.copy()
                    z[j] -= (1 - share) * (z[j] - (out[-2] if len(out) > 1 else best).z[j])
                    out.append(self.held(z))
                break
            step *= float(np.clip(ROOT_STEP / max(root - last_root, 1e-3), 0.4, 2.5))
            last_root = root
        return out


def _assembled(objective: MapObjective, name: str, j: int, points: list[_Point], drop: float) -> Profile:
    space, mapped = objective.space, objective.space.map_of(name.split("[")[0])
    zeta = np.array([p.z[j] for p in points])
    curve = np.array([p.value for p in points])
    curve = curve - curve.min()
    ends = (_crossing(zeta[::-1], curve[::-1], drop), _crossing(zeta, curve, drop))

    def value(z: float) -> float:
        return float(mapped.forward(np.asarray(z)))

    others = [np.concatenate([np.ravel(v) for v in space.unpack(p.z).values()]) for p in points]
    return Profile(
        name, np.array([value(z) for z in zeta]), curve, value(zeta[np.argmin(curve)]),
        (None if ends[0] is None else value(ends[0]), None if ends[1] is None else value(ends[1])),
        tuple(space.labels()), np.array(others), drop, sum(not p.converged for p in points),
    )  # fmt: skip


def _crossing(zeta: np.ndarray, curve: np.ndarray, drop: float) -> float | None:
    """Where the curve first rises through ``drop`` after its minimum, in the order given.

    sqrt(curve) is linear for a parabola, so it is what is interpolated, by a monotone cubic.
    """
    start = int(np.argmin(curve))
    above = np.flatnonzero(curve[start:] > drop)
    if above.size == 0:
        return None
    end = start + int(above[0])
    # Values that do not rise, in flat or bumpy parts, say nothing about the slope at the crossing.
    rising = [start]
    for k in range(start + 1, end + 1):
        if curve[k] > curve[rising[-1]]:
            rising.append(k)
    roots = np.sqrt(curve[rising])
    if len(rising) == 2:
        return float(np.interp(np.sqrt(drop), roots, zeta[rising]))
    return float(PchipInterpolator(roots, zeta[rising])(np.sqrt(drop)))
