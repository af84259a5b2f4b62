"""K(x, Z) and K(x, x) of the package's kernels as nodes of a graph."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from widegp.export import graph
from widegp.export.graph import (
    Node,
    absolute,
    arcsin,
    arcsin_series,
    maximum,
    minimum,
    sign,
    sqrt,
    where,
)
from widegp.kernels.arc import SIGMOID_SCALE, TANH_SCALE, ArcForm
from widegp.kernels.base import Kernel
from widegp.kernels.closed import ClosedForm
from widegp.kernels.composite import Product, Sum
from widegp.kernels.stationary import StationaryKernel

EPS = float(np.finfo(float).eps)


class ExportError(ValueError):
    """A model, or a part of one, that has no graph; the message says what to do instead."""


def cross(kernel: Kernel, x: Node, Z: np.ndarray) -> Node:
    """K(x_i, z_j): x (N, I), Z (r, I) -> (N, r)."""
    if isinstance(kernel, Sum | Product):
        together = operator.add if isinstance(kernel, Sum) else operator.mul
        return functools.reduce(together, (cross(part, x, Z) for part in kernel.parts))
    if isinstance(kernel, ClosedForm):
        form = kernel.arc()
        u = np.broadcast_to(np.asarray(form.sigma_u2, float), (Z.shape[1],))
        c = x @ (u[:, None] * Z.T) + float(form.sigma_a2)
        e = float(form.sigma_a2) + (Z * Z) @ u
        return _combined(form, c, _preactivation(form, x, Z.shape[1]).with_axis(1), e)
    if isinstance(kernel, StationaryKernel):
        u = np.broadcast_to(np.asarray(kernel.sigma_u2, float), (Z.shape[1],))
        apart = x.with_axis(1) - Z
        return float(kernel.sigma_b2) + float(kernel.sigma_v2) * _correlation(
            kernel, (apart * apart * u).sum(2)
        )
    raise _no_graph(kernel)


def diagonal(kernel: Kernel, x: Node, n_inputs: int) -> Any:
    """K(x_i, x_i): x (N, I) -> (N,), or a number where it is the same for all rows."""
    if isinstance(kernel, Sum | Product):
        together = operator.add if isinstance(kernel, Sum) else operator.mul
        return functools.reduce(together, (diagonal(part, x, n_inputs) for part in kernel.parts))
    if isinstance(kernel, ClosedForm):
        form = kernel.arc()
        k = [float(value) for value in form.coefficients]
        d = _preactivation(form, x, n_inputs)
        # At rho = 1 J is d / 2.
        value = k[0] + (k[3] + k[4] / 2) * d
        for scale, weight in ((TANH_SCALE, k[1]), (SIGMOID_SCALE, k[2])):
            value = value + weight * arcsin(scale * d / (1.0 + scale * d)) if weight else value
        return value
    if isinstance(kernel, StationaryKernel):
        return float(kernel.sigma_b2) + float(kernel.sigma_v2)
    raise _no_graph(kernel)


def _no_graph(kernel: Kernel) -> ExportError:
    return ExportError(
        f"{type(kernel).__name__} is made by quadrature and has no graph; fit a kernel with a closed form."
    )


def _preactivation(form: ArcForm, x: Node, n_inputs: int) -> Node:
    """d(x) = sigma_a2 + sum_i sigma_u2_i x_i^2, (N,)."""
    u = np.broadcast_to(np.asarray(form.sigma_u2, float), (n_inputs,))
    return (x * x) @ u + float(form.sigma_a2)


def _combined(form: ArcForm, c: Node, d: Node, e: np.ndarray) -> Node:
    """sum_k coefficients[k] g_k(c, d, e): c (N, r), d (N, 1), e (r,), as `widegp.kernels.arc.combine`."""
    k = [float(value) for value in form.coefficients]
    value = k[0] + k[3] * c
    for t, weight in ((TANH_SCALE, k[1]), (SIGMOID_SCALE, k[2])):
        if weight:
            value = value + weight * arcsin(c * sqrt(t / (1.0 + t * d)) * np.sqrt(t / (1 + t * e)))
    return value + k[4] * _angular(c, d, e) if k[4] else value


def _angular(c: Node, d: Node, e: np.ndarray) -> Node:
    """J = (1/2 pi) [sqrt(d e - c^2) + c (pi - arccos rho)], from one clipped rho as in `kernels.arc`."""
    left, right = sqrt(d), np.sqrt(e)
    inverse = np.divide(1.0, right, out=np.ones_like(right), where=right > 0)
    rho = minimum(maximum(c / where(d > 0.0, left, 1.0) * inverse, -1.0), 1.0)
    gap = 1.0 - absolute(rho)
    gap = where(gap < 16 * EPS, 0.0, gap)
    root = left * right * sqrt(gap * (2.0 - gap))
    close = gap < 0.5
    z = where(close, gap / 2.0, rho * rho)
    part = arcsin_series(where(close, sqrt(z), absolute(rho)), z)
    near = where(rho > 0.0, math.pi - 2.0 * part, 2.0 * part)
    return (root + c * where(close, near, math.pi / 2 + sign(rho) * part)) / (2 * math.pi)


def _correlation(kernel: StationaryKernel, s: Node) -> Any:
    """kappa(s), as the kernel writes it."""
    made = kernel.formula(s, graph)
    if made is None:
        raise ExportError(f"{type(kernel).__name__} has no graph; fit 'mixed' or another named kernel.")
    return made
