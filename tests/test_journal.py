"""A fit that is killed and called again ends with the answer of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from widegp import WideGPRegressor, load
from widegp.inference.journal import Journal, JournalError, evaluations, fingerprint
from widegp.inference.objective import Answer, MapObjective

SETTINGS = {
    "ard, neighbours": {
        "approximation": "full-scale", "rank": 20, "neighbors": 5, "ard": True, "max_iter": 25,
    },
    "warp": {"approximation": "vfe", "rank": 15, "target_transform": "auto", "max_iter": 25},
    "adam on batches": {
        "approximation": "fitc", "rank": 15, "optimizer": "adam", "max_iter": 30, "batch_rows": 40,
        "learning_rate": 0.05,
    },
    "exact with a budget": {"budget": 1000.0, "max_iter": 20},
}  # fmt: skip


def table(n: int = 160) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 4))
    return X, np.exp(np.sin(X[:, 0]) + 0.3 * X[:, 1]) + 0.1 * rng.normal(size=n) ** 2


def interrupted(monkeypatch: pytest.MonkeyPatch, model: WideGPRegressor, after: int) -> None:
    """Fit until the evaluation after the given number of them, which a kill then never finishes."""
    original, seen = MapObjective.__call__, iter(range(10**6))

    def evaluate(self: MapObjective, z: np.ndarray) -> Answer:
        if next(seen) >= after:
            raise KeyboardInterrupt
        return original(self, z)

    with monkeypatch.context() as patch:
        patch.setattr(MapObjective, "__call__", evaluate)
        with pytest.raises(KeyboardInterrupt):
            model.fit(*table())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", SETTINGS)
def test_an_interrupted_fit_goes_on_to_the_same_answer(name, tmp_path, monkeypatch):
    X, y = table()
    whole = WideGPRegressor.plain(**SETTINGS[name], random_state=3).fit(X, y)
    model = WideGPRegressor.plain(**SETTINGS[name], random_state=3, checkpoint=tmp_path / "fit.journal")
    for after in (0, 1, 13, 9):
        interrupted(monkeypatch, model, after)
    assert len((tmp_path / "fit.journal").read_bytes().splitlines()) >= 1 + 1 + 13 + 9
    model.fit(X, y)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))
    assert model.result_.path == whole.result_.path
    assert model.result_.standard_errors == whole.result_.standard_errors


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_finished_fit_is_remembered_whole(tmp_path, monkeypatch):
    X, y = table()
    model = WideGPRegressor.plain(
        max_iter=60, random_state=0, checkpoint=tmp_path / "j", approximation="vfe", rank=10
    )
    mean = model.fit(X, y).predict(X)
    # Past the iterations of L-BFGS, that is through the differences too.
    assert model.n_iter_ >= 20 and model.result_.converged
    monkeypatch.setattr(MapObjective, "__call__", lambda self, z: pytest.fail("evaluated again"))
    np.testing.assert_array_equal(model.fit(X, y).predict(X), mean)


def test_a_line_cut_anywhere_is_dropped_and_the_rest_kept(tmp_path):
    path = tmp_path / "j"
    journal = Journal.open(path, "abc")
    for k in range(4):
        journal.answer(np.array([0.1 * k, 1 / 3]), lambda z: (z.sum(), 2 * z, 1e-9, None))
    text = path.read_bytes()
    assert evaluations(path) == 4
    for cut in range(len(text)):
        path.write_bytes(text[:cut])
        assert evaluations(path) == max(0, text[:cut].count(b"\n") - 1)
        again = Journal.open(path, "abc")
        kept = len(again.entries)
        assert kept == max(0, text[:cut].count(b"\n") - 1)
        for k in range(kept):
            value, gradient, jitter, problem = again.answer(np.array([0.1 * k, 1 / 3]), pytest.fail)
            assert value == np.array([0.1 * k, 1 / 3]).sum() and jitter == 1e-9 and problem is None
            np.testing.assert_array_equal(gradient, 2 * np.array([0.1 * k, 1 / 3]))


def test_another_path_is_not_answered_from_the_old_one(tmp_path):
    journal = Journal.open(tmp_path / "j", "abc")
    for k in range(3):
        journal.answer(np.array([float(k)]), lambda z: (z[0], z, 0.0, None))
    again = Journal.open(tmp_path / "j", "abc")
    again.answer(np.array([0.0]), pytest.fail)
    assert again.answer(np.array([7.0]), lambda z: (42.0, z, 0.0, "no"))[0] == 42.0
    assert [e["z"] for e in Journal.open(tmp_path / "j", "abc").entries] == [[0.0], [7.0]]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_journal_of_another_fit_is_refused(tmp_path):
    X, y = table(40)
    settings = {"approximation": "exact", "max_iter": 1, "random_state": 0, "checkpoint": tmp_path / "j"}
    WideGPRegressor.plain(**settings).fit(X, y)
    with pytest.raises(JournalError, match="another table or with other settings"):
        WideGPRegressor.plain(**settings).fit(X, y + 1e-9)
    with pytest.raises(JournalError, match="another table or with other settings"):
        WideGPRegressor.plain(**settings | {"max_iter": 2}).fit(X, y)
    for known in ({"sample_weight": np.full(40, 2.0)}, {"noise_variance": 0.1}):
        with pytest.raises(JournalError, match="another table or with other settings"):
            WideGPRegressor.plain(**settings).fit(X, y, **known)
    (tmp_path / "text").write_text("dear diary\n")
    with pytest.raises(JournalError, match="not a checkpoint"):
        WideGPRegressor.plain(**settings | {"checkpoint": tmp_path / "text"}).fit(X, y)
    assert (tmp_path / "text").read_text() == "dear diary\n"
    with pytest.raises(JournalError, match="folder"):
        WideGPRegressor.plain(**settings | {"checkpoint": tmp_path}).fit(X, y)


def test_the_fingerprint_sees_values_shapes_and_settings():
    a = np.arange(6.0)
    prints = {
        fingerprint({"rank": 5}, a), fingerprint({"rank": 6}, a), fingerprint({"rank": 5}, a.reshape(2, 3)),
        fingerprint({"rank": 5}, a.astype(np.float32)), fingerprint({"rank": 5}, a[:3], a[3:]),
    }  # fmt: skip
    assert len(prints) == 5


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_nothing(tmp_path):
    """SIGKILL at random times, over a fit and the saves that follow it."""
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); sys.path.insert(0, sys.argv[1])\n"
        "from widegp import WideGPRegressor; from test_journal import table\n"
        "model = WideGPRegressor.plain(approximation='full-scale', rank=30, neighbors=8, ard=True,"
        " random_state=1,"
        " checkpoint=sys.argv[2] or None).fit(*table(900))\n"
        "for _ in range(50): model.save(sys.argv[3])\n"
    )

    def start(journal: str, out: str) -> subprocess.Popen:
        here = os.path.dirname(__file__)
        return subprocess.Popen([sys.executable, "-c", code, here, journal, str(tmp_path / out)])

    began = time.perf_counter()
    assert start("", "whole").wait() == 0
    duration = time.perf_counter() - began
    rng = np.random.default_rng(0)
    for _ in range(20):
        process = start(str(tmp_path / "j"), "killed")
        time.sleep(duration * rng.uniform(0.2, 1.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (tmp_path / "killed").exists():
            load(tmp_path / "killed")
    assert start(str(tmp_path / "j"), "killed").wait() == 0
    X, _ = table(900)
    np.testing.assert_array_equal(load(tmp_path / "killed").predict(X), load(tmp_path / "whole").predict(X))
