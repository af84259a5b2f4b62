"""What every likelihood must do everywhere: all names of the registry, with targets that each draws itself.

A likelihood is asked for by name alone, and whoever asks finds out by himself what kind of target it makes.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from io import StringIO

import numpy as np
import pyarrow as pa
import pytest
from naive_gp import evaluated, nystrom_part
from naive_laplace import mode_and_evidence
from rich.console import Console
from scipy import stats

from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.approximations.registry import APPROXIMATIONS
from widegp.cli.output import summary_of
from widegp.compute.backend import choose_backend
from widegp.inference.latent import RowNoise
from widegp.kernels import Mixed
from widegp.laplace import Response, evidence, find_mode
from widegp.likelihoods import NAMES, make_likelihood
from widegp.report import headline, render_html, render_terminal
from widegp.report.parameters import describe_parameters
from widegp.table_model import TableModel

N, I, R, M = 24, 3, 5, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, I))
OFFSET, WEIGHT = 0.1, RNG.integers(1, 4, N).astype(float)
KERNEL = Mixed(sigma_u2=0.5, sigma_v2=3.0)

every_name = pytest.mark.parametrize("name", NAMES)
every_approximation = pytest.mark.parametrize("approximation", ["exact", "vfe", "full-scale"])
# Approximations have reports in tests/kernels/test_conformance.py; whole fits by XLA compile for seconds.
exact_quickly = pytest.mark.parametrize(
    "approximation", ["exact", *(pytest.param(a, marks=pytest.mark.slow) for a in ("vfe", "full-scale"))]
)
every_backend = pytest.mark.parametrize("backend", ["native", "xla"])


@cache
def covariance():
    return evaluated(lambda kernel: kernel(X), KERNEL)


def seen(name):
    likelihood, rng = make_likelihood(name), np.random.default_rng(1)
    f = np.linalg.cholesky(covariance() + 1e-8 * np.eye(N)) @ rng.normal(size=N)
    return Response(likelihood, likelihood.sample(f, rng), OFFSET, WEIGHT)


@cache
def built(approximation, backend):
    """With all rows before it a row of "full-scale" has all there is to know: C is K + N."""
    neighbors = N - 1 if APPROXIMATIONS[approximation].neighbors else 0
    dials = Dials(approximation, R, neighbors, "kmeans", "random", None)
    engine = choose_backend(KERNEL, backend)
    with engine.scope():
        return Builder(X, dials, engine, 0).build(KERNEL)


def dense_answer(response, approximation, Z):
    """Mode and evidence from n x n matrices; the bound takes off half of what the anchors miss, over N."""
    K = covariance()
    if approximation != "vfe":
        return mode_and_evidence(K, response.likelihood, response.y, OFFSET, WEIGHT)
    Q = evaluated(nystrom_part, KERNEL, X, Z, 1e-10)
    f, value = mode_and_evidence(Q, response.likelihood, response.y, OFFSET, WEIGHT)
    missed = np.diag(K - Q) * WEIGHT * response.likelihood.terms(response.y, f + OFFSET).W
    return f, value + 0.5 * missed.sum()


@every_name
@every_approximation
@every_backend
def test_mode_and_evidence_are_those_of_a_dense_matrix(name, approximation, backend):
    response, rows = seen(name), built(approximation, backend)
    with rows.backend.scope():
        mode = find_mode(RowNoise(rows, KERNEL), response)
    f, value = dense_answer(response, approximation, getattr(rows, "Z", None))
    assert mode.problem is None
    assert mode.value == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(mode.f, f, atol=1e-5)


@every_name
@every_approximation
@every_backend
def test_derivatives_of_the_evidence_are_those_of_differences(name, approximation, backend):
    """By a parameter of the kernel and by those of the likelihood, through the mode."""
    response, rows = seen(name), built(approximation, backend)
    psi = response.likelihood.psi
    with rows.backend.scope():
        found = evidence(RowNoise(rows, KERNEL), response, None, 1e-9)

        def value(kernel_step, psi_step):
            kernel = KERNEL.replace(sigma_v2=KERNEL.sigma_v2 + kernel_step)
            moved = replace(response, likelihood=response.likelihood.with_psi(psi + psi_step))
            return find_mode(RowNoise(rows, kernel), moved, found.mode.f, 1e-11).value

        def slope(kernel_step, psi_step):
            return (value(kernel_step, psi_step) - value(-kernel_step, -psi_step)) / 2e-4

        numeric = slope(1e-4, 0.0)
        assert float(found.gradient["sigma_v2"]) == pytest.approx(numeric, rel=1e-5, abs=1e-5)
        for k, step in enumerate(1e-4 * np.eye(psi.size)):
            assert found.by_psi[k] == pytest.approx(slope(0.0, step), rel=1e-5, abs=1e-5)


def table(name, n=90, seed=2):
    """Numbers of three columns of which the first counts most, the f that they make, and a draw given it."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, size=(n, I))
    f = 2.5 * rows[:, 0] + 0.5 * rows[:, 1] ** 2
    columns = dict(zip(("first", "second", "third"), rows.T, strict=True))
    return pa.table(columns | {"target": make_likelihood(name).sample(f, rng)}), f


