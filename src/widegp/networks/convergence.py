"""How fast finite networks approach their limit: covariances, kurtosis, projections, energy distance.

The output bias is left out throughout. It is Gaussian at any width, so it would only dilute what the sum over
hidden units has left to converge, and by an amount that depends on sigma_b2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from widegp.networks.finite import HiddenMoments, Network
from widegp.networks.priors import excess_kurtosis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_PROJECTIONS = 32
LEVEL = 0.05
ENERGY_DRAWS = 500
"""Draws that enter the energy distance at most: its work and memory grow as their square."""

_NULL_PAIRS = 19


class Slope(NamedTuple):
    """Slope of log(quantity) on log(width) by least squares, and its standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class ConvergenceStudy:
    """What `convergence_study` measured; arrays have one entry per width.

    widths : H, increasing.
    n_draws : networks drawn at each width.
    covariance_error : sqrt(mean over hidden layers |C_H - K|_F^2) / |K|_F; falls as H^-1/2.
    excess_kurtosis : of f(x), mean over rows, output weights integrated out; falls as H^-1.
    sampled_kurtosis, sampled_kurtosis_error : the same from the draws of f, and its standard error.
    ks_distance : Kolmogorov distance of projections p'f / sqrt(p'K p) from N(0, 1), mean over random p.
    rejected : share of these projections that a Kolmogorov-Smirnov test refuses at the 5% level.
    energy_distance : (2 E|f - g| - E|f - f'| - E|g - g'|) / E|g - g'|, networks f and draws g of the limit.
    energy_floor : the largest of 19 energy distances between other draws of the limit and g; those above it
        are significant at the 5% level. Never 0, since all come from finitely many draws.
    """

    widths: np.ndarray
    n_draws: int
    covariance_error: np.ndarray
    excess_kurtosis: np.ndarray
    sampled_kurtosis: np.ndarray
    sampled_kurtosis_error: np.ndarray
    ks_distance: np.ndarray
    rejected: np.ndarray
    energy_distance: np.ndarray
    energy_floor: float

    def slope(self, quantity: str) -> Slope:
        """Log-log slope of |quantity|, "covariance_error" or "excess_kurtosis", over the widths."""
        from scipy.stats import linregress

        size = np.abs(getattr(self, quantity))
        if len(size) < 3 or not np.all(np.isfinite(size) & (size > 0)):
            raise ValueError(
                f"{quantity} has no log-log slope: it needs three widths or more, and finite values other"
                f" than 0; got {size}."
            )
        line = linregress(np.log(self.widths), np.log(size))
        return Slope(float(line.slope), float(line.stderr))

    def plot(self) -> Figure:
        """The four quantities against the width, with the rates that theory gives; a matplotlib Figure."""
        from widegp.networks.plots import plot_study

        return plot_study(self)


class _Measured(NamedTuple):
    covariance_error: float
    excess_kurtosis: float
    sampled_kurtosis: float
    sampled_kurtosis_error: float
    ks_distance: float
    rejected: float
    energy_distance: float


def convergence_study(
    network_factory: Callable[[int], Network],
    widths: Sequence[int],
    X: np.ndarray,
    n_draws: int = 400,
    seed: int = 0,
) -> ConvergenceStudy:
    """Draw ``n_draws`` networks at each width and measure their distance from the limit at X (n, I).

    Parameters
    ----------
    network_factory : H -> a `Network`; one output is looked at.
    widths : the values of H.
    X : rows at which outputs are compared, jointly.

    The limit is that of the network's own hidden prior: `Network.limit_covariance`.
    """
    sizes = sorted(int(width) for width in widths)
    if n_draws < 4 or not sizes:
        raise ValueError(f"A study needs a width and at least 4 draws; got {len(sizes)} and {n_draws}.")
    streams = np.random.default_rng(seed).spawn(len(sizes) + 2)
    network = network_factory(sizes[-1]).replace(sigma_b2=0.0, n_outputs=1)
    K = network.limit_covariance(X, streams[-1])
    limit = _limit_draws(K, n_draws, streams[-2])
    measured = []
    for width, rng in zip(sizes, streams, strict=False):
        network = network_factory(width).replace(sigma_b2=0.0, n_outputs=1)
        measured.append(_measure(network, X, K, limit, rng))
    columns = {name: np.array([getattr(row, name) for row in measured]) for name in _Measured._fields}
    floor = max(_energy(_limit_draws(K, n_draws, streams[-2]), limit) for _ in range(_NULL_PAIRS))
    return ConvergenceStudy(np.array(sizes), n_draws, **columns, energy_floor=floor)


