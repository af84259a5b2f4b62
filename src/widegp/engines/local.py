"""One machine: blocks one after the other, memory for one block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from widegp.compute.backend import Block
from widegp.engines.blocks import NO_ROWS, BlockedRows, add_trees

T = TypeVar("T")


class LocalEngine:
    """Streams blocks through a function; the parallelism is inside the function."""

    name = "local"
    backend = None
    lanes = 1

    def place(self, rows: BlockedRows) -> BlockedRows:
        return rows

    def map_sum(self, fn: Callable[[Block], T], rows: Iterable[Block]) -> T:
        """sum over blocks of fn(block)."""
        total: Any = None
        for block in rows:
            part = fn(block)
            total = part if total is None else add_trees(total, part)
        if total is None:
            raise ValueError(NO_ROWS)
        return total

    def map_rows(self, fn: Callable[[Block], T], rows: Iterable[Block]) -> list[T]:
        """[fn(block) for every block], in order."""
        return [fn(block) for block in rows]
