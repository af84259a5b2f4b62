"""Results on disk, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from widegp.files import write_whole
from widegp.progress import Listener, Progress
from widegp.report.formatting import plain


@dataclass
class Store:
    """A folder of results, each under a name and the settings that made it.

    A result is computed once: asked for again with the same settings it is read, with others it is computed
    anew. ``progress`` is told of each that was computed, with its seconds.
    """

    folder: Path
    progress: Listener = field(default=lambda event: None)

    def result(self, name: str, settings: dict[str, Any], compute: Callable[[], dict[str, Any]]) -> Any:
        """What ``compute`` returns, as JSON has it; numbers that are not finite become None."""
        path = self._path(name, ".json")
        wanted = _digest(settings)
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["digest"] == wanted:
                return kept["result"]
        began = time.perf_counter()
        result = plain(compute())
        kept = {"digest": wanted, "settings": plain(settings), "result": result}
        write_whole(path, json.dumps(kept, allow_nan=False, indent=1).encode())
        self.progress(Progress(name, seconds=time.perf_counter() - began))
        return result

    def arrays(
        self, name: str, settings: dict[str, Any], compute: Callable[[], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """The same for arrays by name."""
        path = self._path(name, ".npz")
        wanted = _digest(settings)
        if path.exists():
            with np.load(path, allow_pickle=False) as kept:
                if str(kept["digest"]) == wanted:
                    return {key: kept[key] for key in kept.files if key != "digest"}
        began = time.perf_counter()
        arrays = {key: np.asarray(value) for key, value in compute().items()}
        out = io.BytesIO()
        np.savez(out, allow_pickle=False, digest=np.array(wanted), **arrays)
        write_whole(path, out.getvalue())
        self.progress(Progress(name, seconds=time.perf_counter() - began))
        return arrays

    def _path(self, name: str, ending: str) -> Path:
        path = self.folder / "results" / f"{name}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _digest(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain(settings), sort_keys=True).encode()).hexdigest()[:16]
