"""What an engine offers, and which one a name stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from widegp.compute.backend import Block
from widegp.engines.blocks import BlockedRows

T = TypeVar("T")

NAMES = ("auto", "local", "sharded", "dask")


class Rows(Protocol):
    """Rows held where an engine makes its sums; the target alone changes between evaluations."""

    @property
    def n_rows(self) -> int: ...

    def with_target(self, y: np.ndarray, spread: np.ndarray | None = None) -> Rows:
        """The same rows with target y (n,) and noise variances in the proportions of spread (n,)."""

    def restricted(self, rows: np.ndarray) -> BlockedRows:
        """Only these rows, and whatever they condition on."""

    def added(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Numbers per row of each block, halo included, added up by row of the table: (n,)."""


class Engine(Protocol):
    """Maps a function over blocks of rows, wherever these are. It knows no kernels.

    The function takes a `Block` and returns numbers, arrays, kernels or tuples of them. Where it is a
    ``functools.partial``, its positional arguments are sent with it: they are what a model is at one
    evaluation, and the blocks stay where `place` put them.
    """

    @property
    def name(self) -> str: ...

    @property
    def backend(self) -> str | None:
        """The only backend whose functions this engine runs, or None for any."""

    @property
    def parallel_blocks(self) -> int:
        """Blocks worked on at the same time; a table should have at least as many."""

    @property
    def stores(self) -> int:
        """Devices that can keep results of `map_keep` in their memory; 0 where none can."""

    @property
    def available(self) -> bool:
        """Whether it can work now: a cluster may have been closed since a model was fitted on it."""

    def place(self, rows: BlockedRows) -> Rows:
        """Put the blocks where the sums over them will be made."""

    def map_sum(self, fn: Callable[..., T], rows: Any, kept: Any = None) -> T:
        """sum over blocks of fn(block); ``rows`` from `place`, or rows not placed before.

        With ``kept``, which `map_keep` returned for the same rows: of fn(block, what was kept of it).
        """

    def map_keep(self, fn: Callable[[Block], tuple[T, Any]], rows: Any) -> tuple[T, Any]:
        """The sum of the first results of fn(block); the second ones stay where they are, for `map_sum`."""

    def map_sum_rows(self, fn: Callable[..., tuple[T, Any]], rows: Any, kept: Any = None) -> tuple[T, list]:
        """`map_sum` of the first results, and a list of the second ones by block, such as numbers per row."""

    def map_rows(self, fn: Callable[[Block], T], rows: Any) -> list[T]:
        """[fn(block) for every block], in order."""


def make_engine(engine: str | Engine, backend: str = "auto") -> Engine:
    """The engine of this name, or the object itself where it is one already.

    ``"auto"`` is ``"sharded"`` where JAX finds an accelerator, on which the blocks then stay.
    """
    if engine == "auto":
        from widegp.neighbors.device import has_accelerator

        engine = "sharded" if backend != "native" and has_accelerator() else "local"
    if engine == "local":
        from widegp.engines.local import LocalEngine

        return LocalEngine()
    if engine == "sharded":
        from widegp.engines.sharded import ShardedEngine

        return ShardedEngine()
    if engine == "dask":
        from widegp.engines.dask import DaskEngine

        return DaskEngine()
    if isinstance(engine, str) or not hasattr(engine, "map_sum"):
        raise ValueError(f"Unknown engine {engine!r}; choose one of {', '.join(NAMES)}, or pass an engine.")
    return engine


def backend_for(engine: Engine, asked: str) -> str:
    """The name of the backend to use where ``asked`` was asked for and the engine may need its own."""
    if engine.backend is None or asked == engine.backend:
        return asked
    if asked != "auto":
        raise ValueError(
            f"engine={engine.name!r} runs backend={engine.backend!r} only; leave backend at 'auto'."
        )
    return engine.backend
