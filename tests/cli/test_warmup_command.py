"""``widegp warmup`` compiles all that a fit and its predictions need."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FIT = """
import numpy as np
from widegp import WideGPRegressor
X = np.random.default_rng(0).standard_normal((1200, 3))
for ard in (False, True):
    model = WideGPRegressor.plain(approximation="full-scale", rank=20, neighbors=5, max_iter=1, ard=ard)
    model.fit(X, X[:, 0] + 0.1 * X[:, 1] ** 2).predict(X[:5], return_std=True)
"""


@pytest.mark.slow
def test_after_it_a_fit_compiles_nothing(tmp_path):
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def kept(*command: str) -> tuple[str, set[str]]:
        done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, check=True)
        return done.stdout, {file.name for file in tmp_path.rglob("*.nbc")}

    told, compiled = kept("-m", "widegp.cli", "warmup")
    assert "once for this processor" in told
    assert compiled and kept("-c", FIT)[1] == compiled
