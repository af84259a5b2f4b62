"""The distribution of new targets, row by row: moments, quantiles, probabilities, scores and draws.

`Predictive` says what any such distribution offers. `WarpedGaussian` is that of a Gaussian process at fixed
parameters, whose target was scaled and warped, `Tailed` one whose tails were learned; `Mixture` averages
several distributions of the same rows.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, ndtr, ndtri

from widegp.conformal import ConformalCalibration, check_level
from widegp.data.preprocessing import TargetScaler
from widegp.fitted_warp import FittedWarp
from widegp.metrics import standard_score
from widegp.roots import crossings
from widegp.tails import Tails

# Levels between which an integral over y is made panel by panel; less than 1e-15 lies beyond the outermost.
PANELS = ndtr(np.arange(-8.0, 9.0))


class Predictive(ABC):
    """P(y_i <= t) for each of q rows, in the units of y, noise of a new observation included.

    ``calibration`` changes `interval` (and `depth`) alone: intervals then cover at their level whatever the
    model gets wrong. Everything else, `quantile`, `cdf`, `log_density`, `crps` and `sample`, is the model's
    own distribution. Rows are taken as from an array: ``predictive[:10]``, ``predictive[mask]``.
    """

    calibration: ConformalCalibration | None = None

    @property
    @abstractmethod
    def mean(self) -> np.ndarray:
        """E y, (q,)."""

    @property
    @abstractmethod
    def sd(self) -> np.ndarray:
        """Standard deviation of y, (q,)."""

    @property
    @abstractmethod
    def latent(self) -> Predictive:
        """The distribution of the function without the noise of a new observation; never calibrated."""

    @abstractmethod
    def quantile(self, levels: ArrayLike) -> np.ndarray:
        """The t with P(y <= t) = level for ``levels`` (k,) strictly inside (0, 1): (q, k)."""

    @abstractmethod
    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(Y_i <= y_i) for y (q,), or P(Y_i <= y_ij) for y (q, k); a number stands for all rows."""

    @abstractmethod
    def log_density(self, y: ArrayLike) -> np.ndarray:
        """log p(y_i) for y (q,), in the units of y; -inf where the model excludes y_i."""

    @abstractmethod
    def crps(self, y: ArrayLike) -> np.ndarray:
        """Continuous ranked probability score int (F_i(t) - 1{t >= y_i})^2 dt of each row, for y (q,)."""

    @abstractmethod
    def sample(self, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of y, one row independent of another given the parameters: (q, n_samples)."""

    @abstractmethod
    def __len__(self) -> int:
        """q."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> Self:
        """The distributions of some rows: an index, a slice, a mask or an array of indices."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} rows>"

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """(lower (q,), upper (q,)), central, with P(lower <= y <= upper) = ``level``.

        Without calibration its ends are the quantiles (1 -+ level)/2. With it they are those at the normal
        scores -+h, h = ``calibration.half_width(level)``: infinite, with a warning, where too few rows
        were held out for the level.
        """
        check_level(level)
        if self.calibration is None:
            ends = self.quantile([(1 - level) / 2, (1 + level) / 2])
            return ends[:, 0], ends[:, 1]
        half = self.calibration.half_width(level)
        if np.isinf(half):
            return np.full(len(self), -np.inf), np.full(len(self), np.inf)
        return self.at_normal_score(-half), self.at_normal_score(half)

    def depth(self, y: ArrayLike) -> np.ndarray:
        """The smallest level whose `interval` holds y_i, (q,): |2 P(Y_i <= y_i) - 1| without calibration."""
        if self.calibration is None:
            return np.abs(2 * self.cdf(y) - 1)
        return self.calibration.depth(self.normal_score(y))

    def pit(self, y: ArrayLike, random_state: Any = 0) -> np.ndarray:
        """P(Y_i < y_i) + u_i P(Y_i = y_i), (q,), uniform where the distribution is right; u_i random.

        Of a continuous target it is P(Y_i <= y_i), and nothing is drawn.
        """
        return self.cdf(y)

    def normal_score(self, y: ArrayLike) -> np.ndarray:
        """Phi^-1(P(Y_i <= y_i)), (q,): how many standard deviations out a Gaussian would call y_i."""
        return ndtri(self.cdf(y))

    def at_normal_score(self, t: float) -> np.ndarray:
        """The quantile of level Phi(t), (q,); infinite where Phi(t) rounds to 0 or 1."""
        level = float(ndtr(t))
        if level in (0.0, 1.0):
            return np.full(len(self), np.copysign(np.inf, t))
        return self.quantile([level])[:, 0]


@dataclass(frozen=True, eq=False, repr=False)
class WarpedGaussian(Predictive):
    """y = mean + sd g^-1(z),  z ~ N(mean_z, sd_z^2): a Gaussian, mapped back through warp and scaler.

    mean_z, sd_z : (q,), of the warped, standardised target, noise included.
    latent_sd_z : (q,), sd of z without the noise.
    target, warp : y~ = (y - mean) / sd and z = g(y~), both fitted on the training rows.

    Means and standard deviations are those of y, not of z. `latent` is the distribution of the function
    mapped to the units of y: its quantiles are the warp's inverse of those of f, so that its median is that
    of y, while under a warp its mean is not: E g^-1(f) differs from E y, since noise moves the mean of a
    skewed target. The mean to report is that of y.
    """

    mean_z: np.ndarray
    sd_z: np.ndarray
    latent_sd_z: np.ndarray
    target: TargetScaler
    warp: FittedWarp
    calibration: ConformalCalibration | None = None

    def __post_init__(self) -> None:
        for name in ("mean_z", "sd_z", "latent_sd_z"):
            values = getattr(self, name)
            bad = np.flatnonzero(~np.isfinite(values) | ((values < 0) & (name != "mean_z")))
            if bad.size:
                raise ValueError(
                    f"{name} is {values[bad[0]]} in row {bad[0]}, so that there is no prediction;"
                    " look for extreme values in that row, or fit again."
                )

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        mean, sd = self.warp.moments(self.mean_z, self.sd_z)
        return self.target.inverse_mean(mean), self.target.inverse_sd(sd)

    @property
    def mean(self) -> np.ndarray:
        return self._moments[0]

    @property
    def sd(self) -> np.ndarray:
        return self._moments[1]

    @property
    def latent(self) -> WarpedGaussian:
        return replace(self, sd_z=self.latent_sd_z, calibration=None)

    def quantile(self, levels: ArrayLike) -> np.ndarray:
        levels = np.atleast_1d(np.asarray(levels, float))
        return self.target.inverse_mean(self.warp.quantile(self.mean_z, self.sd_z, levels))

    def at_normal_score(self, t: float) -> np.ndarray:
        return self.target.inverse_mean(self.warp.inverse(self.mean_z + t * self.sd_z))

    def normal_score(self, y: ArrayLike) -> np.ndarray:
        z = self.warp.forward(self.target.transform(y))
        return standard_score(z - _beside(self.mean_z, z), _beside(self.sd_z, z))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        target = self.target.transform(y)
        return self.warp.cdf(target, _beside(self.mean_z, target), _beside(self.sd_z, target))

    def log_density(self, y: ArrayLike) -> np.ndarray:
        target = self.target.transform(y)
        mean_z, sd_z = _beside(self.mean_z, target), _beside(self.sd_z, target)
        return self.warp.log_density(target, mean_z, sd_z) - np.log(self.target.sd)

    def crps(self, y: ArrayLike) -> np.ndarray:
        scores = self.warp.crps(self.target.transform(y), self.mean_z, self.sd_z)
        return self.target.inverse_sd(scores)

    def sample(self, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        draws = generator(random_state).normal(size=(len(self), n_samples))
        z = self.mean_z[:, None] + self.sd_z[:, None] * draws
        return self.target.inverse_mean(self.warp.inverse(z))

    def __len__(self) -> int:
        return len(self.mean_z)

    def __getitem__(self, rows: Any) -> Self:
        parts = {name: np.atleast_1d(getattr(self, name)[rows]) for name in ("mean_z", "sd_z", "latent_sd_z")}
        return replace(self, **parts)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class Tailed(Predictive):
    """y = mean + sd g^-1(mean_z + sd_z t),  t ~ sum_k w_k N(0, c_k^2): `WarpedGaussian` with other tails.

    gaussian : what the model says were t standard normal; its calibration is not used.
    tails : the law of t.
    """

    gaussian: WarpedGaussian
    tails: Tails
    calibration: ConformalCalibration | None = None

    @cached_property
    def _mixture(self) -> Mixture:
        """The same distribution as an average of Gaussians of several widths."""
        parts = [replace(self.gaussian, sd_z=self.gaussian.sd_z * c) for c in self.tails.factors]
        return Mixture(parts, self.tails.weights)

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and sd of y, (q,) each, of Gaussians of all widths at once."""
        own, weights = self.gaussian, self.tails.weights
        if own.warp.name == "none":
            # Tails are symmetric: they leave the mean where it is, to the last bit.
            mean, sd = own.warp.moments(own.mean_z, own.sd_z)
            return own.target.inverse_mean(mean), own.target.inverse_sd(sd * self.tails.sd)
        means, sds = own.warp.moments(own.mean_z, own.sd_z * self.tails.factors[:, None])
        mean = weights @ means
        sd = np.sqrt(weights @ (sds**2 + (means - mean) ** 2))
        return own.target.inverse_mean(mean), own.target.inverse_sd(sd)

    @property
    def mean(self) -> np.ndarray:
        return self._moments[0]

    @property
    def sd(self) -> np.ndarray:
        return self._moments[1]

    @property
    def latent(self) -> WarpedGaussian:
        return self.gaussian.latent

    def quantile(self, levels: ArrayLike) -> np.ndarray:
        levels = np.atleast_1d(np.asarray(levels, float))
        if not np.all((levels > 0) & (levels < 1)):
            raise ValueError("Quantile levels must lie strictly between 0 and 1; pass for example 0.025.")
        return np.stack([self.at_normal_score(t) for t in ndtri(levels)], axis=1)

    def at_normal_score(self, t: float) -> np.ndarray:
        return self.gaussian.at_normal_score(float(self.tails.from_normal(t)))

    def normal_score(self, y: ArrayLike) -> np.ndarray:
        return self.tails.to_normal(self.gaussian.normal_score(y))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """sum_k w_k Phi(t / c_k), t the normal score of y without tails."""
        own = self.gaussian
        below = ndtr(own.normal_score(y)[..., None] / self.tails.factors) @ self.tails.weights
        return own.warp.within_support(own.target.transform(y), below)

    def log_density(self, y: ArrayLike) -> np.ndarray:
        return self._mixture.log_density(y)

    def crps(self, y: ArrayLike) -> np.ndarray:
        return self._mixture.crps(y, self.quantile(PANELS))

    def sample(self, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        own, normal = self.gaussian, generator(random_state).normal(size=(len(self), n_samples))
        z = own.mean_z[:, None] + own.sd_z[:, None] * self.tails.from_normal(normal)
        return own.target.inverse_mean(own.warp.inverse(z))

    def __len__(self) -> int:
        return len(self.gaussian)

    def __getitem__(self, rows: Any) -> Self:
        return replace(self, gaussian=self.gaussian[rows])


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(Predictive):
    """F_i(t) = sum_j w_j F_ij(t): the average of the distributions j = 1..J of the same rows i = 1..q.

    parts : each of q rows, such as the predictions at several points of the posterior of the parameters.
    weights : (J,), positive; they are divided by their sum.
    calibration : of the mixture's own normal scores; any that the parts have is not used.
    """

    parts: Sequence[Predictive]
    weights: np.ndarray
    calibration: ConformalCalibration | None = None

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, float)
        if len(self.parts) == 0 or weights.shape != (len(self.parts),):
            raise ValueError(
                f"There are {len(self.parts)} parts and weights of shape {weights.shape};"
                " pass at least one part and one weight for each."
            )
        if not (np.all(np.isfinite(weights)) and np.all(weights > 0)):
            raise ValueError(f"The weights are {weights.tolist()}; leave out parts of no positive weight.")
        if len({len(part) for part in self.parts}) > 1:
            sizes = [len(part) for part in self.parts]
            raise ValueError(f"The parts have {sizes} rows; pass distributions of the same rows.")
        object.__setattr__(self, "weights", weights / weights.sum())
        object.__setattr__(self, "parts", tuple(self.parts))

    def _average(self, values: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
        """sum_j w_j v_j over the first axis."""
        return np.tensordot(self.weights, np.asarray(values), axes=1)

    @property
    def mean(self) -> np.ndarray:
        return self._average([part.mean for part in self.parts])

    @property
    def sd(self) -> np.ndarray:
        """sqrt(sum_j w_j (sd_j^2 + (mean_j - mean)^2)), (q,)."""
        mean = self.mean
        return np.sqrt(self._average([part.sd**2 + (part.mean - mean) ** 2 for part in self.parts]))

    @property
    def latent(self) -> Mixture:
        return Mixture([part.latent for part in self.parts], self.weights)

    def cdf(self, y: ArrayLike) -> np.ndarray:
        return self._average([part.cdf(y) for part in self.parts])

    def log_density(self, y: ArrayLike) -> np.ndarray:
        parts = [part.log_density(y) + w for part, w in zip(self.parts, np.log(self.weights), strict=True)]
        return logsumexp(np.stack(parts), axis=0)

    def quantile(self, levels: ArrayLike) -> np.ndarray:
        """Found between the smallest and the largest of the parts' quantiles, which hold it."""
        levels = np.atleast_1d(np.asarray(levels, float))
        ends = np.stack([part.quantile(levels) for part in self.parts])
        return crossings(lambda rows, y: self[rows].cdf(y) - levels, ends.min(0), ends.max(0))

    def crps(self, y: ArrayLike, panels: np.ndarray | None = None) -> np.ndarray:
        """sum_j w_j CRPS_j(y) - int sum_j w_j (F_j(t) - F(t))^2 dt, (q,).

        Averaging gains the variance of the parts' probabilities. That integral has no kink at y: it is made
        by Gauss-Legendre on the panels between the quantiles of all parts, however apart these are, or
        between ``panels`` (q, k), where parts differ little.
        """
        if panels is None:
            panels = np.sort(np.concatenate([part.quantile(PANELS) for part in self.parts], axis=1), axis=1)
        scores = self._average([part.crps(y) for part in self.parts])
        gained = np.zeros(len(self))
        nodes = list(zip(*np.polynomial.legendre.leggauss(12), strict=True))
        for start, end in itertools.pairwise(panels.T):
            half = (end - start) / 2
            for node, weight in nodes:
                F = np.stack([part.cdf(start + half * (1 + node)) for part in self.parts])
                gained += weight * half * self._average((F - self._average(F)) ** 2)
        return scores - gained

    def sample(self, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """(q, n_samples); the rows of one draw come from the same part."""
        rng = generator(random_state)
        chosen = rng.choice(len(self.parts), size=n_samples, p=self.weights)
        drawn = np.empty((len(self), n_samples))
        for j in np.unique(chosen):
            drawn[:, chosen == j] = self.parts[j].sample(int(np.sum(chosen == j)), rng)
        return drawn

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, rows: Any) -> Self:
        return replace(self, parts=[part[rows] for part in self.parts])


def generator(random_state: Any) -> np.random.Generator:
    """From what scikit-learn takes as ``random_state`` (None, a seed, a RandomState), or a generator."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    from sklearn.utils import check_random_state

    return np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))


def _beside(values: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Values of rows (q,) so that they broadcast with y (q,) or (q, k)."""
    return values[:, None] if np.ndim(y) == 2 else values
