"""The posterior of the parameters: weighted points or draws, credible intervals, evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from widegp.inference.density import PosteriorDensity
from widegp.inference.evidence import DRAWS, Evidence, evidence
from widegp.inference.fit import Fitted
from widegp.inference.objective import MapObjective
from widegp.inference.parameters import ParameterSpace
from widegp.inference.posterior_points import posterior_points
from widegp.inference.result import Reason
from widegp.kernels.parameters import KINDS
from widegp.registry import saveable

if TYPE_CHECKING:
    import arviz

METHODS = ("auto", "map", "laplace", "sample")
# "auto" averages over the parameters up to so many rows, and parameters.
FEW_ROWS, FEW_PARAMETERS = 300, 40
LEVEL = 0.95
# Draws of NUTS over which predictions are averaged.
MEMBERS = 64


@saveable
@dataclass(frozen=True, eq=False)
class ParameterPosterior:
    """Points z_s with shares w_s that stand for p(z | y), s = 1..k.

    method : ``"laplace"``, weighted points around the mode, or ``"sample"``, draws of NUTS.
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
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1; got {level}.")
        if self.method == "sample":
            ends = np.quantile(self.z, [(1 - level) / 2, (1 + level) / 2], axis=0)
        else:
            half = ndtri((1 + level) / 2) * np.sqrt(np.diagonal(self.z_covariance))
            ends = np.stack([self.z_mean - half, self.z_mean + half])
        x = [KINDS[kind].map.forward(z) for kind, z in zip(self.kinds, ends.T, strict=True)]
        return {label: (float(low), float(high)) for label, (low, high) in zip(self.labels, x, strict=True)}

    def thinned(self, count: int, seed: int = 0) -> ParameterPosterior:
        """At most ``count`` of the draws, at random; weighted points stay as they are."""
        if self.method != "sample" or len(self.z) <= count:
            return self
        kept = np.sort(np.random.default_rng(seed).choice(len(self.z), count, replace=False))
        return replace(self, z=self.z[kept], weights=np.full(count, 1 / count), chains=1)

    def to_arviz(self, draws: int = 4000, seed: int = 0) -> arviz.InferenceData:
        """The draws of the parameters; of weighted points, draws of the Gaussian of z with their moments."""
        try:
            import arviz
        except ImportError as error:
            raise ImportError("to_arviz needs ArviZ; install it by pip install arviz.") from error
        z = self.z
        if self.method != "sample":
            rng = np.random.default_rng(seed)
            z = rng.multivariate_normal(self.z_mean, self.z_covariance, draws, method="eigh")
        found: dict[str, Any] = {}
        for label, kind, column in zip(self.labels, self.kinds, z.T, strict=True):
            found[label] = KINDS[kind].map.forward(column).reshape(self.chains, -1)
        return arviz.from_dict({"posterior": found})

    def __str__(self) -> str:
        ends = self.intervals()
        lines = [f"{label}: {low:.3g} to {high:.3g}" for label, (low, high) in ends.items()]
        how = f"{len(self.z)} {'draws' if self.method == 'sample' else 'weighted points'}"
        return "\n".join([f"Posterior of the parameters, {how}; 95% credible intervals:", *lines])


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


def laplace(fitted: Fitted, draws: int = DRAWS) -> ParameterPosterior | None:
    """Weighted points around the mode of z, and the evidence; None where no Hessian can be made."""
    density = density_of(fitted)
    if fitted.optimum.reason is Reason.FAILED or fitted.optimum.z.size == 0:
        return None
    mode = density.mode(density.space.pack(fitted.values))
    if mode is None:
        return None
    points = posterior_points(density.value, mode.z, mode.hessian, density.bounds)
    z, weights = np.array([point.z for point in points]), np.array([point.weight for point in points])
    found = evidence(density, mode, draws)
    return ParameterPosterior("laplace", *named(density.space), z, weights, found)


def density_of(fitted: Fitted) -> PosteriorDensity:
    """The posterior density of z at the end of a fit, in the coordinates of L-BFGS."""
    space = replace(fitted.objective.space, log=True)
    objective = replace(fitted.objective, space=space)
    return PosteriorDensity(objective, fitted.run.journaled(objective))


def named(space: ParameterSpace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels and names of kinds, one of each per entry of z."""
    labels = tuple(space.labels())
    return labels, tuple(space.declared[label.split("[")[0]].kind.name for label in labels)
