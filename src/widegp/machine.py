"""What a process runs on and with: versions of libraries, and the most memory that it has had."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# Those that decide the digits of a fit, and its time.
LIBRARIES = ("widegp", "numpy", "scipy", "scikit-learn", "jax", "numba", "pyarrow", "faiss-cpu")


def versions(names: Sequence[str] = LIBRARIES) -> dict[str, str]:
    """Installed versions by name; what is absent is left out."""
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def peak_memory() -> int | None:
    """The most resident memory that this process has had, in bytes; None where the system does not tell."""
    # ru_maxrss of a child process begins at its parent's memory; VmHWM does not.
    with suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found[1]) * 1024
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
