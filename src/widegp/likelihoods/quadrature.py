"""Integrals over f ~ N(m, v), one per row, that keep their digits far out in the tails.

Fixed Gauss-Hermite nodes miss a likelihood that is narrow beside N(m, v): that of a count of 1,000 is 0.03
wide in f. So nodes are put where the integrand of each row is large. Throughout x = f - m, which keeps its
digits however small v is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import cycle, pairwise

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from widegp.data.arrays import Floats

NODES = 257  # of the trapezoidal rule, whose error falls exponentially for smooth integrands that die out
DROP = 42.0  # e^-42: where an integrand has fallen by this much, the rest of it is below rounding
CHUNK = 2048  # rows whose nodes are held at a time
CERTAIN = 1e-12  # a latent with a smaller sd, beside 1 + |m|, is a number
REACH = 9.0  # standard deviations beyond which N(m, v) is dropped: 2e-19 of it

Log = Callable[[Floats, slice], Floats]
Slope = Callable[[Floats, slice], tuple[Floats, Floats]]
Function = Callable[[Floats], Floats]


def chunks(n_rows: int) -> Iterator[slice]:
    """Slices of at most CHUNK rows."""
    return (slice(start, min(start + CHUNK, n_rows)) for start in range(0, n_rows, CHUNK))


def log_expectation(log_p: Log, slopes: Slope, mean: Floats, variance: Floats) -> Floats:
    """log int exp(l(f)) N(f; m, v) df for l concave in f, (n,), by the trapezoidal rule about the mode.

    ``log_p(f, rows)`` gives l at f (b, Q) for a slice of rows, ``slopes(f, rows)`` (l', -l'') at f (b,).
    """
    out = np.empty_like(mean)
    for rows in chunks(mean.size):
        out[rows] = _log_expectation(log_p, slopes, mean[rows], variance[rows], rows)
    return out


def _log_expectation(log_p: Log, slopes: Slope, m: Floats, v: Floats, rows: slice) -> Floats:
    certain = v <= CERTAIN**2 * (1 + np.abs(m)) ** 2
    v = np.where(certain, 1.0, v)

    def total(x: Floats) -> Floats:
        return log_p(m[:, None] + x, rows) - 0.5 * x**2 / v[:, None]

    mode = _mode(slopes, m, v, rows)
    top = total(mode[:, None])
    sd = 1 / np.sqrt(slopes(m + mode, rows)[1] + 1 / v)
    ends = [mode + side * _reach(total, mode, top, side, sd) for side in (-1.0, 1.0)]
    step = (ends[1] - ends[0]) / (NODES - 1)
    x = ends[0][:, None] + step[:, None] * np.arange(NODES)
    area = np.sum(np.exp(np.minimum(total(x) - top, 0.0)), axis=1) * step
    value = top[:, 0] + np.log(area) - 0.5 * np.log(2 * math.pi * v)
    return np.where(certain, log_p(m[:, None], rows)[:, 0], value)


def _mode(slopes: Slope, m: Floats, v: Floats, rows: slice) -> Floats:
    """The root x of l'(m + x) - x/v by Newton steps inside a bracket; l' decreases, so the root lies between
    0 and v l'(m).
    """
    other = v * slopes(m, rows)[0]
    low, high = np.minimum(0.0, other), np.maximum(0.0, other)
    x, last = 0.5 * (low + high), np.full(m.shape, np.inf)
    for _ in range(200):
        d1, W = slopes(m + x, rows)
        slope = d1 - x / v
        low, high = np.where(slope > 0, x, low), np.where(slope > 0, high, x)
        step = x + slope / (W + 1 / v)
        # Down an exponential Newton goes by one at a time; where the slope falls too slowly, halve.
        newton = (step >= low) & (step <= high) & (np.abs(slope) <= 0.1 * last)
        new, last = np.where(newton, step, 0.5 * (low + high)), np.abs(slope)
        # A thousandth of the integrand's width is near enough to put nodes around.
        moved = np.abs(new - x) * np.sqrt(W + 1 / v) > 1e-3
        x = new
        if not np.any(moved):
            break
    return x


def _reach(total: Function, mode: Floats, top: Floats, side: float, sd: Floats) -> Floats:
    """How far from the mode a concave function has fallen by DROP, within a few per cent and from above."""

    def fallen(distance: Floats) -> npt.NDArray[np.bool]:
        return (top - total((mode + side * distance)[:, None]))[:, 0] > DROP

    high = 9.0 * sd
    while np.any(short := ~fallen(high)):
        high = np.where(short, 2 * high, high)
    low = np.zeros_like(high)
    for _ in range(6):
        middle = 0.5 * (low + high)
        far = fallen(middle)
        low, high = np.where(far, low, middle), np.where(far, middle, high)
    return high


def expectation(
    h: Log, mean: Floats, variance: Floats, centre: Floats, width: Floats
) -> Floats:
    """int h(f) N(f; m, v) df, (n,), for h that changes within about ``width`` of ``centre``, both (n,).

    Gauss-Legendre on five panels of [m - 9 sd, m + 9 sd] that meet two and eight widths from the centre.
    """
    t, weights = np.polynomial.legendre.leggauss(40)
    certain = variance <= CERTAIN**2 * (1 + np.abs(mean)) ** 2
    sd = np.sqrt(np.where(certain, 1.0, variance))
    inner = [np.clip((centre + k * width - mean) / sd, -REACH, REACH) for k in (-8, -2, 2, 8)]
    cuts = [np.full_like(mean, -REACH), *inner, np.full_like(mean, REACH)]
    out = np.zeros_like(mean)
    for rows in chunks(mean.size):
        m, s = mean[rows][:, None], sd[rows][:, None]
        for a, b in pairwise(cuts):
            half = 0.5 * (b[rows] - a[rows])[:, None]
            x = a[rows][:, None] + half * (1 + t)
            density = np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)
            out[rows] += np.sum(weights * half * density * h(m + s * x, rows), axis=1)
        out[rows] = np.where(certain[rows], h(m, rows)[:, 0], out[rows])
    return out


def integer_quantile(
    cdf: Callable[[Floats, npt.NDArray[np.intp]], Floats], level: float, guess: Floats
) -> Floats:
    """The smallest integer k >= 0 with cdf(k) >= level, for each row; ``cdf(k, rows)`` is that of some rows.

    Brackets are doubled, then closed where normal scores of the cdf, straight lines in log(k + 1/2), cross
    the level, and in every third step halved.
    """
    low, high = np.full(guess.shape, -1.0), np.maximum(np.floor(guess), 0.0)
    at_low, at_high = np.zeros(guess.shape), np.zeros(guess.shape)
    rows = np.arange(len(guess))
    while rows.size:
        at_high[rows] = cdf(high[rows], rows)
        rows = rows[at_high[rows] < level]
        low[rows], at_low[rows] = high[rows], at_high[rows]
        high[rows] = 2 * high[rows] + 1
    halves = cycle((False, False, True))
    while (rows := np.flatnonzero(high - low > 1)).size:
        middle = np.floor(0.5 * (low[rows] + high[rows]))
        if not next(halves):
            ends = low[rows], high[rows], at_low[rows], at_high[rows]
            middle = np.clip(_crossing(*ends, level), low[rows] + 1, high[rows] - 1)
        found = cdf(middle, rows)
        enough = found >= level
        low[rows], at_low[rows] = np.where(enough, (low[rows], at_low[rows]), (middle, found))
        high[rows], at_high[rows] = np.where(enough, (middle, found), (high[rows], at_high[rows]))
    return high


def _crossing(low: Floats, high: Floats, at_low: Floats, at_high: Floats, level: float) -> Floats:
    """A whole number near which a cdf reaches the level, of its values at two; they may be 0 and 1."""
    x, end = np.log(np.maximum(low, 0.0) + 0.5), np.log(high + 0.5)
    z, z_end = (ndtri(np.clip(F, 1e-12, 1 - 1e-12)) for F in (at_low, at_high))
    share = (ndtri(level) - z) / np.maximum(z_end - z, 1e-12)
    nearest: Floats = np.floor(np.exp(x + np.clip(share, 0.0, 1.0) * (end - x)))
    return nearest


def monotone_root(
    function: Callable[[Floats], tuple[Floats, Floats]], level: float, start: Floats,
    scale: Floats,
) -> Floats:  # fmt: skip
    """y with F(y) = level for each row, where ``function(y)`` gives F and its slope, both (n,).

    Newton steps inside a bracket, ``scale`` about the start at first and doubled until it holds the root.
    """
    low, high = start - scale, start + scale
    while np.any(short := function(low)[0] > level):
        low = np.where(short, start - 2 * (start - low), low)
    while np.any(short := function(high)[0] < level):
        high = np.where(short, start + 2 * (high - start), high)
    y = 0.5 * (low + high)
    for _ in range(200):
        F, slope = function(y)
        below = level > F
        low, high = np.where(below, y, low), np.where(below, high, y)
        step = y - (F - level) / np.maximum(slope, 1e-300)
        new = np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
        done = np.abs(new - y) <= 1e-13 * (np.abs(y) + scale)
        y = new
        if np.all(done):
            break
    return y
