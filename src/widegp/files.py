"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


class FileError(ValueError):
    """A place where no file can be written; the message names the cure."""


def check_place(path: str | os.PathLike[str]) -> Path:
    """The file behind ``path`` (links followed), after making sure that it can be written there.

    A file is made and removed again beside it: rights, quotas and read-only disks have no other sure test.
    """
    place = Path(os.path.realpath(path))
    if place.is_dir() or not place.parent.is_dir():
        which = f"{path} is a folder" if place.is_dir() else f"The folder {place.parent} does not exist"
        raise FileError(f"{which}; pass the name of a file in an existing folder.")
    # Renaming over a device or a pipe would remove it from the system.
    effective = os.access in os.supports_effective_ids
    if place.exists() and not (place.is_file() and os.access(place, os.W_OK, effective_ids=effective)):
        what = "is write-protected" if place.is_file() else "is a device or a pipe"
        raise FileError(f"{path} {what}; pass the name of another file.")
    try:
        temporary = _beside(place)
        with open(temporary, "xb"):
            pass
        temporary.unlink()
    except OSError as error:
        raise FileError(
            f"{path} cannot be written ({error.strerror}); pass the name of a file in another folder."
        ) from error
    return place


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name to write to; it becomes ``path`` if the block ends well, and is removed if not."""
    place = check_place(path)
    temporary = _beside(place)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    # The rename itself outlives a power cut only once the folder is on disk; Windows cannot be asked.
    with contextlib.suppress(OSError):
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """``data`` as the file ``path``: the whole new file, or the old one untouched."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name[:100]}.{secrets.token_hex(8)}.tmp")
