"""The inverses of the target's warps as nodes of a graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from widegp.export.graph import Node, absolute, arcsinh, exp, log1p, maximum, minimum, sign, sinh, where
from widegp.fitted_warp import FittedWarp
from widegp.warps import MAX_LOG, TINY, BoxCox, SinhArcsinh, YeoJohnson


def unwarped(warp: FittedWarp, z: Node) -> Node:
    """y = g^-1(mu + s z), clipped to [lower, upper], elementwise, as `FittedWarp.inverse`."""
    family, w = warp.warp, warp.mu + warp.s * z
    y = w
    if isinstance(family, BoxCox):
        power = float(warp.psi[0]) if family.power is None else family.power
        y = (exp(_inverse_power(w, power)) - family.offset) / family.scale
    elif isinstance(family, YeoJohnson):
        power, size = float(warp.psi[0]), absolute(w)
        level = where(w < 0.0, _inverse_power(size, 2 - power), _inverse_power(size, power))
        y = sign(w) * (exp(level) - 1.0)
    elif isinstance(family, SinhArcsinh):
        epsilon, delta = (float(value) for value in warp.psi)
        y = sinh(minimum(maximum((arcsinh(w) + epsilon) / delta, -MAX_LOG), MAX_LOG))
    for bound, cut in ((warp.lower, maximum), (warp.upper, minimum)):
        y = cut(y, bound) if math.isfinite(bound) else y
    return y


def _inverse_power(w: Node, exponent: float) -> Any:
    """L = log(1 + lambda w) / lambda, and w at lambda = 0; at most MAX_LOG, as `widegp.warps` has it."""
    if abs(exponent) < TINY:
        return minimum(w, MAX_LOG)
    inside = maximum(exponent * w, -1.0)
    # exp(-inf) = 0 where 1 + lambda w <= 0; log1p would multiply infinity by nothing.
    level = where(inside > -1.0, log1p(maximum(inside, -1.0 + np.finfo(float).eps)), -np.inf) / exponent
    return minimum(level, MAX_LOG)
