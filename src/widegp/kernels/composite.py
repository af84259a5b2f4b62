"""Sums and products of kernels: what ``+`` and ``*`` make.

The sum of two kernels is the covariance of the sum of two independent networks, the product that of the
product of their outputs. Parameters are named after their part, ``rbf.sigma_u2``; parts of one kind are
numbered, ``rbf1.sigma_u2`` and ``rbf2.sigma_u2``.
"""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from widegp.data.arrays import Floats
from widegp.kernels.base import Array, Kernel, as_kernel, namespace
from widegp.kernels.parameters import Parameter


@dataclass(frozen=True)
class Composite(Kernel):
    """What sums and products share: parameters by part, embeddings side by side."""

    parts: tuple[Kernel, ...]

    @classmethod
    def of(cls, *kernels: Kernel) -> Self:
        """One composite of all; those of the same kind among them are taken apart first."""
        flat = (k.parts if isinstance(k, cls) else (k,) for k in kernels)
        return cls(tuple(part for parts in flat for part in parts))

    def named_parts(self) -> dict[str, Kernel]:
        """The parts by name: the word of the kernel, numbered from 1 where there are several of a kind."""
        words = [part.word for part in self.parts]
        names = (w if words.count(w) == 1 else f"{w}{words[: k + 1].count(w)}" for k, w in enumerate(words))
        return dict(zip(names, self.parts, strict=True))

    @property
    def free(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self.parameters())

    def declarations(self) -> tuple[Parameter, ...]:
        named = self.named_parts().items()
        return tuple(parameter.of_part(name) for name, part in named for parameter in part.declarations())

    def parameters(self) -> dict[str, Array]:
        named = self.named_parts().items()
        return {f"{name}.{key}": value for name, part in named for key, value in part.parameters().items()}

    def replace(self, **parameters: Array) -> Self:
        """A copy with some parameters, named as in `parameters`, or all ``parts`` changed."""
        if "parts" in parameters:
            return type(self)(tuple(parameters["parts"]))
        unknown = set(parameters) - set(self.parameters())
        if unknown:
            known = ", ".join(self.parameters())
            raise TypeError(f"{type(self).__name__} has no parameter {sorted(unknown)}; it has {known}.")
        parts = []
        for name, part in self.named_parts().items():
            own = {key: f"{name}.{key}" for key in part.parameters()}
            changed = {key: parameters[full] for key, full in own.items() if full in parameters}
            parts.append(part.replace(**changed))
        return type(self)(tuple(parts))

    def embedding(self, X: Array) -> Array:
        """sqrt(s_k) u_k(x) of the parts k side by side: squared distances are sum_k s_k |u_k - u_k'|^2."""
        parts = zip(self._shares(), self.parts, strict=True)
        sides = [np.sqrt(share) * part.embedding(X) for share, part in parts]
        return namespace(X).concatenate(sides, axis=1)

    def unembedding(self, points: np.ndarray, n_inputs: int) -> np.ndarray:
        """As the first part has it: every part holds the whole row."""
        first = self.parts[0]
        width = first.embedding(np.zeros((1, n_inputs))).shape[1]
        return first.unembedding(points[:, :width] / np.sqrt(self._shares()[0]), n_inputs)

    def input_weights(self, n_inputs: int) -> Floats:
        weights = np.array([part.input_weights(n_inputs) for part in self.parts], np.float64)
        return self._shares() @ weights

    def _shares(self) -> Floats:
        """How much each part counts where rows are compared."""
        raise NotImplementedError


@as_kernel
class Sum(Composite):
    """K(x, x') = sum_k K_k(x, x'); rows are compared by each part as much as it adds to the variance."""

    parts: tuple[Kernel, ...] = field(kw_only=False)

    def between(self, X: Array, Y: Array) -> Array:
        return functools.reduce(operator.add, (part.between(X, Y) for part in self.parts))

    def variance(self, X: Array) -> Array:
        return functools.reduce(operator.add, (part.variance(X) for part in self.parts))

    def signal_variance(self) -> float:
        return sum(part.signal_variance() for part in self.parts)

    def summands(self) -> dict[str, Kernel]:
        return self.named_parts()

    def _shares(self) -> Floats:
        signals = np.array([part.signal_variance() for part in self.parts], np.float64)
        return signals / float(signals.sum())


@as_kernel
class Product(Composite):
    """K(x, x') = prod_k K_k(x, x'); near 1, what correlations lack of 1 adds up, so all parts count alike."""

    parts: tuple[Kernel, ...] = field(kw_only=False)

    def between(self, X: Array, Y: Array) -> Array:
        return functools.reduce(operator.mul, (part.between(X, Y) for part in self.parts))

    def variance(self, X: Array) -> Array:
        return functools.reduce(operator.mul, (part.variance(X) for part in self.parts))

    def signal_variance(self) -> float:
        return math.prod(part.signal_variance() for part in self.parts)

    def summands(self) -> dict[str, Kernel]:
        return {self.word: self}

    def _shares(self) -> Floats:
        return np.ones(len(self.parts))
