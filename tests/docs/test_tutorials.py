"""Every tutorial is run: its Python in one namespace, its commands in this process, its outputs compared.

A ``text`` block below a ``python`` block, and the lines below a command, are what was printed: words must be
the same and numbers close; ``...`` stands for anything. A block below ``<!-- needs: gpytorch -->`` runs where
that library is installed.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "index.md", DOCS / "dials.md", *sorted((DOCS / "tutorials").glob("*.md"))]

# Fits end on the same optimum, but not on the same digits, under another BLAS or CPU.
CLOSE, NEARLY_ZERO = 0.1, 0.01

FENCE = re.compile(r"```(\w*)")
NEEDS = re.compile(r"<!-- needs: (\w+) -->")
TOKEN = re.compile(r"\.{3}|[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|[^\s\d]+?(?=\.{3}|[-+]?\d|\s|$)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its lines, where it begins, what it needs, and what it printed."""

    language: str
    code: str
    line: int
    needs: str | None = None
    printed: str | None = None


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, each output joined to the block that it belongs to."""
    blocks: list[Block] = []
    for block in _fenced(page.read_text(encoding="utf-8").splitlines()):
        if block.language == "text":
            assert blocks and blocks[-1].language == "python", (
                f"{page.name}:{block.line}: output of no Python"
            )
            blocks[-1] = replace(blocks[-1], printed=block.code)
        else:
            blocks.append(block)
    return blocks


def _fenced(lines: list[str]) -> Iterator[Block]:
    needs, begin, language = None, None, ""
    for number, line in enumerate(lines):
        if begin is not None:
            if line.startswith("```"):
                yield Block(language, "\n".join(lines[begin:number]), begin + 1, needs)
                begin, needs = None, None
        elif fence := FENCE.match(line):
            begin, language = number + 1, fence[1]
        elif found := NEEDS.match(line):
            needs = found[1]


def run_python(page: Path, block: Block, namespace: dict[str, Any]) -> None:
    # Blank lines before the code make the numbers in a traceback those of the page.
    source = "\n" * (block.line - 1) + block.code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, str(page), "exec"), namespace)
    if block.printed is not None:
        compare(block.printed, printed.getvalue(), f"{page.name}:{block.line}")


def run_console(page: Path, block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    from widegp.cli.app import app

    for command, expected in commands_of(block.code):
        words = shlex.split(command)
        assert words[0] == "widegp", f"{page.name}:{block.line}: {words[0]} is no command of this package"
        monkeypatch.setattr(sys, "argv", words)
        result = CliRunner().invoke(app, words[1:], prog_name="widegp")
        wrong = expected.startswith("Error:")
        assert result.exit_code == (2 if wrong else 0), f"{command}\n{result.output}"
        if expected:
            compare(expected, result.output, f"{page.name}:{block.line}: {command}")


def commands_of(text: str) -> Iterator[tuple[str, str]]:
    """Each ``$ command``, continued by a backslash, and the lines printed below it."""
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected.strip()


def compare(expected: str, actual: str, where: str) -> None:
    parts = [TOKEN.findall(part) for part in re.split(r"\.{3}", expected)]
    found = TOKEN.findall(actual)
    position = 0
    for k, part in enumerate(parts):
        last = k == len(parts) - 1
        # The first part stands at the beginning and the last at the end; the others anywhere between.
        starts = range(position, len(found) - len(part) + 1)
        if k == 0:
            starts = starts[:1]
        if last and starts:
            starts = starts[-1:] if k else range(0, 1) if len(found) == len(part) else range(0)
        match = next((s for s in starts if all(map(close, part, found[s:]))), None)
        assert match is not None, f"{where} promises\n{expected}\nbut prints\n{actual}"
        position = match + len(part)


def close(expected: str, actual: str) -> bool:
    try:
        numbers = float(expected.replace(",", "")), float(actual.replace(",", ""))
    except ValueError:
        return expected == actual
    return math.isclose(*numbers, rel_tol=CLOSE, abs_tol=NEARLY_ZERO)


def run_page(page: Path, blocks: list[Block], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.chdir(folder)
    # Wide enough that no table of a command is folded.
    monkeypatch.setenv("COLUMNS", "110")
    namespace: dict[str, Any] = {"__name__": page.stem}
    for block in blocks:
        if block.language == "python":
            run_python(page, block, namespace)
        elif block.language == "console":
            run_console(page, block, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_does_what_it_says(page, monkeypatch, tmp_path):
    blocks = [b for b in blocks_of(page) if b.needs is None]
    assert any(b.language == "python" for b in blocks)
    run_page(page, blocks, monkeypatch, tmp_path)


WITH_NEEDS = [(page, b.needs) for page in PAGES for b in blocks_of(page) if b.needs]


@pytest.mark.parametrize(("page", "library"), sorted(set(WITH_NEEDS)), ids=lambda p: getattr(p, "stem", p))
def test_page_with_optional_library(page, library, monkeypatch, tmp_path):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    blocks = [b for b in blocks_of(page) if b.needs in (None, library)]
    run_page(page, blocks, monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("rmse 1.00", "rmse 1.05\n", True),
        ("rmse 1.00", "rmse 1.2", False),
        ("rmse 1.00", "rmse 1.0 and more", False),
        ("first\n...\nlast 3", "first\nany 1 thing\nlast 3", True),
        ("first\n...\nlast 3", "first\nany 1 thing\nlast 4", False),
        ("...\nlast", "last word", False),
        ("a ... b", "b a", False),
        ("95% of 1,200", "94% of 1,190", True),
        ("-0.5", "0.5", False),
    ],
)
def test_comparison_tells_outputs_apart(expected, actual, same):
    if same:
        compare(expected, actual, "here")
    else:
        with pytest.raises(AssertionError, match="promises"):
            compare(expected, actual, "here")
