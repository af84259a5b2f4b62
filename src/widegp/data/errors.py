"""What a table can have wrong, said in one sentence: what, where, and the cure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

LONGEST_WORD = 60
LONGEST_REASON = 160


class TableError(ValueError):
    """A table that cannot be used as it is; the message names the place and the cure."""


class Problems:
    """Everything that is wrong with a table, gathered to be said in one message."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.add = self.sentences.append

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Keep the `TableError` raised inside for `raise_all`."""
        try:
            yield
        except TableError as error:
            self.add(str(error))

    def raise_all(self) -> None:
        """One `TableError` with every sentence, numbered if there are several; nothing if there is none."""
        told = list(dict.fromkeys(self.sentences))
        if len(told) > 1:
            numbered = " ".join(f"({i}) {sentence}" for i, sentence in enumerate(told, start=1))
            raise TableError(f"The table has {len(told)} problems: {numbered}")
        if told:
            raise TableError(told[0])


def quoted(value: object) -> str:
    """``value`` in quotes, cut where it is long: a message stays one sentence whatever the table holds."""
    text = str(value)
    return repr(text if len(text) <= LONGEST_WORD else text[:LONGEST_WORD] + "...")


def similar(name: str, names: Iterable[str], listed: str = "the columns are") -> str:
    """The end of a sentence that lists the names close to ``name``, or the first ones after ``listed``."""
    names = list(names)
    # Names that differ in case alone are close in meaning and far apart for difflib.
    folded = {other.casefold(): other for other in names}
    close = [folded[key] for key in difflib.get_close_matches(name.casefold(), folded, n=3)]
    if close:
        return f"did you mean {' or '.join(map(quoted, close))}?"
    if not names:
        return "the table has no columns."
    rest = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{listed} {', '.join(map(quoted, names[:8]))}{rest}."


@contextmanager
def in_file(path: object, cure: str = "write or copy the file again") -> Iterator[None]:
    """Turn whatever reading ``path`` raises into a `TableError`.

    Any bytes may stand in a file and the readers below raise classes of their own for them, so every
    exception is the file's here.
    """
    try:
        yield
    except TableError:
        raise
    except FileNotFoundError as error:
        raise TableError(f"{path} does not exist; check the path.") from error
    except PermissionError as error:
        raise TableError(f"{path} may not be read; ask for the right to read it.") from error
    except ImportError as error:
        raise TableError(f"Reading {path} needs pyarrow ({_reason(error)}); pip install pyarrow.") from error
    except MemoryError as error:
        raise TableError(
            f"{path} asks for more memory than there is; copy it again, or read fewer columns at once."
        ) from error
    except Exception as error:
        raise TableError(f"{path} cannot be read ({_reason(error)}); {cure}.") from error


@contextmanager
def in_column(name: str) -> Iterator[None]:
    """Turn what converting one column raises into a `TableError` that names the column."""
    try:
        yield
    except TableError:
        raise
    except Exception as error:
        raise TableError(
            f"Column {quoted(name)} cannot be converted ({_reason(error)}); correct it or drop the column."
        ) from error


def _reason(error: Exception) -> str:
    """The first line of what a reader said, without its full stop."""
    text = str(getattr(error, "strerror", None) or error).strip() or type(error).__name__
    return text.splitlines()[0][:LONGEST_REASON].rstrip(". ")
