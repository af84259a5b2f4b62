"""What an import loads: the regressor costs what scikit-learn's base classes cost, and hardly more."""

from __future__ import annotations

import subprocess
import sys

import widegp

HEAVY = {"jax", "jaxlib", "numba", "llvmlite", "pandas", "pyarrow", "faiss", "matplotlib", "optax", "torch"}


def loaded_by(statement: str, before: str = "pass") -> set[str]:
    """Packages that ``statement`` loads in a fresh interpreter that has already executed ``before``."""
    code = f"import sys\n{before}\nold = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {module.split(".")[0] for module in done.stdout.split()}


def test_the_package_alone_loads_nothing_else():
    assert not loaded_by("import widegp") & (HEAVY | {"numpy", "scipy", "sklearn"})


def test_the_regressor_loads_no_compiler_before_it_is_used():
    """scikit-learn itself loads pandas where that is installed; the regressor adds nothing heavy to it."""
    make = "from widegp import WideGPRegressor; WideGPRegressor.plain()"
    assert not loaded_by(make) & (HEAVY - {"pandas", "pyarrow"})
    assert not loaded_by(make, before="import sklearn.base") & HEAVY


def test_the_public_names_and_no_others_are_shown():
    assert set(dir(widegp)) == {*widegp.__all__, "__version__"}
