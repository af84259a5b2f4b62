"""Formulas as nodes of an ONNX graph: arrays that remember how they are made.

Every operation that is used here has a kernel for doubles in ONNX Runtime, which inverse circular and
hyperbolic functions do not; `arcsin`, `sinh`, `arcsinh` and `log1p` are made of others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from widegp.kernels.arc import ARCSIN_SERIES

OPSET = 17
# The version of the format that came with that set of operations; readers refuse what is newer than they.
IR_VERSION = 8


class Graph:
    """Nodes and constants of one graph, in the order in which they were made."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def _name(self) -> str:
        return f"t{len(self.nodes) + len(self.constants)}"

    def constant(self, value: Any) -> Node:
        """A number or an array; integers and truth values stay what they are."""
        from onnx import numpy_helper

        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        array = array if array.dtype.kind in "ib" else array.astype(np.float64)
        self.constants.append(numpy_helper.from_array(array, name := self._name()))
        return Node(self, name)

    def make(self, operation: str, *inputs: Any, **attributes: Any) -> Node:
        """The result of an operation on nodes, numbers or arrays."""
        from onnx import helper

        names = [(part if isinstance(part, Node) else self.constant(part)).name for part in inputs]
        self.nodes.append(helper.make_node(operation, names, [name := self._name()], **attributes))
        return Node(self, name)

    def bytes(self, n_inputs: int, outputs: dict[str, Node], about: str, axes: int = 1) -> bytes:
        """The model with input X (N, n_inputs) and these outputs, all of doubles and with so many axes."""
        from onnx import TensorProto, checker, helper

        nodes = [*self.nodes, *(helper.make_node("Identity", [o.name], [n]) for n, o in outputs.items())]
        given = [helper.make_tensor_value_info("X", TensorProto.DOUBLE, ["N", n_inputs])]
        shape = ["N", *[None] * (axes - 1)]
        made = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, shape) for n in outputs]
        graph = helper.make_graph(nodes, "widegp", given, made, initializer=self.constants, doc_string=about)
        model = helper.make_model(
            graph, producer_name="widegp", opset_imports=[helper.make_opsetid("", OPSET)]
        )
        model.ir_version = IR_VERSION
        checker.check_model(model)
        return bytes(model.SerializeToString())


class Node:
    """An array of the graph; it adds, multiplies, compares and takes products of matrices as NumPy's do."""

    __array_ufunc__ = None  # An array on the left leaves the operation to the node.

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __add__(self, other: Any) -> Node:
        return self.graph.make("Add", self, other)

    def __sub__(self, other: Any) -> Node:
        return self.graph.make("Sub", self, other)

    def __mul__(self, other: Any) -> Node:
        return self.graph.make("Mul", self, other)

    def __truediv__(self, other: Any) -> Node:
        return self.graph.make("Div", self, other)

    def __matmul__(self, other: Any) -> Node:
        return self.graph.make("MatMul", self, other)

    def __rsub__(self, other: Any) -> Node:
        return self.graph.make("Sub", other, self)

    def __rtruediv__(self, other: Any) -> Node:
        return self.graph.make("Div", other, self)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Node:
        return self.graph.make("Neg", self)

    def __gt__(self, other: Any) -> Node:
        return self.graph.make("Greater", self, other)

    def __lt__(self, other: Any) -> Node:
        return self.graph.make("Less", self, other)

    def sum(self, axis: int) -> Node:
        """Along one axis, which is gone then."""
        return self.graph.make("ReduceSum", self, np.array([axis]), keepdims=0)

    def with_axis(self, axis: int) -> Node:
        """The same with an axis of length 1."""
        return self.graph.make("Unsqueeze", self, np.array([axis]))


def where(condition: Node, then: Any, otherwise: Any) -> Node:
    return condition.graph.make("Where", condition, then, otherwise)


def maximum(x: Node, bound: Any) -> Node:
    return x.graph.make("Max", x, bound)


def minimum(x: Node, bound: Any) -> Node:
    return x.graph.make("Min", x, bound)


def sqrt(x: Node) -> Node:
    return x.graph.make("Sqrt", x)


def exp(x: Node) -> Node:
    return x.graph.make("Exp", x)


def absolute(x: Node) -> Node:
    return x.graph.make("Abs", x)


def sign(x: Node) -> Node:
    return x.graph.make("Sign", x)


def log1p(x: Node) -> Node:
    """log(1 + x) = x log(u) / (u - 1) with u = 1 + x rounded (Kahan), which keeps the digits of a small x."""
    u = x + 1.0
    near = absolute(u - 1.0) < 1e-300
    return where(near, x, x.graph.make("Log", u) * x / where(near, 1.0, u - 1.0))


def sinh(x: Node) -> Node:
    return (exp(x) - exp(-x)) / 2.0


def arcsinh(x: Node) -> Node:
    """sign(x) log(1 + (|x| + x^2 / (1 + sqrt(x^2 + 1))))."""
    size = absolute(x)
    return sign(x) * log1p(size + size * size / (sqrt(size * size + 1.0) + 1.0))


def arcsin_series(x: Node, z: Node) -> Node:
    """arcsin(x) for x in [0, 1/2] and z = x^2, as `widegp.kernels.arc` has it."""
    series: Any = ARCSIN_SERIES[-1]
    for coefficient in ARCSIN_SERIES[-2::-1]:
        series = z * series + coefficient
    return x + x * z * series


def arcsin(s: Node) -> Node:
    """arcsin(s), |s| <= 1: the series below 1/2, above it arcsin s = pi/2 - 2 arcsin sqrt((1 - s)/2)."""
    size = absolute(s)
    large = size > 0.5
    z = where(large, (1.0 - size) / 2.0, size * size)
    part = arcsin_series(where(large, sqrt(z), size), z)
    return where(large, math.pi / 2 - 2.0 * part, part) * sign(s)
