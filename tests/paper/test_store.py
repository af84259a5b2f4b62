"""Results are computed once per settings, and written whole or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from widegp.paper.store import Store
from widegp.progress import Progress


@pytest.fixture
def store(tmp_path):
    told: list[Progress] = []
    made = Store(tmp_path, told.append)
    made.told = told
    return made


def test_a_result_is_computed_once(store):
    calls = []

    def compute():
        calls.append(1)
        return {"x": np.float64(1.5), "y": np.arange(3), "bad": float("nan")}

    first = store.result("part/one", {"seed": 0}, compute)
    assert first == {"x": 1.5, "y": [0, 1, 2], "bad": None}
    assert Store(store.folder).result("part/one", {"seed": 0}, compute) == first
    assert len(calls) == 1 and [event.stage for event in store.told] == ["part/one"]
    store.result("part/one", {"seed": 1}, compute)
    assert len(calls) == 2


def test_arrays_come_back_as_they_were(store):
    y = np.random.default_rng(0).normal(size=(5, 2))
    store.arrays("draws", {"n": 5}, lambda: {"y": y, "noise": np.array(0.1)})
    again = store.arrays("draws", {"n": 5}, lambda: pytest.fail("computed twice"))
    assert set(again) == {"y", "noise"} and np.array_equal(again["y"], y)


def test_an_interrupted_result_leaves_nothing_behind(store):
    def interrupted():
        raise KeyboardInterrupt

    for ask in (store.result, store.arrays):
        with pytest.raises(KeyboardInterrupt):
            ask("part/two", {}, interrupted)
    assert not [path for path in store.folder.rglob("*") if path.is_file()]