@pytest.fixture(scope="module", autouse=True)
def coarse():
    """Columns are shuffled and scores integrated in passing: few steps are enough for that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("widegp.importance.PREDICTIONS", 200)
        patch.setattr("widegp.importance.PREDICTIONS_SLOW", 200)
        patch.setattr("widegp.response_predictive.CRPS_POINTS", 17)
        patch.setattr("widegp.response_predictive.CRPS_LEVELS", (np.arange(10) + 0.5) / 10)
        yield


@cache
def fitted(name, approximation, backend):
    """By way of a table, which knows which estimator suits which likelihood."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TableModel.fit(
            table(name)[0], "target", likelihood=name, approximation=approximation, backend=backend, rank=R,
            neighbors=M, predict_neighbors=2 * M, max_iter=3, metric="iso", noise="constant", trees="none",
            scale_inputs="standard", target_transform=None, posterior="map", test_fraction=0.4,
            yardstick=False,
        )  # fmt: skip


def predicted(model, rows):
    """What is written beside the rows of a table: moments and intervals, or classes and probabilities."""
    return {key: np.asarray(values) for key, values in model.predict_columns(rows).columns.items()}


def guess(columns):
    """What grows with f: the mean, or the probability of the last class."""
    return columns["mean"] if "mean" in columns else [v for k, v in columns.items() if "probability" in k][-1]


@every_name
@every_approximation
def test_a_fit_survives_its_file_to_the_bit(name, approximation, tmp_path):
    model, (rows, f) = fitted(name, approximation, "native"), table(name, seed=3)
    model.save(tmp_path / "model.widegp")
    loaded = TableModel.load(tmp_path / "model.widegp")
    ours, theirs = (predicted(one, rows) for one in (model, loaded))
    assert list(ours) == list(theirs) and all(ours[key].tobytes() == theirs[key].tobytes() for key in ours)
    assert loaded.parts[0].likelihood == model.parts[0].likelihood
    assert stats.spearmanr(guess(ours), f).statistic > 0.8


@every_name
@exact_quickly
def test_both_backends_fit_the_same_model(name, approximation):
    rows, _ = table(name, seed=3)
    native, xla = (guess(predicted(fitted(name, approximation, which), rows)) for which in ("native", "xla"))
    np.testing.assert_allclose(xla, native, rtol=1e-5)


@every_name
@exact_quickly
def test_a_fit_is_explained_and_reported(name, approximation):
    model = fitted(name, approximation, "native")
    summary = summary_of(model, explained=True)
    told = summary["explanation"]["inputs"]
    assert max(told, key=lambda column: column["effect"])["name"] == "first"
    screen = Console(file=StringIO(), width=110)
    render_terminal(summary, screen, verbose=True)
    page, said = render_html(summary), " ".join(screen.file.getvalue().split())
    assert headline(summary) in said
    assert all(column["name"] in page for column in told)
    if model.classes is None:
        entries = {entry["name"]: entry for entry in describe_parameters(model.regressor)}
        assert entries.keys() == model.regressor.params_.keys()
        assert all(entry["title"] and entry["meaning"] for entry in entries.values())
