"""Pure scores of predictions: numbers in, numbers out.

Symbols: y (n,) observed, mean and sd (n,) of the Gaussian predictive N(mean_i, sd_i^2), e = mean - y.
The first five are the paper's (section "Training and evaluation protocol"). MESE rewards variance -> 0,
so the proper scores NLPD, CRPS and the interval score, and the calibration checks coverage and PIT,
stand beside it. Smaller is better for all but coverage (best at its level) and PIT (best uniform).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from widegp.data.preprocessing import TargetScaler


def mae(y: ArrayLike, mean: ArrayLike) -> float:
    """MAE = (1/n) sum_i |mean_i - y_i|."""
    y, mean = _rows(y=y, mean=mean)
    return float(np.mean(np.abs(mean - y)))


def mse(y: ArrayLike, mean: ArrayLike) -> float:
    """MSE = (1/n) sum_i (mean_i - y_i)^2."""
    y, mean = _rows(y=y, mean=mean)
    return float(np.mean((mean - y) ** 2))


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """RMSE = sqrt(MSE)."""
    return math.sqrt(mse(y, mean))


def mese(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> float:
    """MESE = (1/n) sum_i ESE_i with ESE_i = E(Y_i - y_i)^2 = (mean_i - y_i)^2 + sd_i^2."""
    return float(np.mean(_expected_squared_error(y, mean, sd)))


def sdese(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> float:
    """SDESE = sqrt( (1/(n-1)) sum_i (ESE_i - MESE)^2 ), ESE as in ``mese``; needs n >= 2."""
    ese = _expected_squared_error(y, mean, sd)
    if ese.size < 2:
        raise ValueError("SDESE divides by n - 1 but there is 1 row; pass at least two rows.")
    return float(np.std(ese, ddof=1))


def nlpd(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> float:
    """NLPD = (1/n) sum_i [ log sd_i + e_i^2 / (2 sd_i^2) ] + log(2 pi) / 2.

    A row with sd = 0 takes the limit: +inf when the prediction is wrong, -inf when it is exact;
    one wrong row decides the mean.
    """
    y, mean, sd = _rows(y=y, mean=mean, sd=sd)
    error = mean - y
    certain = sd == 0
    if np.any(certain):
        return math.inf if np.any(error[certain] != 0) else -math.inf
    return float(np.mean(np.log(sd) + 0.5 * (error / sd) ** 2)) + 0.5 * math.log(2 * math.pi)


def crps(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> float:
    """CRPS = (1/n) sum_i sd_i { w (2 Phi(w) - 1) + 2 phi(w) - 1/sqrt(pi) },  w = (y_i - mean_i) / sd_i.

    The closed form of (1/n) sum_i int (F_i(t) - 1{t >= y_i})^2 dt; |y_i - mean_i| when sd_i = 0.
    """
    y, mean, sd = _rows(y=y, mean=mean, sd=sd)
    w = standard_score(y - mean, sd)
    density = np.exp(-0.5 * np.minimum(np.abs(w), 40.0) ** 2) / math.sqrt(2 * math.pi)
    terms = (y - mean) * (2 * ndtr(w) - 1) + sd * (2 * density - 1 / math.sqrt(math.pi))
    return float(np.mean(terms))


def crps_from_quantiles(y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike) -> float:
    """CRPS ~ (2/n) sum_i sum_j w_j (y_i - q_ij)(tau_j - 1{y_i < q_ij}), the mean pinball loss.

    For any predictive distribution given by ``quantiles`` q (n, q) at increasing ``levels`` tau (q,)
    in (0, 1). w_j is the share of (0, 1) nearest to tau_j, so levels (j - 1/2)/q weigh the same.
    """
    q, tau = np.asarray(quantiles, float), np.asarray(levels, float)
    (y,) = _rows(y=y)
    if tau.ndim != 1 or q.shape != (y.size, tau.size):
        raise ValueError(
            f"quantiles has shape {q.shape} for {y.size} rows and levels of shape {tau.shape};"
            " pass one row per y and one column per level."
        )
    if not (np.all(tau > 0) and np.all(tau < 1) and np.all(np.diff(tau) > 0) and tau.size):
        raise ValueError("levels must increase strictly inside (0, 1); sort them, drop 0, 1 and repeats.")
    if np.isnan(q).any():
        raise ValueError(f"quantiles is NaN in row {np.argwhere(np.isnan(q))[0][0]}; pass numbers only.")
    width = np.diff(np.concatenate([[0.0], (tau[1:] + tau[:-1]) / 2, [1.0]]))
    gap = y[:, None] - q
    return float(2 * np.mean((gap * (tau - (gap < 0))) @ width))


def crps_from_samples(y: ArrayLike, samples: ArrayLike) -> float:
    """CRPS of the empirical distribution, (1/n) sum_i { E|S - y_i| - E|S - S'| / 2 }; samples (n, S).

    Sorted samples are its quantiles at levels (j - 1/2)/S, for which the pinball mean is exact.
    """
    samples = np.atleast_2d(np.asarray(samples, float))
    levels = (np.arange(samples.shape[1]) + 0.5) / max(samples.shape[1], 1)
    return crps_from_quantiles(y, np.sort(samples, axis=1), levels)


def energy_score(y: ArrayLike, samples: ArrayLike) -> float:
    """(1/n) sum_i { E|S - y_i| - E|S - S'| / 2 } with Euclidean norms; y (n, T), samples (n, S, T).

    The proper score of several outputs together: CRPS for T = 1. It depends on the units of the outputs.
    """
    y, samples = np.asarray(y, float), np.asarray(samples, float)
    if y.ndim != 2 or samples.ndim != 3 or samples.shape[::2] != y.shape or samples.size == 0:
        raise ValueError(f"y has shape {y.shape} and samples {samples.shape}; pass (n, T) and (n, S, T).")
    if np.isnan(y).any() or np.isnan(samples).any():
        raise ValueError("y and samples hold NaN; drop those rows.")
    scores = [
        np.mean(np.linalg.norm(s - row, axis=1)) - np.mean(np.linalg.norm(s[:, None] - s, axis=2)) / 2
        for row, s in zip(y, samples, strict=True)
    ]
    return float(np.mean(scores))


def crps_of_map(y: np.ndarray, quantile_at: Callable, *cuts: np.ndarray) -> np.ndarray:
    """CRPS_i = 2 int (y_i - q_i(t)) (Phi(t) - 1{y_i < q_i(t)}) phi(t) dt, one score per row, (n,).

    For predictives given as increasing maps q_i of a standard normal t: ``quantile_at(t)`` takes t (n,) to
    q_i(t_i) (n,). By Gauss-Legendre over [-9, 9] in panels that meet at the kinks, ``cuts`` = q^-1(y) and
    whatever else q has, (n,) each.
    """
    ends = np.full(np.shape(cuts[0]), 9.0)
    edges = np.sort([-ends, *(np.clip(cut, -9.0, 9.0) for cut in cuts), ends], axis=0)
    total = np.zeros_like(ends)
    for node, weight in zip(*np.polynomial.legendre.leggauss(40), strict=True):
        for start, end in itertools.pairwise(edges):
            half = (end - start) / 2
            t = start + half * (1 + node)
            gap = y - quantile_at(t)
            density = np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
            # 1 - Phi(t) = Phi(-t) keeps its digits in the upper tail.
            total += weight * half * density * np.where(gap < 0, -ndtr(-t), ndtr(t)) * gap
    return 2 * total


def coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """(1/n) sum_i 1{lower_i <= y_i <= upper_i}."""
    y, lower, upper = _interval(y, lower, upper)
    return float(np.mean((lower <= y) & (y <= upper)))


def interval_score(y: ArrayLike, lower: ArrayLike, upper: ArrayLike, level: float = 0.95) -> float:
    """(1/n) sum_i { u_i - l_i + (2/a) [ (l_i - y_i)_+ + (y_i - u_i)_+ ] },  a = 1 - level.

    The proper score of central intervals [l, u] = [``lower``, ``upper``].
    """
    y, lower, upper = _interval(y, lower, upper)
    miss = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return float(np.mean(upper - lower + 2 / (1 - _level(level)) * miss))


def pit(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> np.ndarray:
    """p_i = Phi((y_i - mean_i) / sd_i), (n,): uniform on (0, 1) for a calibrated predictive."""
    y, mean, sd = _rows(y=y, mean=mean, sd=sd)
    return ndtr(standard_score(y - mean, sd))


def pit_distance(p: ArrayLike) -> float:
    """sup_t |F_n(t) - t| for the empirical distribution F_n of PIT values p (n,): 0 is calibrated."""
    (p,) = _rows(p=p)
    if np.any((p < 0) | (p > 1)):
        raise ValueError("PIT values must lie in [0, 1]; pass the output of pit.")
    p = np.sort(p)
    steps = np.arange(p.size + 1) / p.size
    return float(max(np.max(steps[1:] - p), np.max(p - steps[:-1])))


def mae_z(y: ArrayLike, mean: ArrayLike, y_train: ArrayLike) -> float:
    """MAE_z = MAE / sd(y_train) (the paper's scaled table)."""
    return mae(y, mean) / _scale(y_train)


def mse_z(y: ArrayLike, mean: ArrayLike, y_train: ArrayLike) -> float:
    """MSE_z = MSE / sd(y_train)^2."""
    return mse(y, mean) / _scale(y_train) ** 2


def rmse_z(y: ArrayLike, mean: ArrayLike, y_train: ArrayLike) -> float:
    """RMSE_z = RMSE / sd(y_train) (the paper's scaled table)."""
    return rmse(y, mean) / _scale(y_train)


def mese_z(y: ArrayLike, mean: ArrayLike, sd: ArrayLike, y_train: ArrayLike) -> float:
    """MESE_z = MESE / sd(y_train)^2."""
    return mese(y, mean, sd) / _scale(y_train) ** 2


def sdese_z(y: ArrayLike, mean: ArrayLike, sd: ArrayLike, y_train: ArrayLike) -> float:
    """SDESE_z = SDESE / sd(y_train)^2."""
    return sdese(y, mean, sd) / _scale(y_train) ** 2


def nlpd_z(y: ArrayLike, mean: ArrayLike, sd: ArrayLike, y_train: ArrayLike) -> float:
    """NLPD_z = NLPD - log sd(y_train), the NLPD of y / sd(y_train)."""
    return nlpd(y, mean, sd) - math.log(_scale(y_train))


def crps_z(y: ArrayLike, mean: ArrayLike, sd: ArrayLike, y_train: ArrayLike) -> float:
    """CRPS_z = CRPS / sd(y_train)."""
    return crps(y, mean, sd) / _scale(y_train)


def interval_score_z(
    y: ArrayLike, lower: ArrayLike, upper: ArrayLike, y_train: ArrayLike, level: float = 0.95
) -> float:
    """Interval score / sd(y_train)."""
    return interval_score(y, lower, upper, level) / _scale(y_train)


def score_table(
    y: ArrayLike, mean: ArrayLike, sd: ArrayLike, level: float = 0.95, y_train: ArrayLike | None = None
) -> dict[str, float]:
    """All scores of N(mean_i, sd_i^2) by name; intervals are mean_i -+ Phi^-1((1 + level)/2) sd_i.

    With training targets ``y_train`` (any length) the scaled scores ``*_z`` are added. SDESE is left
    out for a single row, where it is not defined.
    """
    y, mean, sd = _rows(y=y, mean=mean, sd=sd)
    half = ndtri((1 + _level(level)) / 2) * sd
    lower, upper = mean - half, mean + half
    table = {"mae": mae(y, mean), "mse": mse(y, mean), "rmse": rmse(y, mean), "mese": mese(y, mean, sd)}
    if y.size > 1:
        table["sdese"] = sdese(y, mean, sd)
    table |= {"nlpd": nlpd(y, mean, sd), "crps": crps(y, mean, sd), "coverage": coverage(y, lower, upper)}
    table |= {"interval_score": interval_score(y, lower, upper, level)}
    table |= {"pit_distance": pit_distance(pit(y, mean, sd))}
    if y_train is None:
        return table
    table |= {"mae_z": mae_z(y, mean, y_train), "mse_z": mse_z(y, mean, y_train)}
    table |= {"rmse_z": rmse_z(y, mean, y_train), "mese_z": mese_z(y, mean, sd, y_train)}
    if y.size > 1:
        table["sdese_z"] = sdese_z(y, mean, sd, y_train)
    table |= {"nlpd_z": nlpd_z(y, mean, sd, y_train), "crps_z": crps_z(y, mean, sd, y_train)}
    return table | {"interval_score_z": interval_score_z(y, lower, upper, y_train, level)}


def _expected_squared_error(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> np.ndarray:
    """ESE_i = (mean_i - y_i)^2 + sd_i^2, (n,)."""
    y, mean, sd = _rows(y=y, mean=mean, sd=sd)
    return (mean - y) ** 2 + sd**2


def standard_score(error: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """error / sd, elementwise, with the limits at sd = 0: +-inf, and 0 for 0 / 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(error == 0, 0.0, error / sd)


def _scale(y_train: ArrayLike) -> float:
    return TargetScaler.fit(y_train).sd


def _level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; pass a probability strictly between 0 and 1, e.g. 0.95.")
    return level


def _interval(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> tuple[np.ndarray, ...]:
    y, lower, upper = _rows(y=y, lower=lower, upper=upper)
    crossed = np.flatnonzero(lower > upper)
    if crossed.size:
        raise ValueError(f"lower exceeds upper in row {crossed[0]}; swap the bounds.")
    return y, lower, upper


def _rows(**columns: ArrayLike) -> list[np.ndarray]:
    """The arguments as float arrays of one common shape (n,), n >= 1, free of NaN; sd >= 0."""
    arrays = {name: np.asarray(column, float) for name, column in columns.items()}
    size = next(iter(arrays.values())).size
    for name, a in arrays.items():
        if a.ndim != 1 or a.size == 0:
            raise ValueError(f"{name} has shape {a.shape}; pass one number per row, e.g. {name}.ravel().")
        if a.size != size:
            shapes = ", ".join(f"{key} {value.shape}" for key, value in arrays.items())
            raise ValueError(f"The arguments differ in length: {shapes}; pass one entry of each per row.")
        # An interval may be unbounded; anything else that is infinite has no finite score.
        bad = np.isnan(a) if name in ("lower", "upper") else ~np.isfinite(a)
        if bad.any():
            row = np.flatnonzero(bad)[0]
            raise ValueError(f"{name} is {a[row]} in row {row}; drop that row or mend the prediction.")
    if "sd" in arrays and np.any(arrays["sd"] < 0):
        row = np.flatnonzero(arrays["sd"] < 0)[0]
        raise ValueError(f"sd is negative in row {row}; pass standard deviations (roots of variances).")
    return list(arrays.values())
