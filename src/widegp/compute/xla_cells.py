"""Many cells in one program: what was made of each is stacked on the device, and rows come cell by cell."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from widegp.compute.xla import compiler_options

Tree = Any
Formula = Callable[..., Any]


class Slots:
    """Stacks of arrays (S, ...), of which entry s belongs to one cell; at most ``capacity`` cells are held,
    and those used longest ago make way.

    Not for several threads at once: an accelerator is kept busy by one.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = max(1, capacity)
        self.stack: Tree = None
        self._slots: OrderedDict[int, int] = OrderedDict()

    def __contains__(self, cell: int) -> bool:
        return cell in self._slots

    def of(self, cells: Sequence[int]) -> np.ndarray:
        """The slots of these cells, all of which are held."""
        for cell in cells:
            self._slots.move_to_end(cell)
        return np.array([self._slots[cell] for cell in cells], np.int32)

    def put(self, cells: Sequence[int], made: Tree) -> None:
        """Hold ``made``, arrays (k, ...) of which the first belong to these cells, at most ``capacity``."""
        slots = np.array([self._slot(cell) for cell in cells], np.int32)
        if self.stack is None:
            shape = (self.capacity,)
            self.stack = jax.tree.map(lambda part: jnp.zeros(shape + part.shape[1:], part.dtype), made)
        # What is padding goes nowhere.
        rest = len(jax.tree.leaves(made)[0]) - len(cells)
        self.stack = _put(self.stack, np.append(slots, np.full(rest, self.capacity, np.int32)), made)

    def _slot(self, cell: int) -> int:
        full = len(self._slots) >= self.capacity
        slot = self._slots.popitem(last=False)[1] if full else len(self._slots)
        self._slots[cell] = slot
        return slot


@partial(jax.jit, donate_argnums=0)
def _put(stack: Tree, slots: Any, made: Tree) -> Tree:
    return jax.tree.map(lambda held, new: held.at[slots].set(new, mode="drop"), stack, made)


@lru_cache(maxsize=16)
def made_of_cells(given: Formula, backend: Any) -> Formula:
    """(numbers, X (k, m, I), y (k, m), noise (k, m)) -> rows, and what ``given`` makes of each k of them."""

    def each(numbers: Tree, *rows: Any) -> Tree:
        return rows[0], *jax.vmap(lambda *own: given(backend, numbers, *own))(*rows)

    return jax.jit(each, compiler_options=compiler_options())


@lru_cache(maxsize=16)
def at_cells(formula: Formula, backend: Any, which: int) -> Formula:
    """(numbers, stack, slots (k,), X (k, b, I)) -> the formula at b rows of each of k cells, (k, b) each.

    ``which`` part of what was made of a cell the formula needs.
    """

    def each(numbers: Tree, stack: Tree, slots: Any, X: Any) -> Any:
        def one(slot: Any, rows: Any) -> Any:
            held = jax.tree.map(lambda part: part[slot], (stack[0], stack[which]))
            return formula(backend, numbers, rows, *held)

        return jax.vmap(one)(slots, X)

    return jax.jit(each, compiler_options=compiler_options())
