"""Several devices of one machine: a block on each, the sums of all of them added up between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from widegp.compute.backend import Block
from widegp.compute.xla import compiler_options
from widegp.engines.blocks import NO_ROWS, BlockedRows, add_trees
from widegp.engines.functions import Form, split

T = TypeVar("T")

AXIS = "devices"
# What becomes of results: added up; one per block; or the first added up, the second one per block.
SUMMED, STACKED, KEPT = "summed", "stacked", "kept"
# What fills a blank block where 0 would not do: no neighbours, and a spread that can be divided by.
BLANKS = {"neighbors": -1, "spread": 1}


@dataclass(frozen=True)
class ShardedRows:
    """Blocks on their devices: ``groups`` of one block per device, stacked along a first axis.

    Blank blocks, of weight 0, fill the last group. They stay on the devices until the rows are dropped.
    """

    rows: BlockedRows
    groups: tuple[Block, ...]
    sharding: NamedSharding
    latest: list[ShardedRows] = field(default_factory=list, repr=False, compare=False)

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    def with_target(self, y: np.ndarray, spread: np.ndarray | None = None) -> ShardedRows:
        """The same rows with another target; without a warp it is always the same one, and sent once."""
        rows = self.rows.with_target(y, spread)
        if not self.latest or not self.latest[0].rows.same_target(rows):
            self.latest[:] = [self._sent(rows)]
        return self.latest[0]

    def _sent(self, rows: BlockedRows) -> ShardedRows:
        groups = []
        for g, group in enumerate(self.groups):
            first = g * group.y.shape[0]
            targets = [rows.target(k) for k in range(first, min(first + group.y.shape[0], len(rows)))]
            y, spread = zip(*targets, strict=True)
            put = _stacked(y, self.sharding), _stacked(spread, self.sharding, BLANKS["spread"])
            groups.append(group._replace(y=put[0], spread=put[1]))
        return replace(self, rows=rows, groups=tuple(groups), latest=[])

    def restricted(self, rows: np.ndarray) -> BlockedRows:
        return self.rows.restricted(rows)

    def added(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return self.rows.added(parts)


@dataclass(frozen=True, eq=False)
class ShardedEngine:
    """One block per device at a time, by ``jax.shard_map``: one program, compiled once for all devices.

    ``devices`` are all that JAX finds unless given. The table stays on them: their memory together must
    hold it.
    """

    devices: Sequence[Any] | None = None
    name = "sharded"
    backend = "xla"
    available = True

    def __deepcopy__(self, memo: dict) -> ShardedEngine:
        # Estimators are cloned by copying their parameters; devices are not for copying.
        return self

    @property
    def mesh(self) -> Mesh:
        return Mesh(np.array(jax.devices() if self.devices is None else list(self.devices)), (AXIS,))

    @property
    def parallel_blocks(self) -> int:
        return int(self.mesh.size)

    @property
    def stores(self) -> int:
        return self.parallel_blocks

    def place(self, rows: BlockedRows) -> ShardedRows:
        """Copy the blocks to the devices, padded to one shape whatever the backend asks for."""
        rows = replace(rows, pad=True)
        sharding = NamedSharding(self.mesh, PartitionSpec(AXIS))
        groups = []
        at_once = self.parallel_blocks
        for first in range(0, len(rows), at_once):
            blocks = [rows.block(k) for k in range(first, min(first + at_once, len(rows)))]
            leaves = zip(Block._fields, zip(*blocks, strict=True), strict=True)
            groups.append(Block(*(_stacked(parts, sharding, BLANKS.get(name, 0)) for name, parts in leaves)))
        return ShardedRows(rows, tuple(groups), sharding)

    def map_sum(
        self, fn: Callable[..., T], rows: ShardedRows | BlockedRows, kept: list[Any] | None = None
    ) -> T:
        """sum over blocks of fn(block), or of fn(block, what was kept of it)."""
        return _added(self._run(fn, rows, SUMMED, kept))

    def map_keep(
        self, fn: Callable[[Block], tuple[T, Any]], rows: ShardedRows | BlockedRows
    ) -> tuple[T, list[Any]]:
        """sum over blocks of fn(block)[0]; fn(block)[1] stays on the block's device."""
        sums, kept = zip(*self._run(fn, rows, KEPT), strict=True)
        return _added(sums), list(kept)

    def map_sum_rows(
        self, fn: Callable[..., tuple[T, Any]], rows: ShardedRows | BlockedRows, kept: list[Any] | None = None
    ) -> tuple[T, list[Any]]:
        """sum over blocks of fn(block)[0], and fn(block)[1] of each."""
        placed = rows if isinstance(rows, ShardedRows) else self.place(rows)
        sums, second = zip(*self._run(fn, placed, KEPT, kept), strict=True)
        return _added(sums), self._by_block(second, placed)

    def map_rows(self, fn: Callable[[Block], T], rows: ShardedRows | BlockedRows) -> list[T]:
        """[fn(block) for every block], in order."""
        placed = rows if isinstance(rows, ShardedRows) else self.place(rows)
        return self._by_block(self._run(fn, placed, STACKED), placed)

    def _by_block(self, groups: Sequence[Any], placed: ShardedRows) -> list[Any]:
        """Results stacked by group, apart again."""
        out: list[Any] = []
        for group in groups:
            out += [
                jax.tree_util.tree_map(lambda leaf, k=k: leaf[k], group) for k in range(self.parallel_blocks)
            ]
        return out[: len(placed.rows)]

    def _run(
        self, fn: Callable[..., Any], rows: ShardedRows | BlockedRows, form_of: str,
        kept: list[Any] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The results of all groups; sums are on the first device."""
        if rows.n_rows == 0:
            raise ValueError(NO_ROWS)
        with jax.enable_x64(True):
            placed = rows if isinstance(rows, ShardedRows) else self.place(rows)
            form, numbers = split(fn)
            program = _program(self.mesh, form, form_of)
            everywhere = jax.device_put(numbers, NamedSharding(self.mesh, PartitionSpec()))
            extra = [()] * len(placed.groups) if kept is None else [(part,) for part in kept]
            results = [
                program(everywhere, group, *more) for group, more in zip(placed.groups, extra, strict=True)
            ]
            return [_arrived(part, form_of) for part in results]


def _arrived(part: Any, form_of: str) -> Any:
    if form_of == KEPT:
        return jax.tree_util.tree_map(_first, part[0]), part[1]
    return jax.tree_util.tree_map(_first if form_of == SUMMED else jnp.asarray, part)


@jax.jit
def _added(parts: Sequence[Any]) -> Any:
    """Their sum, as one program: a call for every number of every group takes as long as a small sum."""
    return reduce(add_trees, parts)


@lru_cache(maxsize=64)
def _program(mesh: Mesh, form: Form, form_of: str) -> Callable[..., Any]:
    """(numbers, group of blocks, what was kept of them) -> fn summed over the group, stacked, or both."""
    added, apart = PartitionSpec(), PartitionSpec(AXIS)

    def on_one_device(numbers: tuple[Any, ...], group: Block, *kept: Any) -> Any:
        fn = form.bind(numbers)
        part = fn(Block(*(leaf[0] for leaf in group)), *(leaf[0] for leaf in kept))
        if form_of == KEPT:
            return _over_devices(part[0], mesh), _stack(part[1])
        return _over_devices(part, mesh) if form_of == SUMMED else _stack(part)

    def program(numbers: tuple[Any, ...], group: Block, *kept: Any) -> Any:
        return jax.shard_map(
            on_one_device, mesh=mesh, in_specs=(added, apart, *(apart for _ in kept)),
            out_specs={SUMMED: added, STACKED: apart, KEPT: (added, apart)}[form_of],
            # Constants among the results are the same everywhere without being marked so.
            check_vma=False,
        )(numbers, group, *kept)  # fmt: skip

    return jax.jit(program, compiler_options=compiler_options())


def _over_devices(part: Any, mesh: Mesh) -> Any:
    part = jax.tree_util.tree_map(jnp.asarray, part)
    return jax.lax.psum(part, AXIS) if mesh.size > 1 else part


def _stack(part: Any) -> Any:
    return jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf)[None], part)


def _first(leaf: Any) -> Any:
    """One device's copy of a sum that all of them hold."""
    return leaf.addressable_data(0)


def _stacked(parts: Sequence[np.ndarray], sharding: NamedSharding, fill: float = 0) -> Any:
    """One array per device, stacked and sent; devices without a block get one that is full of ``fill``."""
    size = sharding.mesh.size
    blank = np.full_like(parts[0], fill)
    with jax.enable_x64(True):
        return jax.device_put(np.stack([*parts, *[blank] * (size - len(parts))]), sharding)
