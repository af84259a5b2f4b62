"""What the package does where only its core dependencies are installed, and what it says of the others."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from naive_gp import nearest_earlier

from widegp.extras import EXTRA, MissingExtra, missing_words, needed

OPTIONAL = ("numba", "llvmlite", "faiss", "matplotlib", "typer", "rich", "jinja2", "pyarrow", "pandas")
CORE_ONLY = """
import sys, warnings
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
warnings.simplefilter({action!r})
"""


def run(code, blocked=OPTIONAL, action="ignore"):
    """Run ``code`` in a fresh interpreter that finds none of these packages."""
    program = CORE_ONLY.format(blocked=blocked, action=action) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)


def test_the_core_fits_predicts_saves_and_grows(tmp_path):
    code = f"""
import numpy as np
import widegp
rng = np.random.default_rng(0)
X = rng.normal(size=(90, 3))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=90)
settings = {{"approximation": "full-scale", "rank": 10, "neighbors": 5, "max_iter": 2, "random_state": 0}}
model = widegp.WideGPRegressor.plain(**settings, start={{}})
model.fit(X[:80], y[:80]).update(X[80:], y[80:])
model.save({str(tmp_path / "model.widegp")!r})
mean, sd = widegp.load({str(tmp_path / "model.widegp")!r}).predict(X[:4], True)
assert np.isfinite(mean).all() and (sd > 0).all() and model.fitted_.backend == "xla"
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_a_missing_package_is_named_with_its_extra():
    done = run("import widegp\nwidegp.TableModel")
    assert "TableModel cannot be used: pyarrow is not installed; pip install 'widegp[tables]'" in done.stderr
    done = run("import numpy as np\nfrom widegp import plot\nplot._axis(None)")
    assert "matplotlib is not installed; pip install 'widegp[plots]'" in done.stderr


@pytest.mark.parametrize("blocked", ["typer", "rich", "pyarrow"])
def test_the_command_says_in_one_sentence_what_is_missing(blocked, tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,2\n2,3\n")
    call = ["widegp", "fit", str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / "m.widegp")]
    done = run(f"sys.argv = {call!r}\nfrom widegp.cli import main\nmain()", blocked=(blocked,))
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith(f"Error: {blocked}")
    assert f"pip install 'widegp[{EXTRA[blocked]}]'" in done.stderr


def test_without_numba_it_says_that_fits_take_longer():
    done = run(
        "from widegp.compute.backend import choose_backend\nfrom widegp.kernels import Tanh\n"
        "print(choose_backend(Tanh()).name)", ("numba",), "default",
    )  # fmt: skip
    assert done.stdout.strip() == "xla" and "pip install 'widegp[fast]'" in done.stderr


def test_without_faiss_the_search_is_exact(monkeypatch):
    from widegp.neighbors import NeighborIndex
    from widegp.neighbors import nearest_earlier as fast
    from widegp.neighbors.lists import has_faiss

    monkeypatch.setitem(sys.modules, "faiss", None)
    assert not has_faiss()
    points = np.random.default_rng(0).normal(size=(1100, 3))
    np.testing.assert_array_equal(fast(points, 4, "approximate"), nearest_earlier(points, 4))
    found = NeighborIndex(points, "approximate").query(points[:5], 1)[:, 0]
    np.testing.assert_array_equal(found, np.arange(5))


def test_without_numba_trees_say_the_same(monkeypatch):
    from widegp import forests, trees

    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    made = trees.TreesInput.fit(X, X[:, 0] * X[:, 1], 0)
    compiled = made.transform(X)
    monkeypatch.setattr(forests, "COMPILED", False)
    np.testing.assert_allclose(made.transform(X), compiled, rtol=1e-12)


def test_without_numba_inputs_by_rank_are_the_same(monkeypatch):
    from widegp.data import piecewise
    from widegp.data.input_maps import QuantileScaler

    rng = np.random.default_rng(0)
    X = np.column_stack([rng.lognormal(size=300), rng.integers(0, 3, 300), np.full(300, 2.0)])
    new = np.concatenate([X, 2 * X, -X])
    scaler = QuantileScaler.fit(X)
    there, back = scaler.transform(new), scaler.inverse(scaler.transform(new))
    monkeypatch.setattr(piecewise, "COMPILED", False)
    np.testing.assert_array_equal(scaler.transform(new), there)
    np.testing.assert_array_equal(scaler.inverse(there), back)


def test_words_are_of_extras_that_there_are():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert set(EXTRA.values()) <= set(project["optional-dependencies"])
    core = {requirement.split(">")[0] for requirement in project["dependencies"]}
    assert core == {"numpy", "scipy", "jax", "scikit-learn", "safetensors", "threadpoolctl"}
    assert missing_words("torch") is None
    needed("numpy")
    with pytest.raises(MissingExtra, match="numpyroo"):
        EXTRA["numpyroo"] = "sample"
        try:
            needed("numpyroo")
        finally:
            del EXTRA["numpyroo"]
