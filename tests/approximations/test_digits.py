"""Anchors that nearly repeat each other: raw sums would lose all digits, sums of features keep them."""

from __future__ import annotations

from dataclasses import replace

import jax
import naive_gp
import numpy as np
import pytest

from widegp.approximations import family as family_module
from widegp.approximations.build import Builder
from widegp.approximations.evaluation import Observed
from widegp.approximations.layout import Dials
from widegp.compute.backend import choose_backend
from widegp.compute.native import NativeBackend
from widegp.compute.xla import XlaBackend
from widegp.kernels import Mixed

# Slow variation and a large signal: the kernel matrix of the anchors is nearly singular.
SMOOTH = Mixed(sigma_a2=0.5, sigma_u2=0.02, sigma_b2=1.0, sigma_v2=200.0, alpha=0.9, w=0.8)
NOISE = 0.01


def table(n=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)


def likelihood(name, backend, X, rank=60):
    builder = Builder(X, Dials(name, rank, 0, "random", "random", 64), choose_backend(SMOOTH, backend), 0)
    with builder.backend.scope():
        return builder, builder.build(SMOOTH)


@pytest.mark.parametrize("backend", ["native", "xla"])
@pytest.mark.parametrize("name", ["vfe", "dtc"])
def test_value_and_gradient_are_those_of_the_dense_formula(name, backend):
    X, y = table()
    builder, family = likelihood(name, backend, X)
    with builder.backend.scope():
        model = family.model(SMOOTH, NOISE)
        assert family.rule(model, Observed(y, NOISE)).whitened
        out = family.evaluate(SMOOTH, Observed(y, NOISE))
    none = np.zeros((len(X), 0), int)
    value, gradient = naive_gp.value_and_gradient(
        lambda kernel, noise: naive_gp.family_nll(name, kernel, noise, X, y, family.Z, none, out.jitter),
        SMOOTH,
        NOISE,
    )
    assert out.value == pytest.approx(value, rel=1e-6)
    for parameter, slope in gradient.items():
        assert out.gradient[parameter] == pytest.approx(slope, rel=2e-4, abs=1e-3), parameter


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("backend", ["native", "xla"])
def test_both_kinds_of_sums_agree_where_raw_ones_keep_their_digits(backend, kept, monkeypatch):
    if not kept:
        for kind in (NativeBackend, XlaBackend):
            monkeypatch.setattr(kind, "keep_bytes", 0)
    X, y = table()
    spread = np.random.default_rng(3).uniform(0.5, 2.0, size=len(y))
    kernel, answers = Mixed(sigma_u2=1.0), []
    observed = Observed(y, 0.1, spread)
    for digits in (family_module.DIGITS, 0.0):
        monkeypatch.setattr(family_module, "DIGITS", digits)
        builder, family = likelihood("vfe", backend, X, rank=20)
        with builder.backend.scope():
            assert family.rule(family.model(kernel, 0.1), observed).whitened is (digits == 0.0)
            out = family.evaluate(kernel, observed, by_row=True)
            further = out.by_row._asdict() | {"beta": family.posterior(kernel, observed).beta}
            answers.append(replace(out, gradient=out.gradient | further))
    raw, whitened = answers
    assert raw.value == pytest.approx(whitened.value, rel=1e-10)
    for parameter, slope in raw.gradient.items():
        np.testing.assert_allclose(slope, whitened.gradient[parameter], rtol=1e-6, atol=1e-8)


class Fussy(NativeBackend):
    """Factors nothing whose smallest eigenvalue is below 1e-7 of its mean diagonal."""

    def cholesky(self, matrix):
        smallest = np.linalg.eigvalsh(matrix)[0]
        if smallest < 1e-7 * np.mean(np.diag(matrix)):
            return np.full_like(matrix, np.nan)
        return super().cholesky(matrix)


def test_a_likelihood_with_a_value_keeps_its_jitter():
    X, y = table()
    rough, observed = Mixed(sigma_u2=20.0, w=0.1), Observed(y, NOISE)
    builder = Builder(X, Dials("vfe", 60, 0, "random", "random", 64), Fussy(), 0)
    with builder.backend.scope():
        fresh = builder.build(SMOOTH)
        assert fresh.evaluate(SMOOTH, observed).jitter >= 1e-7
        settled = builder.build(rough)
        first = settled.evaluate(rough, observed)
        assert first.problem is None and first.jitter < 1e-7
        # What would need more jitter is no longer a value of the same function.
        assert settled.evaluate(SMOOTH, observed).problem is not None
        assert settled.evaluate(rough, observed).value == first.value


def test_raw_sums_where_they_suffice():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 50))
    builder, family = likelihood("vfe", "native", X, rank=40)
    with builder.backend.scope(), jax.enable_x64(True):
        model = family.model(Mixed(sigma_u2=1 / 50), 0.1)
        assert not family.rule(model, Observed(np.zeros(500), 0.1)).whitened
