"""Which kernel a table prefers: tables drawn from one kernel, and words that say how sure it is."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from widegp.compare_kernels import KernelEvidence, compare_kernels, in_words
from widegp.kernels import ReLU, Tanh


def drawn(kernel, n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 1))
    return X, np.linalg.cholesky(np.asarray(kernel(X)) + 0.01 * np.eye(n)) @ rng.standard_normal(n)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel, name", [(ReLU(sigma_u2=1.0), "relu"), (Tanh(sigma_u2=30.0, sigma_v2=3.0), "tanh")]
)
def test_the_kernel_that_drew_the_table_is_preferred(kernel, name):
    found = compare_kernels(*drawn(kernel), kernels=("tanh", "relu"))
    assert found[0].kernel == name and found[0].behind == 0.0
    logs = np.array([one.log_evidence for one in found])
    np.testing.assert_allclose([one.probability for one in found], np.exp(logs - logsumexp(logs)))


def evidences(behind, error=0.02, k=0.3):
    best = KernelEvidence("relu", -10.0, error, k, k < 0.7, 0.0, 1 / (1 + np.exp(-behind)))
    return [best, replace(best, kernel="tanh", log_evidence=-10 - behind, behind=behind, probability=0.1)]


@pytest.mark.parametrize(
    "behind, words", [(0.5, "hardly worth a mention"), (2, "positive"), (4, "strong"), (9, "very strong")]
)
def test_words_follow_the_difference(behind, words):
    told = in_words(evidences(behind))
    assert f"nats ahead of tanh: {words}." in told[1] and "Sampling error" not in told[1]


def test_doubts_are_told():
    told = " ".join(in_words(evidences(0.05, error=0.1, k=0.9)))
    assert "Sampling error could turn their order" in told
    assert "Pareto k is 0.7 or more for relu, tanh" in told
    assert "Pareto" not in " ".join(in_words(evidences(1.0)[:1]))


def test_the_command(tmp_path, capsys, monkeypatch):
    from typer.testing import CliRunner

    from widegp import compare_kernels as module
    from widegp.cli.app import app

    monkeypatch.setattr(module, "compare_kernels", lambda X, y, seed, progress: evidences(2.0))
    X, y = drawn(ReLU(), 20)
    path = tmp_path / "table.csv"
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header="x,y", comments="")
    told = CliRunner().invoke(app, ["compare", str(path), "--target", "y", "--kernels", "--json"])
    assert told.exit_code == 0, told.output
    out = json.loads(told.stdout)
    assert out["rows"] == 20 and [one["kernel"] for one in out["kernels"]] == ["relu", "tanh"]
    shown = CliRunner().invoke(app, ["compare", str(path), "--target", "y", "--kernels"])
    assert "the table prefers relu" in shown.stdout
