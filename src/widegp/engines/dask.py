"""A cluster through dask.distributed: blocks stay on the workers, small sums come back.

An evaluation is two rounds. Each sends the numbers of the model to every worker once, runs the block
function where the blocks are, and adds up the results in a tree. Under a target warp y changes between
evaluations, and y alone is sent again. A worker that is lost takes its blocks with it; the client, which
keeps the table, sends those to the workers that are left and repeats the round. A round is a pure function
of model and blocks, so the loss costs time and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import reduce
from operator import itemgetter
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from widegp.compute.backend import Block
from widegp.engines.blocks import NO_ROWS, BlockedRows, add_trees
from widegp.engines.functions import Form, as_numpy, split

T = TypeVar("T")

BLOCKS_PER_WORKER = 2
# Results added up by one task of the tree.
FAN_IN = 8
# Rounds that may be lost in a row before the cluster is given up, and seconds to wait for a worker.
ATTEMPTS = 10
PATIENCE = 120
SENDING = 60


@dataclass(eq=False)
class ScatteredBlocks:
    """The blocks of one table on the workers, and the target they were last given.

    ``blocks`` are futures of scattered data, which the scheduler cannot compute again: `mend` sends
    those that were lost once more. Dropping this object frees the workers' memory.
    """

    client: Any
    rows: BlockedRows
    blocks: list[Any] = field(default_factory=list)
    target: tuple[BlockedRows, list[Any]] | None = None

    def fill(self) -> None:
        """Send every block, one after the other: the client holds no more than one."""
        while len(self.blocks) < len(self.rows):
            self.blocks.append(self._send(len(self.blocks)))

    def mend(self) -> None:
        """Wait for a worker and send again whatever no worker holds any more."""
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError as error:
            raise RuntimeError(f"The cluster has had no worker for {PATIENCE} s; start some.") from error
        self.target = None
        held = self.client.who_has([block for block in self.blocks if block.status == "finished"])
        for k, block in enumerate(self.blocks):
            if not held.get(block.key):
                self.blocks[k] = self._send(k)

    def targets(self, rows: BlockedRows) -> list[Any]:
        """y and spread by block. A target that has not changed since the last round is not sent again."""
        if self.target is None or not self.target[0].same_target(rows):
            parts = [rows.target(k) for k in range(len(rows))]
            self.target = rows, _scatter(self.client, parts)
        return self.target[1]

    def _send(self, k: int) -> Any:
        # In a list, because the parts of a bare tuple would be sent one by one.
        return _scatter(self.client, [self.rows.block(k)])[0]


@dataclass(frozen=True)
class DaskRows:
    """Rows on the workers, with their target."""

    scattered: ScatteredBlocks
    rows: BlockedRows

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    def with_target(self, y: np.ndarray, spread: np.ndarray | None = None) -> DaskRows:
        return DaskRows(self.scattered, self.rows.with_target(y, spread))

    def restricted(self, rows: np.ndarray) -> BlockedRows:
        return self.rows.restricted(rows)

    def added(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return self.rows.added(parts)


def current_client() -> Any:
    """The client of the cluster that this process, or the worker it runs in, is connected to."""
    try:
        from distributed import get_client
    except ImportError as error:
        raise ImportError("engine='dask' needs dask.distributed: pip install 'widegp[dask]'.") from error
    try:
        return get_client()
    except ValueError as error:
        raise ValueError(
            "engine='dask' found no cluster; start one with dask.distributed.Client() before fitting."
        ) from error


@dataclass(frozen=True)
class DaskEngine:
    """The cluster of a ``dask.distributed.Client``, the current one unless given.

    Start one with ``Client()`` for this machine, or connect to one with ``Client("tcp://...:8786")``. Each
    worker works on one block at a time with as many threads as it was given.
    """

    client: Any = field(default_factory=current_client)
    name = "dask"
    backend = None
    stores = 0  # what a worker kept would be lost with it

    def __deepcopy__(self, memo: dict) -> DaskEngine:
        # Estimators are cloned by copying their parameters; a connection is not for copying.
        return self

    @property
    def parallel_blocks(self) -> int:
        return BLOCKS_PER_WORKER * max(1, len(self.client.nthreads()))

    @property
    def available(self) -> bool:
        return bool(self.client.status == "running")

    def place(self, rows: BlockedRows) -> DaskRows:
        """Send every block to a worker, in turn."""
        scattered = ScatteredBlocks(self.client, rows)
        _persisting(scattered.fill, scattered)
        return DaskRows(scattered, rows)

    def map_sum(self, fn: Callable[[Block], T], rows: DaskRows | BlockedRows, kept: None = None) -> T:
        """sum over blocks of fn(block), added up on the workers."""
        if rows.n_rows == 0:
            raise ValueError(NO_ROWS)
        placed = rows if isinstance(rows, DaskRows) else self.place(rows)
        client = placed.scattered.client
        return _persisting(lambda: _sum(client, _parts(placed, fn)).result(), placed.scattered)

    def map_keep(self, fn: Callable[[Block], tuple[T, Any]], rows: Any) -> tuple[T, Any]:
        raise NotImplementedError("The cluster keeps nothing between rounds (stores is 0); use map_sum.")

    def map_sum_rows(
        self, fn: Callable[[Block], tuple[T, Any]], rows: DaskRows | BlockedRows, kept: None = None
    ) -> tuple[T, list[Any]]:
        """sum over blocks of fn(block)[0], added up on the workers, and fn(block)[1] of each."""
        placed = rows if isinstance(rows, DaskRows) else self.place(rows)
        client = placed.scattered.client

        def work() -> tuple[T, list[Any]]:
            parts = _parts(placed, fn)
            first, second = (client.map(itemgetter(k), parts, pure=False) for k in (0, 1))
            return _sum(client, first).result(), client.gather(second)

        return _persisting(work, placed.scattered)

    def map_rows(self, fn: Callable[[Block], T], rows: DaskRows | BlockedRows) -> list[T]:
        """[fn(block) for every block], in order."""
        placed = rows if isinstance(rows, DaskRows) else self.place(rows)
        client = placed.scattered.client
        return _persisting(lambda: client.gather(_parts(placed, fn)), placed.scattered)


def _scatter(client: Any, data: list[Any], broadcast: bool = False) -> list[Any]:
    """Futures of data on the workers, or on all of them.

    ``Client.scatter`` has no limit of time, and waits for ever if a worker dies at the wrong moment; here it
    is a lost round after SENDING seconds, which is repeated. The limit is kept outside of the event loop: one
    within it (``callback_timeout``) waits for a call to end that may never notice that it was cancelled.
    """
    sending = client._scatter(data, broadcast=broadcast, hash=False)
    sent = asyncio.run_coroutine_threadsafe(sending, client.loop.asyncio_loop)
    try:
        futures: list[Any] = sent.result(SENDING)
    except TimeoutError:
        sent.cancel()
        raise
    return futures


def _parts(placed: DaskRows, fn: Callable[[Block], Any]) -> list[Any]:
    """Futures of fn(block), each computed where its block is."""
    scattered = placed.scattered
    client = scattered.client
    form, numbers = split(fn)
    (model,) = _scatter(client, [(form, as_numpy(numbers))], broadcast=True)
    targets = scattered.targets(placed.rows)
    return client.map(_apply, [model] * len(scattered.blocks), scattered.blocks, targets, pure=False)


def _sum(client: Any, parts: list[Any]) -> Any:
    """One future: parts added up in groups of FAN_IN, again and again; the same order every time."""
    while len(parts) > 1:
        groups = [parts[k : k + FAN_IN] for k in range(0, len(parts), FAN_IN)]
        parts = client.map(_add, groups, pure=False)
    return parts[0]


def _persisting(work: Callable[[], T], scattered: ScatteredBlocks) -> T:
    """work(), repeated with lost blocks sent again while workers are lost under it."""
    from distributed.scheduler import KilledWorker

    problem: Exception | None = None
    for attempt in range(ATTEMPTS):
        try:
            if attempt:
                scattered.mend()
            return work()
        # Data gone with a worker, connections closed on the way, a task that several workers died of.
        except (CancelledError, OSError, KilledWorker) as error:
            problem = error
    raise RuntimeError(
        f"Workers were lost {ATTEMPTS} times in a row ({problem}); give them more memory or lower block_rows."
    ) from problem


# --- on a worker ------------------------------------------------------------------------------------------

# A block takes all threads of its worker, and memory for one block is what a worker is given.
_one_at_a_time = Lock()


def _apply(model: tuple[Form, tuple[Any, ...]], block: Block, target: tuple[np.ndarray, np.ndarray]) -> Any:
    """fn(block) with the target in place; JAX's arrays leave as NumPy's."""
    form, numbers = model
    with _one_at_a_time:
        _use_own_threads()
        return as_numpy(form.bind(numbers)(block._replace(y=target[0], spread=target[1])))


def _use_own_threads() -> None:
    from distributed import get_worker

    try:
        from numba import config, set_num_threads
    except ImportError:
        return
    set_num_threads(min(get_worker().state.nthreads, config.NUMBA_NUM_THREADS))


def _add(parts: list[Any]) -> Any:
    return reduce(add_trees, parts)
