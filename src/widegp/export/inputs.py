"""The maps of the inputs as nodes of a graph."""

from __future__ import annotations

import itertools

import numpy as np

from widegp.data.input_maps import ChainedMaps, InputMap, LinearMap, QuantileScaler, tail_slopes
from widegp.data.preprocessing import HUGE, InputScaler
from widegp.export.graph import Node, maximum, minimum
from widegp.export.kernels import ExportError


def mapped(x: Node, inputs: InputMap, width: int) -> tuple[Node, int]:
    """x~ (N, q) of rows x (N, width), and q."""
    if isinstance(inputs, ChainedMaps):
        for part in inputs.parts:
            x, width = mapped(x, part, width)
        return x, width
    if isinstance(inputs, LinearMap):
        return x @ inputs.matrix, inputs.matrix.shape[1]
    if isinstance(inputs, QuantileScaler):
        return _by_rank(x, inputs), width
    if not isinstance(inputs, InputScaler):
        raise ExportError(f"{type(inputs).__name__} has no graph; fit with trees='none'.")
    if np.any(np.maximum(np.abs(inputs.shift), inputs.scale) > HUGE):
        raise ExportError("An input has values near the largest number there is; scale it before fitting.")
    if inputs.low is not None and inputs.high is not None:
        x = minimum(maximum(x, inputs.low), inputs.high)
    return (x - inputs.shift) / inputs.scale, width


def _by_rank(x: Node, scaler: QuantileScaler) -> Node:
    """The line through the knots of each column, found by counting the knots at or below x."""
    columns = [slice(*ends) for ends in itertools.pairwise(scaler.starts)]
    # A column of one knot gets a second one: between them the line is flat, and slope 1 goes on beyond.
    knots = [_two(scaler.knots[own], 1.0) for own in columns]
    scores = [_two(scaler.scores[own], 0.0) for own in columns]
    most = max(map(len, knots))
    ladder = np.array([np.append(own, np.full(most - len(own), np.inf)) for own in knots])
    graph = x.graph
    reached = graph.make("Not", x.with_axis(2) < ladder)
    passed = graph.make("Cast", reached, to=7).sum(2)  # 7: int64
    lengths = np.array([len(own) for own in knots])
    part = minimum(maximum(passed, np.array(1)), lengths - 1)
    offsets = np.append(0, np.cumsum(lengths)[:-1])
    flat_knots, flat_scores = np.concatenate(knots), np.concatenate(scores)
    steps = np.diff(flat_knots, append=np.inf)
    slopes = np.diff(flat_scores, append=0.0) / np.where(steps > 0, steps, np.inf)
    at = part + (offsets - 1)

    def taken(values: np.ndarray, where: Node) -> Node:
        return graph.make("Gather", values, where)

    low, high = taken(flat_scores, at), taken(flat_scores, at + np.array(1))
    inside = low + taken(slopes, at) * (x - taken(flat_knots, at))
    inside = graph.make("Max", graph.make("Min", inside, high), low)
    first = np.array([scaler.knots[own][0] for own in columns])
    last = np.array([scaler.knots[own][-1] for own in columns])
    ends = [tail_slopes(scaler.knots[own], scaler.scores[own]) for own in columns]
    below, above = np.array(ends).T
    return inside + below * minimum(x - first, 0.0) + above * maximum(x - last, 0.0)


def _two(values: np.ndarray, step: float) -> np.ndarray:
    return values if len(values) > 1 else np.append(values, values[0] + step)
