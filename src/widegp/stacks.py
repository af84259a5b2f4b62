"""Predictions in many cells at once, where a backend makes programs of fixed shapes.

Rows are sent to an accelerator once, which finds their cells; programs then take parts of the rows of many
cells. No result is waited for before all are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from widegp.conditioning import Group, TrainingRows

PREDICT_BYTES = 64 * 2**20
# Rows of a cell that a program for many cells takes at most, and cells that it factorises at once.
PART_ROWS = 64
# The same on an accelerator where cells have as many new rows: what a cell holds is then read less often.
LARGE_PART_ROWS = 512
# Rows that an accelerator holds at a time, those of one copy to it, and those from which on it finds cells.
SENT_ROWS = 2**20
RUN_ROWS = 2**16
SENT_FROM = 4_096

Take = Callable[[np.ndarray], Any]


@dataclass
class Stacks:
    """Results of a posterior's formulas at new rows, given the training rows of their cells.

    numbers : those of the posterior, where the backend computes.    limit : bytes for what is kept of cells
    without an accelerator.    sends : whether rows are sent as they come, to be put in order there.
    """

    posterior: Any
    backend: Any
    rows: TrainingRows
    numbers: Any
    limit: int
    sends: bool = field(init=False)

    def __post_init__(self) -> None:
        self.sends = self.backend.keeps_shapes

    def run(self, formula: str, X: np.ndarray, out: np.ndarray) -> None:
        """The results of the posterior's ``formula`` at the rows of X (q, I) into out (width, q)."""
        if not self.sends or len(X) < SENT_FROM:
            asked = self.asked(formula, self.rows.groups(X), X.__getitem__)
            return fill(out, asked)
        room, _ = self.room(X.shape[1])
        for start in range(0, len(X), room):
            part = slice(start, start + room)
            sent = self.sent(X[part])
            groups = self.rows.parted_by(self.owners(X[part], sent))
            fill(out[:, part], self.asked(formula, groups, sent.taken))

    def room(self, n_inputs: int) -> tuple[int, int]:
        """Rows that the device holds at a time, and rows of one copy to it: powers of two."""
        space = self.backend.block_bytes // 4
        room = _power_of_two(min(SENT_ROWS, space // (8 * n_inputs)))
        work = 8 * n_inputs if self.holder is None else self.holder.bytes_per_row
        return room, _power_of_two(min(RUN_ROWS, room, space // work))

    def sent(self, X: np.ndarray) -> Any:
        """The rows X (q, I) on their way to the device."""
        from widegp.compute.xla_holding import SentRows

        return SentRows(X, *self.room(X.shape[1]))

    def owners(self, X: np.ndarray, sent: Any) -> np.ndarray:
        """The cell of each row of X, (q,), all of which are sent: found on the device where it has room for
        the cells, and what it is not sure of, on the host.
        """
        find, embed = self.holder, self.rows.kernel.embedding
        found = [find and find(embed(run)) for run in sent.runs()]
        if find is None:
            return self.rows.owners(X)
        cells, sure = (np.concatenate(list(map(np.asarray, part))) for part in zip(*found, strict=True))
        owner, left = cells[: len(X)].astype(np.int64), np.flatnonzero(~sure[: len(X)])
        owner[left] = self.rows.owners(X[left])
        return owner

    @cached_property
    def holder(self) -> Any:
        """Finds cells on the device; None where these would take too much of its memory."""
        from widegp.compute.xla_holding import Holder

        cells = self.rows.parted
        if cells.points.dtype != np.float64 or cells.table_bytes > self.backend.block_bytes // 4:
            return None
        return Holder(cells.table())

    def asked(
        self, formula: str, groups: list[Group], take: Take
    ) -> list[tuple[np.ndarray, np.ndarray, Any]]:
        """Parts of each group's rows, many of them by one program: rows (b,), which of the results (k, b) are
        theirs, and results that may still be on their way. ``take`` gives the rows of indices (k, b).
        """
        from widegp.compute.xla_cells import at_cells

        of = {int(group.cell or 0): group for group in groups}
        size = self._part_rows(groups)
        parts = [(cell, part) for cell, group in of.items() for part in in_parts(group.rows, size)]
        parts.sort(key=lambda part: part[0] not in self.slots)
        fn = at_cells(getattr(type(self.posterior), formula), self.backend, 2 if formula == "mean" else 1)
        room, made = self._parts_together(size), []
        if self.sends and len(of) <= self.slots.capacity:
            # Few programs that factorise many cells, none of which a prediction waits for in between.
            self.held(of, list(of))
        for start in range(0, len(parts), room):
            few = parts[start : start + room]
            slots = self.held({cell: of[cell] for cell, _ in few}, [cell for cell, _ in few])
            # Where compiling takes seconds, the last program is that of the others.
            count = room if self.sends and start else _eights(len(few), room)
            rows, real = _side_by_side([part for _, part in few], (count, size))
            slots = np.append(slots, np.zeros(len(rows) - len(slots), slots.dtype))
            values = fn(self.numbers, self.slots.stack, slots, take(rows))
            several = values if isinstance(values, tuple) else (values,)
            for value in several:
                value.copy_to_host_async()
            made.append((rows[real], real, several))
        return made

    def _part_rows(self, groups: list[Group]) -> int:
        sizes = [len(group.rows) for group in groups]
        if self.sends and sum(sizes) >= LARGE_PART_ROWS * len(sizes) > 0:
            return LARGE_PART_ROWS
        return _eights(max(sizes, default=1), PART_ROWS)

    def held(self, groups: dict[int, Group], cells: list[int]) -> np.ndarray:
        """The slots of ``cells``; what is not held of their groups is made first."""
        from widegp.compute.xla_cells import made_of_cells

        # Those at hand are used now, so that none of them makes way for the others.
        self.slots.of([cell for cell in groups if cell in self.slots])
        missing = [cell for cell in groups if cell not in self.slots]
        make = made_of_cells(type(self.posterior).given, self.backend)
        for start in range(0, len(missing), PART_ROWS):
            few = missing[start : start + PART_ROWS]
            padded = few + few[:1] * (_eights(len(few), PART_ROWS) - len(few))
            taken = [self.rows.taken(groups[cell].near, self.posterior.noise) for cell in padded]
            made = make(self.numbers, *map(np.stack, zip(*taken, strict=True)))
            self.rows.check(made[1].e)
            self.slots.put(few, made)
        return self.slots.of(cells)

    @cached_property
    def slots(self) -> Any:
        """Of the cells on a device: as many as its memory, or that for factors, has room for."""
        from widegp.compute.xla_cells import Slots

        limit = self.backend.keep_bytes if self.backend.keeps_shapes else self.limit
        room = limit // self.posterior.bytes_per_cell(self.rows.set_size)
        return Slots(min(len(self.rows.parted.centres), room))

    def _parts_together(self, size: int) -> int:
        """Parts of ``size`` rows, a power of eight of them, whose work fits a block."""
        room = self.backend.block_bytes // 4 if self.backend.keeps_shapes else PREDICT_BYTES
        m = self.rows.set_size
        each = self.posterior.bytes_per_cell(m) + size * (self.posterior.bytes_per_row(0) + 32 * m)
        return min(self.slots.capacity, 8 ** int(math.log(max(1, room // each), 8)))


def in_parts(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def fill(out: np.ndarray, asked: list[tuple[np.ndarray, np.ndarray, Any]]) -> None:
    """Results of `Stacks.asked`, waited for, into out (width, q)."""
    for rows, real, several in asked:
        for own, values in zip(out, several, strict=True):
            own[rows] = np.asarray(values)[real]


def _eights(number: int, most: int) -> int:
    """The least power of eight that is no less than ``number``, or ``most``: few shapes are compiled."""
    return min(most, 8 ** math.ceil(math.log(max(number, 1), 8) - 1e-9))


def _power_of_two(number: int) -> int:
    """The largest that is no more than ``number``, at least 1."""
    return 1 << (max(number, 1).bit_length() - 1)


def _side_by_side(parts: list[np.ndarray], shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the parts (k, b), each filled up with row 0, and which of them are real."""
    rows, real = np.zeros(shape, np.int64), np.zeros(shape, bool)
    for k, part in enumerate(parts):
        rows[k, : len(part)], real[k, : len(part)] = part, True
    return rows, real
