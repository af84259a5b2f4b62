"""Evaluations written down as they are made, so that a killed fit goes on from where it was.

An optimiser is a deterministic function of the answers it gets. Run again from the beginning and answered
from the journal, it takes the same steps, bit for bit, up to the last evaluation written, and goes on from
there. So nothing of the optimiser's own state need be saved, and a fit may be killed at any moment.

    file   = one line per entry;   line = CRC-32 of the entry, a blank, the entry as JSON
    entry  = {"fingerprint": ...} first, then {"z", "value", "gradient", "jitter", "problem", "seconds"}
             per evaluation, or {"name", "chosen"} for a choice that hangs on a clock

JSON writes a float so that it reads back the same to the last bit. A line cut short by a kill fails its CRC,
and is dropped with whatever follows it.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from widegp.inference.objective import Answer, MapObjective

# The file is forced from the system's memory to the disk this often, in seconds: a power cut loses no more.
SYNC_SECONDS = 5.0


class JournalError(ValueError):
    """A journal that belongs to another fit, or a file that is none; the message names the cure."""


@dataclass
class Journal:
    """Answers from ``entries`` while they last, then from the caller, writing down each answer."""

    path: Path
    entries: list[dict[str, Any]]
    elapsed: float = 0.0
    _began: float = field(default_factory=time.perf_counter)
    _synced: float = 0.0
    _next: int = 0

    @classmethod
    def open(cls, path: str | os.PathLike[str], fingerprint: str) -> Journal:
        """The journal at ``path``, new or to be gone on with; of a fit with this ``fingerprint`` only."""
        path = Path(path)
        if not path.parent.is_dir() or path.is_dir():
            raise JournalError(f"The checkpoint {path} is a folder or lies in none; pass a file's name.")
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        entries, length = _whole(lines)
        if not entries:
            if lines and not _is_torn_start(lines):
                raise JournalError(f"{path} is not a checkpoint; pass another name, or remove the file.")
            entries = [{"fingerprint": fingerprint}]
            path.write_bytes(_line(entries[0]))
        elif entries[0].get("fingerprint") != fingerprint:
            raise JournalError(
                f"{path} is the checkpoint of a fit of another table or with other settings;"
                " give the same ones, pass another name, or remove the file."
            )
        else:
            with open(path, "rb+") as file:
                file.truncate(length)
        return cls(path, entries[1:], max((e.get("seconds", 0.0) for e in entries), default=0.0))

    def answer(self, z: np.ndarray, objective: Callable[[np.ndarray], Answer]) -> Answer:
        """The objective at z (p,), remembered or evaluated."""
        entry = self._remembered(lambda e: "z" in e and e["z"] == z.tolist())
        if entry is None:
            value, gradient, jitter, problem = objective(z)
            entry = {
                "z": z.tolist(), "value": float(value), "gradient": np.asarray(gradient).tolist(),
                "jitter": float(jitter), "problem": problem, "seconds": self.seconds(),
            }  # fmt: skip
            self._write(entry)
        return Answer(entry["value"], np.array(entry["gradient"], float), entry["jitter"], entry["problem"])

    def choice(self, name: str, choose: Callable[[], Any]) -> Any:
        """The JSON value that ``choose`` gave the first time it was asked for under this name."""
        entry = self._remembered(lambda e: e.get("name") == name)
        if entry is None:
            entry = {"name": name, "chosen": choose()}
            self._write(entry)
        return entry["chosen"]

    def seconds(self) -> float:
        """Seconds that the fit has taken so far, in all its runs."""
        return self.elapsed + time.perf_counter() - self._began

    def _remembered(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        if self._next >= len(self.entries):
            return None
        entry = self.entries[self._next]
        if fits(entry):
            self._next += 1
            return entry
        # Another machine or thread count rounds in another way: what follows is of a path not taken.
        del self.entries[self._next :]
        header = self.path.read_bytes().splitlines(keepends=True)[: 1 + self._next]
        with open(self.path, "rb+") as file:
            file.truncate(sum(map(len, header)))
        return None

    def _write(self, entry: dict[str, Any]) -> None:
        with open(self.path, "ab") as file:
            file.write(_line(entry))
            file.flush()
            if time.perf_counter() - self._synced > SYNC_SECONDS:
                os.fsync(file.fileno())
                self._synced = time.perf_counter()
        self.entries.append(entry)
        self._next = len(self.entries)


@dataclass(frozen=True)
class Journaled:
    """A MAP objective whose answers are written down, and read where they were written before."""

    objective: MapObjective
    journal: Journal

    def __call__(self, z: np.ndarray) -> Answer:
        answer = self.journal.answer(z, self.objective)
        if answer.problem is None:
            # An answer from the journal must leave the likelihood as the evaluation left it.
            self.objective.likelihood.settle(answer.jitter)
        return answer


def fingerprint(settings: dict[str, Any], *arrays: np.ndarray) -> str:
    """SHA-256 of settings and data: a journal answers for these and no others."""
    digest = sha256(repr(sorted(settings.items())).encode())
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def evaluations(path: str | os.PathLike[str]) -> int:
    """How many evaluations the journal at ``path`` answers for; of a file that is none, 0."""
    with open(path, "rb") as file:
        entries, _ = _whole(file)
    return sum("z" in entry for entry in entries)


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _whole(lines: Iterable[bytes]) -> tuple[list[dict[str, Any]], int]:
    """The entries before the first damaged line, and the bytes that they take."""
    entries: list[dict[str, Any]] = []
    length = 0
    for line in lines:
        text = line[9:-1]
        if not line.endswith(b"\n") or line[:9] != b"%08x " % zlib.crc32(text):
            break
        entries.append(json.loads(text))
        length += len(line)
    return entries, length


def _is_torn_start(lines: list[bytes]) -> bool:
    """Whether a kill while the first line was written explains the file."""
    return len(lines) == 1 and not lines[0].endswith(b"\n") and b'{"finger'.startswith(lines[0][9:17])
