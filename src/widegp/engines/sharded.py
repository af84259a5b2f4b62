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
from widegp.engines.travel import Form, split

T = TypeVar("T")

AXIS = "devices"


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

    def with_target(self, y: np.ndarray, dy: np.ndarray | None = None) -> ShardedRows:
        """The same rows with another target; without a warp it is always the same one, and sent once."""
        if not self.latest or dy is not None or not np.array_equal(self.latest[0].rows.y, y):
            self.latest[:] = [self._sent(y, dy)]
        return self.latest[0]

    def _sent(self, y: np.ndarray, dy: np.ndarray | None) -> ShardedRows:
        rows = self.rows.with_target(y, dy)
        groups = []
        for g, group in enumerate(self.groups):
            first = g * group.y.shape[0]
            targets = [rows.target(k) for k in range(first, min(first + group.y.shape[0], len(rows)))]
            put = [_stacked(parts, self.sharding) for parts in zip(*targets, strict=True)]
            groups.append(group._replace(y=put[0], dy=put[1]))
        return replace(self, rows=rows, groups=tuple(groups), latest=[])

    def restricted(self, rows: np.ndarray) -> BlockedRows:
        return self.rows.restricted(rows)


@dataclass(frozen=True, eq=False)
class ShardedEngine:
    """One block per device at a time, by ``jax.shard_map``: one program, compiled once for all devices.

    ``devices`` are all that JAX finds unless given. The table stays on them: their memory together must
    hold it.
    """

    devices: Sequence[Any] | None = None
    name = "sharded"
    backend = "xla"

    def __deepcopy__(self, memo: dict) -> ShardedEngine:
        # Estimators are cloned by copying their parameters; devices are not for copying.
        return self

    @property
    def mesh(self) -> Mesh:
        return Mesh(np.array(jax.devices() if self.devices is None else list(self.devices)), (AXIS,))

    @property
    def lanes(self) -> int:
        return int(self.mesh.size)

    def place(self, rows: BlockedRows) -> ShardedRows:
        """Copy the blocks to the devices, padded to one shape whatever the backend asks for."""
        rows = replace(rows, pad=True)
        sharding = NamedSharding(self.mesh, PartitionSpec(AXIS))
        groups = []
        for first in range(0, len(rows), self.lanes):
            blocks = [rows.block(k) for k in range(first, min(first + self.lanes, len(rows)))]
            put = [_stacked(parts, sharding) for parts in zip(*blocks, strict=True)]
            groups.append(Block(*put))
        return ShardedRows(rows, tuple(groups), sharding)

    def map_sum(self, fn: Callable[[Block], T], rows: ShardedRows | BlockedRows) -> T:
        """sum over blocks of fn(block)."""
        if rows.n_rows == 0:
            raise ValueError(NO_ROWS)
        return reduce(add_trees, self._run(fn, rows, summed=True))

    def map_rows(self, fn: Callable[[Block], T], rows: ShardedRows | BlockedRows) -> list[T]:
        """[fn(block) for every block], in order."""
        placed = rows if isinstance(rows, ShardedRows) else self.place(rows)
        out: list[T] = []
        for part in self._run(fn, placed, summed=False):
            out += [jax.tree_util.tree_map(lambda leaf, k=k: leaf[k], part) for k in range(self.lanes)]
        return out[: len(placed.rows)]

    def _run(self, fn: Callable[[Block], T], rows: ShardedRows | BlockedRows, summed: bool) -> list[Any]:
        """The results of all groups, on the first device."""
        with jax.enable_x64(True):
            placed = rows if isinstance(rows, ShardedRows) else self.place(rows)
            form, numbers = split(fn)
            program = _program(self.mesh, form, summed)
            everywhere = jax.device_put(numbers, NamedSharding(self.mesh, PartitionSpec()))
            results = [program(everywhere, group) for group in placed.groups]
            return [jax.tree_util.tree_map(_first if summed else jnp.asarray, part) for part in results]


@lru_cache(maxsize=64)
def _program(mesh: Mesh, form: Form, summed: bool) -> Callable[..., Any]:
    """(numbers, group of blocks) -> the sum of fn over the group, or its results stacked."""

    def on_one_device(numbers: tuple[Any, ...], group: Block) -> Any:
        part = form.bind(numbers)(Block(*(leaf[0] for leaf in group)))
        part = jax.tree_util.tree_map(jnp.asarray, part)
        if summed:
            return jax.lax.psum(part, AXIS) if mesh.size > 1 else part
        return jax.tree_util.tree_map(lambda leaf: leaf[None], part)

    out = PartitionSpec() if summed else PartitionSpec(AXIS)
    return jax.jit(
        jax.shard_map(
            on_one_device, mesh=mesh, in_specs=(PartitionSpec(), PartitionSpec(AXIS)), out_specs=out,
            # Constants among the results are the same everywhere without being marked so.
            check_vma=False,
        ),
        compiler_options=compiler_options(),
    )  # fmt: skip


def _first(leaf: Any) -> Any:
    """One device's copy of a sum that all of them hold."""
    return leaf.addressable_data(0)


def _stacked(parts: Sequence[np.ndarray], sharding: NamedSharding) -> Any:
    """One array per device, stacked and sent; blank ones for devices without a block."""
    size = sharding.mesh.size
    blank = np.full_like(parts[0], -1 if np.issubdtype(parts[0].dtype, np.integer) else 0)
    with jax.enable_x64(True):
        return jax.device_put(np.stack([*parts, *[blank] * (size - len(parts))]), sharding)
