"""What a block function carries with it: the arrays of the model, apart from all that never changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np


class Form(NamedTuple):
    """A block function without the numbers that it is bound to; equal forms share what was compiled."""

    function: Callable[..., Any]
    tree: Any
    fixed: tuple[Any, ...]

    def bind(self, numbers: tuple[Any, ...]) -> Callable[..., Any]:
        """The function again, with these numbers in place."""
        import jax

        rest = iter(numbers)
        leaves = [next(rest) if leaf is Number else leaf for leaf in self.fixed]
        return partial(self.function, *jax.tree_util.tree_unflatten(self.tree, leaves))


class Number:
    """The place of a number in a `Form`."""


def split(fn: Callable[..., Any]) -> tuple[Form, tuple[Any, ...]]:
    """The form of ``fn`` and the numbers and arrays that it is bound to: form.bind(numbers) is ``fn``."""
    import jax

    function, bound = (fn.func, fn.args) if isinstance(fn, partial) else (fn, ())
    leaves, tree = jax.tree_util.tree_flatten(bound)
    numbers = tuple(leaf for leaf in leaves if _moves(leaf))
    return Form(function, tree, tuple(Number if _moves(leaf) else leaf for leaf in leaves)), numbers


def _moves(leaf: Any) -> bool:
    import jax

    return isinstance(leaf, float | np.ndarray | np.floating | jax.Array)


def as_numpy(tree: Any) -> Any:
    """The same with NumPy arrays for JAX's, which lose half their digits where float64 is not switched on."""
    import jax

    def plain(leaf: Any) -> Any:
        return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf

    return jax.tree_util.tree_map(plain, tree)
