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
    parallel_blocks = 1
    stores = 1
    available = True

    def place(self, rows: BlockedRows) -> BlockedRows:
        return rows

    def map_sum(self, fn: Callable[..., T], rows: Iterable[Block], kept: list[Any] | None = None) -> T:
        """sum over blocks of fn(block), or of fn(block, kept[k])."""
        if kept is None:
            return _added(fn(block) for block in rows)
        return _added(fn(block, part) for block, part in zip(rows, kept, strict=True))

    def map_keep(self, fn: Callable[[Block], tuple[T, Any]], rows: Iterable[Block]) -> tuple[T, list[Any]]:
        return self.map_sum_rows(fn, rows)

    def map_sum_rows(
        self, fn: Callable[..., tuple[T, Any]], rows: Iterable[Block], kept: list[Any] | None = None
    ) -> tuple[T, list[Any]]:
        """sum over blocks of fn(block)[0], and fn(block)[1] of each."""
        second: list[Any] = []

        def first(*block: Any) -> T:
            part, rest = fn(*block)
            second.append(rest)
            return part

        if kept is None:
            return _added(first(block) for block in rows), second
        return _added(first(block, part) for block, part in zip(rows, kept, strict=True)), second

    def map_rows(self, fn: Callable[[Block], T], rows: Iterable[Block]) -> list[T]:
        """[fn(block) for every block], in order."""
        return [fn(block) for block in rows]


def _added(parts: Iterable[T]) -> T:
    total: Any = None
    for part in parts:
        total = part if total is None else add_trees(total, part)
    if total is None:
        raise ValueError(NO_ROWS)
    return total
