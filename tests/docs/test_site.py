"""The site: every public name has its place in the reference, and the build is clean and self-contained."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import widegp

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md"))
DIRECTIVES = set(re.findall(r"^::: ([\w.]+)", REFERENCE, flags=re.MULTILINE))
MODULES = ("networks", "simulate", "identifiability", "kernels")


def home(value: object) -> str:
    return f"{value.__module__}.{value.__qualname__}"  # type: ignore[attr-defined]


def public() -> list[tuple[str, str]]:
    """(name, where the reference must have it) of all public classes, functions and modules of functions."""
    found = []
    for name in widegp.__all__:
        value = getattr(widegp, name)
        if inspect.ismodule(value) and name in MODULES:
            members = {member: getattr(value, member) for member in value.__all__}
            kept = {m: v for m, v in members.items() if inspect.isroutine(v) or inspect.isclass(v)}
            found += [(f"{name}.{member}", home(value)) for member, value in kept.items()]
        else:
            found.append((name, value.__name__ if inspect.ismodule(value) else home(value)))
    return found


@pytest.mark.parametrize(("name", "place"), public(), ids=lambda text: text)
def test_public_name_is_in_the_reference(name, place):
    assert place in DIRECTIVES


@pytest.mark.parametrize("directive", sorted(DIRECTIVES))
def test_reference_names_what_exists(directive):
    if directive == "widegp.gpytorch_kernels":
        pytest.importorskip("gpytorch")
    try:
        importlib.import_module(directive)
    except ModuleNotFoundError:
        module, _, name = directive.rpartition(".")
        assert hasattr(importlib.import_module(module), name)


def test_pictures_are_few_and_small():
    pictures = sorted((DOCS / "figures").iterdir())
    assert 0 < len(pictures) <= 10
    assert max(picture.stat().st_size for picture in pictures) < 100_000


def test_pictures_are_those_that_the_script_draws():
    drawn = re.search(r"^FIGURES.*?^}", (DOCS / "make_figures.py").read_text(), re.MULTILINE | re.DOTALL)
    assert drawn is not None
    names = set(re.findall(r'^    "([\w-]+)":', drawn[0], re.MULTILINE))
    assert names == {picture.stem for picture in (DOCS / "figures").iterdir()}


@pytest.fixture(scope="module")
def to_markdown():
    pytest.importorskip("griffe")
    spec = spec_from_file_location("docstrings", DOCS / "site" / "docstrings.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.to_markdown


class TestDocstrings:
    def test_fields_become_a_list(self, to_markdown):
        fields = "a, b : the dials,\n    both of them.\nc_ : *one* more.    d_ : last."
        text = f"Do it.\n\nParameters\n----------\n{fields}"
        expected = "- `a`, `b`: the dials, both of them.\n- `c_`: \\*one\\* more.\n- `d_`: last."
        assert to_markdown(text).endswith(f"**Parameters**\n\n{expected}")

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("MAE = (1/n) sum_i |mean_i - y_i|.", "`MAE = (1/n) sum_i |mean_i - y_i|`."),
            ("K = b + v E[h(Z)], eq. (LCov1).", "`K = b + v E[h(Z)]`, eq. (LCov1)."),
            ("All rows that have x = 1 count.", "All rows that have x = 1 count."),
            ("``w_m`` and `alpha` stay.", "`w_m` and `alpha` stay."),
        ],
    )
    def test_formulas_become_code(self, to_markdown, text, expected):
        assert to_markdown(text) == expected

    def test_indented_blocks_stay(self, to_markdown):
        block = "\n\n    y = f(x) * g_1(x)\n\n"
        assert to_markdown(f"Sum.{block}More.") == f"Sum.{block}More."


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for library in ("mkdocs", "material", "mkdocstrings_handlers", "latex2mathml"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed: pip install 'widegp[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_site_loads_nothing_from_elsewhere(site):
    loaded = re.compile(r"<(?:script|img|iframe|link)[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*\"[^>]*>")
    for page in site.rglob("*.html"):
        found = loaded.findall(page.read_text(encoding="utf-8"))
        assert not found, f"{page.name} loads {found[0]}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?https?:", style.read_text(encoding="utf-8")), style


def test_formulas_are_drawn_by_the_browser(site):
    page = (site / "notation.html").read_text(encoding="utf-8")
    assert page.count("<math") > 100 and "$<code>" not in page
