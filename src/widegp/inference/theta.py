"""The posterior of the parameters: weighted points or draws, credible intervals, evidence."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from widegp.conformal import check_level
from widegp.inference.density import Mode, PosteriorDensity
from widegp.inference.evidence import DRAWS, FEW_DRAWS, Evidence, Weighted, evidence, laplace_evidence
from widegp.inference.objective import MapObjective
from widegp.inference.parameters import ParameterSpace
from widegp.inference.posterior_points import posterior_points
from widegp.inference.result import Reason
from widegp.inference.rounds import Fitted
from widegp.inference.thinned import thinned
from widegp.kernels.parameters import KINDS
from widegp.registry import saveable

METHODS = ("auto", "map", "laplace", "sample")
# "auto" averages over the parameters up to so many rows, and parameters.
FEW_ROWS, FEW_PARAMETERS = 300, 40
# Up to so many rows, and parameters, it averages over draws in place of points: there their posterior is
# furthest from Gaussian and draws are cheap; FEW_DRAWS seldom reach all of one of more parameters.
DRAWN_ROWS, DRAWN_PARAMETERS = 150, 12
# Points that stand for the draws where predictions are averaged, at least.
MEMBERS = 15
LEVEL = 0.95


@saveable
@dataclass(frozen=True, eq=False)
class ParameterPosterior:
    """Points z_s with shares w_s that stand for p(z | y), s = 1..k.

    method : ``"points"``, a few of them around the mode; ``"importance"``, draws weighted by the density; or
        ``"sample"``, draws of NUTS.
    labels, kinds : (p) names such as ``"sigma_u2[3]"``, and the names of their maps from z to the parameter.
    z, weights : (k, p) and (k,); the weights sum to 1.
    evidence : log p(y).    chains : draws are stored chain by chain.    rhat : (p,), of draws, else None.
    """

    method: str
    labels: tuple[str, ...]
    kinds: tuple[str, ...]
    z: np.ndarray
    weights: np.ndarray
    evidence: Evidence | None = None
    chains: int = 1
    rhat: np.ndarray | None = None

    @property
    def values(self) -> np.ndarray:
        """The points as parameters, (k, p)."""
        return np.stack([KINDS[k].map.forward(z) for k, z in zip(self.kinds, self.z.T, strict=True)], 1)

    @property
    def z_mean(self) -> np.ndarray:
        """E z, (p,)."""
        return np.asarray(self.weights @ self.z)

    @property
    def z_covariance(self) -> np.ndarray:
        """Cov z, (p, p)."""
        apart = self.z - self.z_mean
        return np.asarray(apart.T @ (apart * self.weights[:, None]))

    def intervals(self, level: float = LEVEL) -> dict[str, tuple[float, float]]:
        """Central credible intervals by label: quantiles of draws; of points E z -+ t sd z, mapped to x."""
        check_level(level)
        if self.method == "points":
            half = ndtri((1 + level) / 2) * np.sqrt(np.diagonal(self.z_covariance))
            ends = np.stack([self.z_mean - half, self.z_mean + half])
        else:
            levels = [(1 - level) / 2, (1 + level) / 2]
            ends = np.quantile(self.z, levels, axis=0, weights=self.weights, method="inverted_cdf")
        x = [KINDS[kind].map.forward(z) for kind, z in zip(self.kinds, ends.T, strict=True)]
        return {label: (float(low), float(high)) for label, (low, high) in zip(self.labels, x, strict=True)}

    def draws(self, count: int, seed: int = 0) -> np.ndarray:
        """z of ``count`` equal draws (count, p): resampled by weight, or of the Gaussian of points."""
        rng = np.random.default_rng(seed)
        if self.method == "points":
            return rng.multivariate_normal(self.z_mean, self.z_covariance, count, method="eigh")
        return self.z[rng.choice(len(self.z), count, p=self.weights)]

    def to_arviz(self, draws: int = 4000, seed: int = 0) -> Any:
        """An ArviZ data set of the parameters: the chains of NUTS, else ``draws`` of `draws`."""
        try:
            import arviz
        except ImportError as error:
            raise ImportError("to_arviz needs ArviZ; install it by pip install arviz.") from error
        z = self.z if self.method == "sample" else self.draws(draws, seed)
        found = {
            label: KINDS[kind].map.forward(column).reshape(self.chains, -1)
            for label, kind, column in zip(self.labels, self.kinds, z.T, strict=True)
        }
        # ArviZ 1 takes the groups as one mapping, earlier releases each by its name.
        early = "posterior" in inspect.signature(arviz.from_dict).parameters
        return arviz.from_dict(**({"posterior": found} if early else {"data": {"posterior": found}}))

    def __str__(self) -> str:
        ends = self.intervals()
        lines = [f"{label}: {low:.3g} to {high:.3g}" for label, (low, high) in ends.items()]
        how = {"points": "weighted points", "importance": "weighted draws", "sample": "draws"}[self.method]
        head = f"Posterior of the parameters, {len(self.z)} {how}; {LEVEL:.0%} credible intervals:"
        return "\n".join([head, *lines])


class Averaged(NamedTuple):
    """The posterior of the parameters, and the points over which predictions are averaged."""

    posterior: ParameterPosterior
    points: Weighted


def averages(asked: str, fitted: Fitted, exact: bool) -> str:
    """``"map"``, ``"laplace"`` or ``"sample"``: what is done for ``asked``, one of METHODS.

    ``"auto"`` averages over the posterior where an exact fit has at most FEW_ROWS rows and FEW_PARAMETERS
    parameters, has converged and has no deadline: there it takes less time than the fit itself, and there the
    mode alone is too sure.
    """
    if asked != "auto":
        return asked
    few = fitted.objective.n_rows <= FEW_ROWS and fitted.optimum.z.size <= FEW_PARAMETERS
    free = fitted.run.deadline is None and fitted.run.settings.name == "lbfgs"
    able = isinstance(fitted.objective, MapObjective) and fitted.optimum.reason.converged
    return "laplace" if few and free and able and exact and fitted.optimum.z.size else "map"


def laplace(fitted: Fitted, check: bool = True) -> Averaged | None:
    """Weighted draws of z, or points around its mode; None where no Hessian can be made.

    With ``check`` the evidence is checked by importance sampling, which takes longer than several fits; of
    few rows fewer draws are made in any case. Where these can be relied on they stand for the posterior: the
    points are too narrow in directions that are far from Gaussian.
    """
    found_mode = mode_of(fitted)
    if found_mode is None:
        return None
    density, mode = found_mode
    names, found = named(density.space), Evidence(laplace_evidence(mode))
    few = fitted.objective.n_rows <= DRAWN_ROWS and mode.z.size <= DRAWN_PARAMETERS
    if check or few:
        found, drawn = evidence(density, mode, rounds=DRAWS if check else FEW_DRAWS)
        if found.reliable:
            # As many as there would be points around the mode, so that predictions cost the same.
            z = thinned(*drawn, max(MEMBERS, 2 * mode.z.size + 1)).clip(*density.bounds.T)
            equal = Weighted(z, np.full(len(z), 1 / len(z)))
            return Averaged(ParameterPosterior("importance", *names, *drawn, found), equal)
    points = posterior_points(density.value, mode.z, mode.hessian, density.bounds)
    kept = Weighted(np.array([point.z for point in points]), np.array([point.weight for point in points]))
    return Averaged(ParameterPosterior("points", *names, *kept, found), kept)


def mode_of(fitted: Fitted) -> tuple[PosteriorDensity, Mode] | None:
    """The density of z and its mode, from the end of a fit on; None where that has no Hessian."""
    density = density_of(fitted)
    if fitted.optimum.reason is Reason.FAILED or fitted.optimum.z.size == 0:
        return None
    mode = density.mode(density.space.pack(fitted.values))
    return None if mode is None else (density, mode)


def density_of(fitted: Fitted) -> PosteriorDensity:
    """The posterior density of z at the end of a fit, in the coordinates of L-BFGS."""
    space = replace(fitted.objective.space, log=True)
    objective = replace(fitted.objective, space=space)
    return PosteriorDensity(objective, fitted.run.journaled(objective))


def named(space: ParameterSpace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels and names of kinds, one of each per entry of z."""
    labels = tuple(space.labels())
    return labels, tuple(space.declared[label.split("[")[0]].kind.name for label in labels)
