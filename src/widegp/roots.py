"""Where increasing functions cross zero, many at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

# Interpolation is never slower than halving by more than this.
MOST = 200
# A bracket is narrow enough at so many ulps of its ends, or of its first width if these are larger: towards
# zero ulps shrink without end.
ULPS = 4.0


def crossings(
    f: Callable[[np.ndarray, np.ndarray], np.ndarray], lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """The least x with f(x) >= 0, elementwise: f increasing, f(lower) <= 0 <= f(upper), (q, k) each.

    f(rows, x) is asked for x (p, k) at ``rows`` (p,) of the q, ever fewer of them; it may be flat, and jump.
    Chandrupatla's method: inverse quadratic interpolation through the last three points where these lie as
    those of a smooth function do, halving elsewhere. Some ten evaluations, where halving alone takes sixty.
    An end that has the wrong sign, by rounding, is the answer.
    """
    everything = np.arange(len(lower))
    a, b = np.array(upper, float), np.array(lower, float)
    fa, fb = f(everything, a), f(everything, b)
    x, active = np.where(fb >= 0, b, a), (fa >= 0) & (fb < 0) & (b < a)
    first = np.spacing(np.where(active, a - b, 1.0))
    state = np.stack([a, b, b, fa, fb, fb, np.full(a.shape, 0.5)])
    for _ in range(MOST):
        rows = np.flatnonzero(active.any(axis=1))
        if not len(rows):
            break
        moved, narrow = _moved(partial(f, rows), state[:, rows], first[rows])
        going = active[rows]
        state[:, rows] = np.where(going, moved, state[:, rows])
        active[rows] = going & ~narrow
        a, b, _, fa, *_ = state[:, rows]
        x[rows] = np.where(going, np.where(fa >= 0, a, b), x[rows])
    return x


def _moved(
    f: Callable[[np.ndarray], np.ndarray], state: np.ndarray, first: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """a, b, c, f at each and the next step, after one more evaluation, and whether [a, b] is narrow enough.

    a is the latest point, b the other end of the bracket, c the point that made way.
    """
    a, b, c, fa, fb, fc, step = state
    new = a + step * (b - a)
    value = f(new)
    same = (value >= 0) == (fa >= 0)
    c, fc = np.where(same, a, b), np.where(same, fa, fb)
    b, fb = np.where(same, b, a), np.where(same, fb, fa)
    a, fa = new, value
    width = ULPS * np.maximum(np.spacing(np.maximum(np.abs(a), np.abs(b))), first)
    with np.errstate(all="ignore"):
        least = 0.5 * width / np.abs(b - a)
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        smooth = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        step = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
    step = np.clip(np.where(smooth & np.isfinite(step), step, 0.5), least, 1 - least)
    return np.stack([a, b, c, fa, fb, fc, step]), ~(least < 0.5)
