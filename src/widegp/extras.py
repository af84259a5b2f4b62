"""Packages that widegp can do without, and the extra that brings each of them."""

from __future__ import annotations

from importlib.util import find_spec

EXTRA = {
    "numba": "fast", "faiss": "fast", "pyarrow": "tables", "matplotlib": "plots", "typer": "cli",
    "rich": "cli", "jinja2": "cli", "onnx": "onnx", "openpyxl": "excel", "pandas": "excel", "dask": "dask",
    "numpyro": "sample",
}  # fmt: skip


class MissingExtra(ModuleNotFoundError):
    """A package that is not installed; the message names the extra that brings it."""


def missing_words(package: str) -> str | None:
    """What to do about a missing package; None where no extra brings it."""
    extra = EXTRA.get(package.partition(".")[0])
    if extra is None:
        return None
    return f"{package} is not installed; pip install 'widegp[{extra}]', or 'widegp[all]' for everything."


def needed(*packages: str) -> None:
    """Refuse in one sentence to go on without these packages."""
    for package in packages:
        try:
            found = find_spec(package) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            raise MissingExtra(missing_words(package), name=package)
