"""Peers from a folder of wheels, for a machine without a network: ``run.py --wheels FOLDER``."""

from __future__ import annotations

import ctypes
import hashlib
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile


def unpacked(folder: Path) -> Path:
    """The wheels of a folder, unpacked side by side into one of the temporary folder, once."""
    wheels = sorted(folder.glob("*.whl"))
    names = " ".join(wheel.name for wheel in wheels)
    home = Path(tempfile.gettempdir()) / f"league-peers-{hashlib.sha256(names.encode()).hexdigest()[:12]}"
    finished = home / ".finished"
    if not finished.exists():
        for wheel in wheels:
            with ZipFile(wheel) as archive:
                archive.extractall(home)
        finished.touch()
    return home


def library_folder(home: Path) -> Path | None:
    """A folder with ``libgomp.so.1`` for LightGBM and GPBoost, where the system has none.

    Other packages bring that library under a name of their own; a link gives it the name that is asked for.
    """
    try:
        ctypes.CDLL("libgomp.so.1")
        return None
    except OSError:
        pass
    places = [home, *(Path(place) for place in sys.path if place)]
    found = next((path for place in places for path in place.glob("*.libs/libgomp*.so*")), None)
    if found is None:
        return None
    link = home / "lib" / "libgomp.so.1"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(found.resolve())
    return link.parent
