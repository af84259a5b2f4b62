"""The page on messages against the source: every reason and class is there, every quotation is a real one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from widegp import Reason

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "widegp").rglob("*.py"))
NODES = [n for path in SOURCES for n in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
FAQ = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^> (.+)$", FAQ, flags=re.MULTILINE)
# What a message fills in, in the source and on the page.
HOLE = "…"


def raised() -> set[str]:
    """Names of the classes that the package raises, without those that stay inside it."""
    called = (n.exc.func for n in NODES if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call))
    names = {ast.unparse(function).split(".")[-1] for function in called}
    return {name for name in names if not name.startswith("_")}


def defined() -> set[str]:
    """Exceptions that the package defines."""
    error = re.compile(r"(Error|Exception|Interrupt|Warning)$")
    classes = [n for n in NODES if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]
    return {c.name for c in classes if any(error.search(ast.unparse(base)) for base in c.bases)}


def warned() -> set[str]:
    """Categories of the warnings that the package gives; UserWarning where none is named."""
    given = [n for n in NODES if isinstance(n, ast.Call) and ast.unparse(n.func) == "warnings.warn"]
    return {ast.unparse(call.args[1]) if len(call.args) > 1 else "UserWarning" for call in given}


def texts() -> Iterator[str]:
    """All strings of the package, with holes for what they fill in."""
    for node in NODES:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(v.value) if isinstance(v, ast.Constant) else HOLE for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


MESSAGES = {re.sub(rf"{HOLE}+", HOLE, text) for text in texts()}


@pytest.mark.parametrize("reason", list(Reason), ids=lambda reason: reason.name)
def test_every_reason_is_explained(reason):
    row = next((line for line in FAQ.splitlines() if line.startswith(f"| {reason.value} |")), "")
    assert f"`{reason.name}`" in row
    assert f"| {'yes' if reason.converged else 'no'} |" in row


@pytest.mark.parametrize("name", sorted(raised() | defined() | warned()))
def test_every_class_is_explained(name):
    assert re.search(rf"\b{name}\b", FAQ), f"docs/faq.md has no word on {name}; explain it there"


@pytest.mark.parametrize("quotation", QUOTED)
def test_every_quotation_is_a_message_of_the_package(quotation):
    assert quotation in MESSAGES, f"no message of the package reads {quotation!r}; it was changed or removed"
