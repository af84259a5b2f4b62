"""Mean and variance of a fitted model's predictions as one ONNX graph: X (N, I) -> mean (N,), variance (N,).

All numbers are doubles; mean and variance are those of ``predict``, noise included, to 1e-6. Models that
condition on neighbours, and those of another likelihood than the Gaussian, have no graph. The steps are those
of `FittedGP.predictive`: maps of the inputs, moments of z by the posterior, noise, warp and tails, averages
over members. Moments under a warp are by the same 64 Gauss-Hermite nodes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from widegp.export.graph import Graph, Node, exp, maximum, minimum, sqrt, where
from widegp.export.inputs import mapped
from widegp.export.kernels import ExportError, cross, diagonal
from widegp.export.warps import unwarped
from widegp.extras import needed
from widegp.files import write_whole
from widegp.fitted import FittedGP
from widegp.fitted_warp import LOST, REACH, UNSURE, FittedWarp
from widegp.noise_model import LIMIT
from widegp.tails import NORMAL

__all__ = ["ExportError", "export_model"]

NODES = 64
FAR = 1e300  # instead of infinity, which 0 is multiplied by in graphs
ABOUT = "Mean and variance, noise included, of a new observation at each row of X, in the units of the table."


class Moments(NamedTuple):
    """Mean and variance, (N,) each."""

    mean: Node
    variance: Node


def export_model(fitted: FittedGP | tuple[FittedGP, ...], path: str | os.PathLike[str]) -> None:
    """Write the graph of a fitted model to ``path``; of several outputs, mean and variance are (N, T)."""
    needed("onnx")
    outputs, graph = fitted if isinstance(fitted, tuple) else (fitted,), Graph()
    x = Node(graph, "X")
    made = [_observation(x, one) for one in outputs]
    named = {"mean": [one.mean for one in made], "variance": [one.variance for one in made]}
    joined = {name: _joined(graph, parts) for name, parts in named.items()}
    write_whole(path, graph.bytes(outputs[0].n_features, joined, ABOUT, 1 + (len(outputs) > 1)))


def _joined(graph: Graph, parts: Sequence[Node]) -> Node:
    if len(parts) == 1:
        return parts[0]
    return graph.make("Concat", *(part.with_axis(1) for part in parts), axis=1)


def _observation(x: Node, model: FittedGP) -> Moments:
    """Moments of y at rows x (N, I), in the units of the table."""
    if model.likelihood is not None:
        raise ExportError("Only models with a Gaussian likelihood have a graph; predict with widegp itself.")
    if model.rows is not None:
        raise ExportError(
            f"A model fitted by {model.approximation!r} looks for the training rows near each new row, which"
            " a graph cannot; fit with approximation='vfe', 'fitc' or 'exact'."
        )
    if model.members:
        parts = [_observation(x, one) for one in model.models]
        return _mixed(parts, model.weights)
    rows, width = mapped(x, model.inputs, model.n_features)
    f = _function(rows, width, model.posterior)
    noise: Any = model.posterior.noise
    if model.noise_model is not None:
        varying = model.noise_model
        h = cross(varying.kernel, rows, varying.points) @ varying.weights
        noise = noise * exp(varying.strength * minimum(maximum(h, -LIMIT), LIMIT))
    sd = sqrt(maximum(f.variance, 0.0) + noise)
    law = model.tails or NORMAL
    if model.warp.name == "none":
        y = _through(model.warp, f.mean, sd)
        y = Moments(y.mean, y.variance * law.sd**2)
    else:
        y = _mixed([_through(model.warp, f.mean, sd * float(c)) for c in law.factors], law.weights)
    return Moments(model.target.mean + model.target.sd * y.mean, model.target.sd**2 * y.variance)


def _function(x: Node, width: int, posterior: Any) -> Moments:
    """Moments of f at mapped rows x (N, width), by what the posterior says are its `Features`."""
    if not hasattr(posterior, "features"):
        raise ExportError(
            f"{type(posterior).__name__} writes no features of its predictions, of which a graph is made; fit"
            " with approximation='vfe', 'fitc' or 'exact'."
        )
    Z, W, beta, T, residual = posterior.features()
    phi = cross(posterior.kernel, x, Z) @ W
    variance: Any = 0.0
    if residual:
        variance = maximum(diagonal(posterior.kernel, x, width) - (phi * phi).sum(1), 0.0)
    if T is not None:
        half = phi @ T.T
        variance = (half * half).sum(1) + variance
    return Moments(phi @ beta, variance)


def _through(warp: FittedWarp, mean: Node, sd: Node) -> Moments:
    """E y~ and Var y~, y~ = inverse(mean + sd t), t ~ N(0, 1), as `FittedWarp.moments`."""
    room = _room(warp, sd)
    if warp.name == "none":
        return Moments(_within(warp, mean, room), sd * sd)
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    median = unwarped(warp, mean)
    y = unwarped(warp, mean.with_axis(1) + sd.with_axis(1) * nodes)
    gap = _within(warp, y, room.with_axis(1), median.with_axis(1)) - median.with_axis(1)
    first, second = gap @ weights, (gap * gap) @ weights
    return Moments(_within(warp, median + first, room), maximum(second - first * first, 0.0))


def _room(warp: FittedWarp, sd: Node) -> Node:
    """How far beyond the training targets y counts, as `FittedWarp.ends_of_moments`."""
    if warp.most == np.inf:
        return sd
    room = maximum(LOST - sd, 0.0) * (REACH * (warp.most - warp.least) / (LOST - UNSURE))
    return where(sd > UNSURE, room, FAR)


def _within(warp: FittedWarp, y: Node, room: Node, median: Node | None = None) -> Node:
    """y up to there, or to its median if that lies beyond."""
    if warp.most == np.inf:
        return y
    low, high = warp.least - room, warp.most + room
    if median is not None:
        low, high = minimum(low, median), maximum(high, median)
    return minimum(maximum(y, low), high)


def _mixed(parts: Sequence[Moments], weights: np.ndarray) -> Moments:
    """mean = sum w_j mean_j,  variance = sum w_j (variance_j + (mean_j - mean)^2)."""
    if len(parts) == 1:
        return parts[0]
    weights = np.asarray(weights, float) / np.sum(weights)
    pairs = list(zip(weights.tolist(), parts, strict=True))
    mean = _total([w * part.mean for w, part in pairs])
    gaps = [part.mean - mean for part in parts]
    spread = [w * (part.variance + gap * gap) for (w, part), gap in zip(pairs, gaps, strict=True)]
    return Moments(mean, _total(spread))


def _total(terms: Sequence[Node]) -> Node:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
