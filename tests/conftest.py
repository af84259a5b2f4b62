"""For all tests."""

from __future__ import annotations

import gc

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and the list of tests stay to the end: collections of garbage need not look through them."""
    gc.collect()
    gc.freeze()
