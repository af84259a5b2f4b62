"""From exceptions to exit codes: 2 and one sentence for what the user can mend, 130 for Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

USER_ERROR = 2
INTERRUPTED = 130
MEMORY = "There is not enough memory; take fewer rows, a lower --rank, or --approximation vfe."
STOPPED = "Interrupted; nothing was written."
TRACEBACK = "WIDEGP_TRACEBACK"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a command that can say what was saved and how to go on."""


# Signals that asked the running command to stop.
_received: list[int] = []


@contextlib.contextmanager
def interrupts_as_such() -> Iterator[None]:
    """Compiled code that an interrupt breaks off may report something else; here it is an interrupt again."""
    try:
        yield
    except Exception as error:
        if _received:
            raise KeyboardInterrupt from error
        raise


@contextlib.contextmanager
def interrupted_with(words: Callable[[], str]) -> Iterator[None]:
    """An interrupt inside is told with ``words()``, asked for when it comes: what is saved by then counts."""
    try:
        with interrupts_as_such():
            yield
    except Interrupted:
        raise
    except KeyboardInterrupt as stop:
        raise Interrupted(words()) from stop


class GuardedCommands(TyperGroup):
    """A group of commands that never shows a traceback for what is not a bug."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        extra["standalone_mode"] = False
        with _terminated_like_interrupted():
            try:
                code = super().main(*args, **extra)
                sys.stdout.flush()
            except (BrokenPipeError, SystemExit) as end:
                # Typer makes exit code 1 of a closed pipe, but its reader, such as `head`, just had enough.
                if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
                    raise
                _discard_stdout()
                sys.exit(0)
            except Exception as error:
                sentence = _sentence(error)
                if sentence is None or os.environ.get(TRACEBACK):
                    raise
                _discard_stdout()
                _say(f"Error: {sentence}")
                sys.exit(USER_ERROR)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            with interrupts_as_such():
                return super().invoke(ctx)
        # Caught before typer, which has an exit code for it but no words.
        except KeyboardInterrupt as stop:
            _say(str(stop) or STOPPED)
            raise typer.Exit(INTERRUPTED) from stop


def _sentence(error: Exception) -> str | None:
    """What the user should do about ``error``; None for a bug."""
    if isinstance(error, typer.BadParameter):
        error.message = _about_value(error)
    if isinstance(error, typer.TyperException):
        return error.format_message()
    if isinstance(error, MemoryError):
        return MEMORY
    if isinstance(error, OSError):
        return _about_file(error)
    if isinstance(error, ModuleNotFoundError):
        from widegp.extras import missing_words

        return missing_words(error.name or "")
    # TableError, ModelFileError and the checks of the estimator are all of this kind.
    if isinstance(error, ValueError):
        return str(error)
    return None


def _about_value(error: typer.BadParameter) -> str:
    """What is wrong with the value of an option, with the value: the validator's own words leave it out."""
    faults: list[Any] = getattr(error.__cause__, "errors", list)()
    if not faults:
        return error.message
    fault = faults[0]
    value, limits = fault.get("input"), fault.get("ctx", {})
    known = {
        "greater_than_equal": f"{value} is too small; pass at least {limits.get('ge')}.",
        "less_than_equal": f"{value} is too large; pass at most {limits.get('le')}.",
        "int_parsing": f"{value!r} is not a whole number.",
        "float_parsing": f"{value!r} is not a number.",
    }
    return known.get(fault.get("type"), error.message.removeprefix("Value error, "))


def _about_file(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; check the path, its rights and the space left on the disk."


def _say(sentence: str) -> None:
    """One line on stderr, whatever the message holds."""
    with contextlib.suppress(OSError):
        print(" ".join(sentence.split()), file=sys.stderr, flush=True)


def _discard_stdout() -> None:
    """What is left in the buffer has nowhere to go; Python would try once more at exit, and complain."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does, so that no temporary file is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, *_: object) -> NoReturn:
        _received.append(number)
        raise KeyboardInterrupt

    _received.clear()
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
