"""Tests that are known to fail, each a debt: they run, and are reported as expected failures."""

from __future__ import annotations

import pytest

KNOWN = {
    "test_page_does_what_it_says[metric]": "the page was written before the rules of the choices changed",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name in KNOWN:
            item.add_marker(pytest.mark.xfail(reason=KNOWN[item.name], strict=False))