def _measure(
    network: Network, X: np.ndarray, K: np.ndarray, limit: np.ndarray, rng: np.random.Generator
) -> _Measured:
    n_draws = len(limit)
    seed = int(rng.integers(2**63))
    # The same seed gives the same hidden layers twice: once integrated over the output weights, once drawn.
    moments = network.hidden_moments(X, n_draws, seed)
    f = network.draw(X, n_draws, seed)[:, :, 0]
    error = np.sqrt(np.mean(np.sum((moments.covariance - K) ** 2, axis=(1, 2)))) / np.linalg.norm(K)
    distances, rejected = _projections(f, K, rng)
    return _Measured(
        float(error),
        _kurtosis(moments, network),
        *_sampled_kurtosis(f),
        float(np.mean(distances)),
        rejected,
        _energy(f, limit),
    )


def _kurtosis(moments: HiddenMoments, network: Network) -> float:
    """kappa_4(f) / Var(f)^2 with the output weights integrated out, mean over rows.

    Given the hidden layer f is a sum of independent terms with variance s^2 = C(x, x) and fourth cumulant
    kappa_v q, kappa_v the excess kurtosis of the output prior and q the quartic sum. So
    kappa_4(f) = 3 Var(s^2) + kappa_v E[q].
    """
    variance = np.einsum("dii->di", moments.covariance)
    kappa_v = excess_kurtosis(network.output_prior)
    fourth = 3 * np.var(variance, axis=0, ddof=1)
    if kappa_v != 0:
        fourth = fourth + kappa_v * np.mean(moments.quartic, axis=0)
    return float(np.mean(fourth / np.mean(variance, axis=0) ** 2))


def _sampled_kurtosis(f: np.ndarray) -> tuple[float, float]:
    """Mean over rows of the sample excess kurtosis of f (n_draws, n), and its jackknife standard error."""
    d = len(f)
    second, fourth = f**2, f**4
    # f is centred by its prior; leaving one draw out of two means needs no loop.
    left = (fourth.sum(0) - fourth) / (d - 1) / ((second.sum(0) - second) / (d - 1)) ** 2
    left_out = left.mean(axis=1) - 3
    value = float(np.mean(fourth.mean(0) / second.mean(0) ** 2) - 3)
    return value, float(np.sqrt((d - 1) * np.var(left_out)))


def _projections(f: np.ndarray, K: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Kolmogorov distances of p'f / sqrt(p'K p) from N(0, 1) for random p, and the share refused."""
    from scipy.stats import kstest

    p = rng.standard_normal((N_PROJECTIONS, f.shape[1]))
    scaled = (f @ p.T) / np.sqrt(np.einsum("pi,ij,pj->p", p, K, p))
    tests = [kstest(column, "norm") for column in scaled.T]
    distances = np.array([test.statistic for test in tests])
    return distances, float(np.mean([test.pvalue < LEVEL for test in tests]))


def _energy(f: np.ndarray, g: np.ndarray) -> float:
    """(2 E|f - g| - E|f - f'| - E|g - g'|) / E|g - g'|, a draw paired with itself too: never negative."""
    from scipy.spatial.distance import cdist

    f, g = f[:ENERGY_DRAWS], g[:ENERGY_DRAWS]
    within = float(np.mean(cdist(g, g)))
    return (2 * float(np.mean(cdist(f, g))) - float(np.mean(cdist(f, f))) - within) / within


def _limit_draws(K: np.ndarray, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of N(0, K), (n_draws, n); the symmetric root exists for singular K too."""
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0))
    return rng.standard_normal((n_draws, len(K))) @ root.T
