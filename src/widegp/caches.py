"""What was made of cells of training rows, kept from one call to the next: in memory, or in a file."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple

# Bytes of factors that stay in memory between calls, for all models of an average together.
KEPT_BYTES = 2**30
# Bytes of them in a file, for all models together, and the share of the free disk that it may take.
FILE_BYTES, FREE_SHARE = 2**32, 0.25


class _Kept:
    """At most ``limit`` bytes of what was made of cells; threads may share it."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0
        self._made: OrderedDict[int, Any] = OrderedDict()
        self._lock = Lock()

    def __contains__(self, cell: int | None) -> bool:
        return cell in self._made

    def __len__(self) -> int:
        return len(self._made)


class Cache(_Kept):
    """What was made of the latest cells."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        super().__init__(limit)

    def get(self, cell: int | None) -> Any:
        with self._lock:
            found = None if cell is None else self._made.get(cell)
            if found is not None and cell is not None:
                self._made.move_to_end(cell)
            return found

    def put(self, cell: int | None, made: tuple[Any, ...]) -> None:
        """Keep ``made``, a tuple of arrays, and forget what was used longest ago until all fits."""
        size = _bytes(made)
        if cell is None or size > self.limit:
            return
        with self._lock:
            if cell in self._made:
                return
            self._made[cell], self.bytes = made, self.bytes + size
            while self.bytes > self.limit:
                self.bytes -= _bytes(self._made.popitem(last=False)[1])


def _bytes(made: tuple[Any, ...]) -> int:
    return sum(int(part.nbytes) for part in made)


class _Entry(NamedTuple):
    """Where the numbers of a cell begin in the file, the bytes of each array, and what the arrays were."""

    start: int
    sizes: tuple[int, ...]
    layout: bytes


class FileCache(_Kept):
    """What was made of the first cells, in a nameless file of the temporary folder (TMPDIR): for a table that
    is read once in many batches, each of which visits most of the cells.

    To read what was made of a cell takes a tenth of the time of making it again, and the memory in which the
    system holds the file is free for whoever needs it. Where ``limit`` bytes are full, or a quarter of the
    free disk, the first cells stay: where cells come round in turn, the latest are those needed last.
    """

    def __init__(self, limit: int = FILE_BYTES) -> None:
        self._file: Any = None
        try:
            free = shutil.disk_usage(tempfile.gettempdir()).free
            # Without a buffer: what a full disk does not take must not be tried again later.
            self._file = tempfile.TemporaryFile(prefix="widegp-", buffering=0)  # noqa: SIM115 closed when gone
        except OSError:
            free = 0  # No folder to write to: cells are made again.
        super().__init__(min(limit, int(FREE_SHARE * free)))

    def get(self, cell: int | None) -> Any:
        entry: _Entry | None = None if cell is None else self._made.get(cell)
        if entry is None:
            return None
        numbers = bytearray(sum(entry.sizes))
        view, parts, end = memoryview(numbers), [], 0
        with self._lock:
            if not self._moved(self._file.readinto, entry.start, [view]):
                return None
        for size in entry.sizes:
            parts.append(view[end : end + size])
            end += size
        return pickle.loads(entry.layout, buffers=parts)

    def put(self, cell: int | None, made: tuple[Any, ...]) -> None:
        """Keep ``made``, a tuple of arrays, if there is room for it."""
        parts: list[pickle.PickleBuffer] = []
        layout = pickle.dumps(made, protocol=5, buffer_callback=parts.append)
        views = [part.raw() for part in parts]
        sizes = tuple(view.nbytes for view in views)
        with self._lock:
            if cell is None or cell in self._made or self.bytes + sum(sizes) > self.limit:
                return
            if not self._moved(self._file.write, self.bytes, views):
                self.limit = self.bytes  # The disk is full: what lies there stays.
                return
            self._made[cell] = _Entry(self.bytes, sizes, layout)
            self.bytes += sum(sizes)

    def _moved(
        self, move: Callable[[memoryview], int | None], start: int, views: Sequence[memoryview]
    ) -> bool:
        """Whether all of ``views`` were read or written from ``start`` on; one ``move`` may do less."""
        with suppress(OSError):
            self._file.seek(start)
            for view in views:
                rest = view
                while rest.nbytes and (count := move(rest)):
                    rest = rest[count:]
                if rest.nbytes:
                    return False
            return True
        return False
