"""The page as a document: safe, self-contained, readable by machines and people."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from importlib import resources
from io import StringIO
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from rich.console import Console

from widegp.held_out import HeldOut
from widegp.report import render_html, render_terminal, summarise
from widegp.report.formatting import clean, short

from .browser import Browser, find_chromium
from .conftest import HOSTILE

VOID = {"meta", "link", "br", "img", "input", "hr"}
LOADS = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "background"}


class Document(HTMLParser):
    """Tags with their attributes, and the text, of a page whose tags must close in order."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def document(page):
    return Document(page)


def test_nothing_is_loaded_and_nothing_runs(document, page):
    assert not document.all("script") and not document.all("iframe") and not document.all("img")
    for tag, attributes in document.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in LOADS & attributes.keys():
            assert attributes[name].startswith(("#", "data:")), (tag, name)
    style = page[page.index("<style>") : page.index("</style>")]
    assert "@import" not in style and not re.findall(r"url\((?!#)", style)
    assert not re.findall(r"url\((?!#)", " ".join(a.get("style") or "" for _, a in document.tags))
    policy = next(a["content"] for a in document.all("meta") if "http-equiv" in a)
    assert policy.startswith("default-src 'none'") and "script-src" not in policy


def test_hostile_names_are_text_and_nothing_else(document):
    words = " ".join(document.text)
    for name in HOSTILE:
        assert short(name) in words
    titles = [a["title"] for _, a in document.tags if "title" in a]
    assert clean(HOSTILE[-1]) in titles
    assert not {"\x00", "\u202e"} & set(words + "".join(titles))


def test_every_figure_is_described(document):
    pictures = document.all("svg")
    # Two of predictions, four of intervals, three effects, kernel, nine parameters, path.
    assert len(pictures) == 2 + 4 + 3 + 1 + 9 + 1
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in pictures)


def test_ids_are_unique_and_links_lead_somewhere(document):
    ids = Counter(a["id"] for _, a in document.tags if "id" in a)
    assert not [name for name, count in ids.items() if count > 1]
    links = [
        a[key] for _, a in document.tags for key in ("href", "xlink:href") if a.get(key, "").startswith("#")
    ]
    links += [f"#{a['aria-labelledby']}" for _, a in document.tags if "aria-labelledby" in a]
    links += re.findall(r"url\((#[^)]+)\)", " ".join(v or "" for _, a in document.tags for v in a.values()))
    assert links and not [link for link in links if link[1:] not in ids]


def test_headings_are_in_order_and_tables_have_scopes(document):
    levels = [int(tag[1]) for tag, _ in document.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert document.all("th") and all(a.get("scope") in ("row", "col") for a in document.all("th"))
    assert document.all("html")[0]["lang"] == "en"
    assert any(a.get("name") == "viewport" for a in document.all("meta"))


def luminance(colour):
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_contrast_is_aa(theme):
    style = resources.files("widegp.report").joinpath("style.css").read_text()
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in style.split("@media", 2)[:2])
    colours = (light, light | dark)[theme]
    for name in ("ink", "muted", "link", "good", "fair", "bad"):
        for ground in ("page", "card"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    assert contrast(colours["ink"], colours["fair-soft"]) >= 4.5
    for name in ("blue", "orange", "muted"):
        assert contrast(colours[name], colours["card"]) >= 3, name


def test_many_rows_make_a_small_file_and_leave_no_settings_behind(model, held_out):
    rows = np.random.default_rng(0).integers(0, len(held_out), 30_000)
    arrays = {k: v[rows] if v.ndim else v for k, v in held_out.to_arrays().items()}
    settings = dict(matplotlib.rcParams)
    page = render_html(summarise(model, HeldOut.from_arrays(arrays)))
    assert dict(matplotlib.rcParams) == settings
    assert 'href="data:image/png;base64,' in page
    assert len(page.encode()) < 1_000_000


def test_provenance_and_ranges_in_plain_words(summary):
    told = dict(summary, provenance={"date": "2026-01-31T08:58:12+00:00"})
    told["provenance"]["settings"] = {"ard": False, "budget": None, "rank": 500, "jitter": 0}
    told["columns"] = [{"name": "year", "kind": "numeric", "missing": 0, "min": 2018.0, "max": 2024.0}]
    page = render_html(told)
    assert "<dd>rank 500, jitter 0</dd>" in page
    assert page.count("2026-01-31 08:58 UTC") == 2 and "T08:58" not in page
    assert "2018 to 2024" in page


def test_importing_the_report_imports_no_library_for_drawing():
    # scikit-learn from 1.9 on loads rich for itself where it finds it.
    code = """
import sys, sklearn.preprocessing, sklearn.metrics
before = set(sys.modules)
import widegp.report
sys.exit(bool((set(sys.modules) - before) & {"matplotlib", "rich", "jinja2"}))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_terminal_takes_names_literally(summary):
    out = StringIO()
    render_terminal(summary, Console(file=out, width=200), verbose=True)
    said = out.getvalue()
    assert "[red]not markup[/red]" in said and "<script>" in said
    assert "Warning: " in said and "sigma_eps2" in said and "Left open" in said
    assert f"Scores on {summary['held_out']['rows']} held-out rows" in said


def test_the_terminal_gives_the_answer_first_and_parameters_on_demand(summary):
    out = StringIO()
    render_terminal(summary, Console(file=out, width=200))
    said = out.getvalue()
    assert said.startswith(summary["verdict"]["headline"])
    assert said.index("Scores on") < said.index("Intervals:") < said.index("Warning: ")
    assert "std. error" not in said and "Left open" not in said


def test_a_card_with_a_colour_says_why(summary):
    wrong = summary["verdict"] | {"tone": "fair", "why": "80% intervals are too wide"}
    beside = {"rmse": 0.2, "rmse_model": 0.4, "better": True}
    page = render_html(summary | {"verdict": wrong, "yardstick": beside})
    assert "Why: 80% intervals are too wide" in page
    assert "Why: gradient boosting is off by 0.200 on the same rows" in page


def test_templates_are_part_of_the_package():
    for package, names in {"widegp.report": ("shell", "parts", "report"), "widegp.paper": ("paper",)}.items():
        folder = resources.files(package).joinpath("templates")
        assert all(folder.joinpath(f"{name}.html").is_file() for name in names)


@pytest.mark.skipif(find_chromium() is None, reason="there is no chromium executable on the path")
def test_a_browser_shows_it_without_error_request_or_overflow(page, summary, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    with Browser(find_chromium(), tmp_path / "profile") as browser:
        for width in (1280, 390):
            browser.open(path, width)
            assert browser.messages() == []
            loaded = [url for url in browser.requests() if not url.startswith("data:")]
            assert loaded == [path.as_uri()]
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert (
                browser.evaluate("document.querySelector('h1').textContent") == summary["verdict"]["headline"]
            )
            drawn = browser.evaluate(
                "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect())"
                ".filter(r => r.width > 100 && r.height > 60 && r.right <= innerWidth).length"
            )
            assert drawn == page.count("<svg")
