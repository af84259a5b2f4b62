"""Every member of the family against a dense covariance matrix and its derivatives."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from naive_gp import family_nll, gaussian_nll, log_det, nearest_earlier, value_and_gradient

from widegp.approximations.build import Builder
from widegp.approximations.dense import Dense
from widegp.approximations.evaluation import Observed
from widegp.approximations.family import Family, FamilyApproximation
from widegp.approximations.layout import Dials
from widegp.approximations.nystrom import Nystrom
from widegp.approximations.registry import APPROXIMATIONS, approximation
from widegp.compute.backend import choose_backend
from widegp.engines.blocks import BlockedRows
from widegp.engines.local import LocalEngine
from widegp.kernels import RBF, Mixed, Mixture, ReLU
from widegp.prediction import make_predictor

N, I, R, M = 22, 3, 5, 4
NOISE = 0.13
NAMES = {name: member for name, member in APPROXIMATIONS.items() if isinstance(member, FamilyApproximation)}
WITH_NEIGHBORS = [name for name, member in NAMES.items() if member.neighbors]
ANCHORS_ALONE = [name for name in NAMES if name not in WITH_NEIGHBORS]


def table(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, I))
    X[9] = X[4]  # duplicate rows are legitimate
    return X, rng.normal(size=N), rng.normal(size=(R, I))


def build(name, X, y, Z, neighbors, backend="native", block_rows=N):
    member, engine = NAMES[name], choose_backend(Mixed(), backend)
    used = neighbors.shape[1] if member.neighbors else 0
    rows = BlockedRows.cut(X, y, neighbors[:, :used], block_rows, engine.pads)
    return Family(name, member.rule, rows, Z if member.anchors != "none" else Z[:0], engine, LocalEngine())


def evaluate(likelihood, kernel, y, spread=None, by_row=False):
    with likelihood.backend.scope():
        return likelihood.evaluate(kernel, Observed(y, NOISE, spread), by_row)


KERNELS = [
    Mixed(sigma_a2=0.7, sigma_u2=0.4, sigma_b2=0.3, sigma_v2=1.7, alpha=0.2, w=0.6),
    Mixed(sigma_u2=np.array([0.1, 0.9, 0.4]), w=0.3),
    Mixture(["tanh", "sigmoid", "relu"], [0.2, 0.3, 0.5], sigma_u2=0.5),
    ReLU(sigma_u2=0.5),
]


@cache
def naive_family(name, which):
    X, y, Z = table()
    family = build(name, X, y, Z, nearest_earlier(X, M))

    def nll(kernel, noise):
        return family_nll(name, kernel, noise, X, y, family.Z, family.rows.neighbors)

    return value_and_gradient(nll, KERNELS[which], NOISE)


# XLA takes seconds to compile each pair: every member and every kernel is quick once. The kernel with one
# variance per input goes through every member where blocks are cut.
IDS = ["mixed", "ard", "mixture", "relu"]
XLA = {
    "sor": "mixed", "dtc": "mixture", "vfe": "mixed", "fitc": "relu", "vecchia": "mixed",
    "full-scale": "mixture",
}  # fmt: skip
PAIRS = [
    pytest.param(
        name, which, backend, id=f"{name}-{kernel}-{backend}",
        marks=pytest.mark.slow if backend == "xla" and kernel != XLA.get(name, "mixed") else (),
    )
    for name in NAMES for which, kernel in enumerate(IDS) for backend in ("native", "xla")
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "backend"), PAIRS)
def test_value_and_gradient_agree_with_the_dense_matrix(name, which, backend):
    X, y, Z = table()
    family = build(name, X, y, Z, nearest_earlier(X, M), backend)
    value, gradient = naive_family(name, which)
    ours = evaluate(family, KERNELS[which], y)
    assert ours.value == pytest.approx(value, rel=1e-8)
    scale = max(np.abs(g).max() for g in gradient.values())
    for parameter, expected in gradient.items():
        np.testing.assert_allclose(ours.gradient[parameter], expected, rtol=1e-6, atol=1e-8 * scale)


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_exact_agrees_with_the_dense_matrix(backend):
    X, y, _ = table()
    kernel = KERNELS[1]
    value, gradient = value_and_gradient(
        lambda k, s: gaussian_nll(y, k(X) + s * np.eye(N)), kernel, NOISE
    )
    ours = evaluate(Dense(X, choose_backend(kernel, backend)), kernel, y)
    assert ours.value == pytest.approx(value, rel=1e-11)
    for parameter, expected in gradient.items():
        np.testing.assert_allclose(ours.gradient[parameter], expected, rtol=1e-8)


def literal_nystrom(X, y, kept, jitter=1e-10):
    """Eq. (nystrom_noise) with pseudo-inverse and pseudo-determinant, from the n x n matrix itself."""

    def nll(kernel, noise):
        noisy = kernel(X) + noise * np.eye(N)
        anchors = noisy[np.ix_(kept, kept)]
        anchors = anchors + jitter * np.mean(np.diag(anchors) - noise) * np.eye(len(kept))
        C = noisy[:, kept]
        C[kept] = anchors
        # With B = C L^-T, LL' = anchors: |G^-1 B'y|^2 and log det G for G = B'B, without the root L.
        u = np.linalg.solve(C.T @ C, C.T @ y)
        determinant = log_det(C.T @ C) - log_det(anchors)
        return 0.5 * (u @ anchors @ u + determinant + N * np.log(2 * np.pi))

    return nll


@pytest.mark.parametrize("kernel", KERNELS[:2], ids=["iso", "ard"])
def test_literal_nystrom(kernel):
    X, y, _ = table()
    kept = np.array([0, 3, 7, 11, 20])
    rest = np.setdiff1d(np.arange(N), kept)
    backend = choose_backend(kernel, "native")
    rows = BlockedRows.cut(X[rest], y[rest], np.zeros((len(rest), 0), int), 9)
    ours = Nystrom(rows, kept, rest, X[kept], backend, LocalEngine()).evaluate(kernel, Observed(y, NOISE))
    value, gradient = value_and_gradient(literal_nystrom(X, y, kept), kernel, NOISE)
    assert ours.value == pytest.approx(value, rel=1e-9)
    for parameter, expected in gradient.items():
        np.testing.assert_allclose(ours.gradient[parameter], expected, rtol=1e-6, atol=1e-8)


def test_pseudo_inverse_is_what_the_literal_formula_needs():
    """|G^-1 B'y|^2 and logdet G are numpy's pinv quadratic form and the product of nonzero eigenvalues."""
    X, y, _ = table()
    kept = np.array([0, 3, 7])
    kernel = KERNELS[0]
    noisy = np.asarray(kernel(X)) + NOISE * np.eye(N)
    approx = noisy[:, kept] @ np.linalg.solve(noisy[np.ix_(kept, kept)], noisy[kept])
    eigenvalues = np.linalg.eigvalsh(approx)[-3:]
    expected = 0.5 * (y @ np.linalg.pinv(approx, rcond=1e-10, hermitian=True) @ y + np.log(eigenvalues).sum())
    rest = np.setdiff1d(np.arange(N), kept)
    rows = BlockedRows.cut(X[rest], y[rest], np.zeros((len(rest), 0), int), N)
    ours = Nystrom(rows, kept, rest, X[kept], choose_backend(kernel, "native"), LocalEngine())
    value = ours.evaluate(kernel, Observed(y, NOISE)).value - 0.5 * N * np.log(2 * np.pi)
    assert value == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(
    ("block_rows", "backend"),
    [(5, "native"), (16, "native"), (5, "xla"), pytest.param(16, "xla", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("name", NAMES)
def test_block_size_does_not_matter(name, block_rows, backend):
    X, y, Z = table()
    neighbors = nearest_earlier(X, M)
    whole = evaluate(build(name, X, y, Z, neighbors), KERNELS[1], y)
    cut = evaluate(build(name, X, y, Z, neighbors, backend, block_rows), KERNELS[1], y)
    assert cut.value == pytest.approx(whole.value, rel=1e-9)
    for parameter, expected in whole.gradient.items():
        np.testing.assert_allclose(cut.gradient[parameter], expected, rtol=1e-7, atol=1e-8)


SPREAD = np.random.default_rng(8).uniform(0.3, 3.0, size=N)


def any_likelihood(name, backend="native"):
    """As a fit has it built: of whatever stands in the registry."""
    chosen = choose_backend(Mixed(), backend)
    builder = Builder(table()[0], Dials(name, R, M, "random", "random", 8), chosen, 0)
    with chosen.scope():
        return builder.build(KERNELS[0])


@pytest.mark.parametrize("name", NAMES)
def test_noise_that_differs_by_row_agrees_with_the_dense_matrix(name):
    X, y, Z = table()
    family = build(name, X, y, Z, nearest_earlier(X, M))

    def nll(kernel, noise):
        return family_nll(name, kernel, noise * SPREAD, X, y, family.Z, family.rows.neighbors)

    value, gradient = value_and_gradient(nll, KERNELS[1], NOISE)
    ours = evaluate(family, KERNELS[1], y, SPREAD)
    assert ours.value == pytest.approx(value, rel=1e-8)
    scale = max(np.abs(g).max() for g in gradient.values())
    for parameter, expected in gradient.items():
        np.testing.assert_allclose(ours.gradient[parameter], expected, rtol=1e-6, atol=1e-8 * scale)


# Native code takes all members; by XLA those that stand for the others are quick: no neighbours, all, dense.
BY_ROW = [(name, "native") for name in APPROXIMATIONS] + [
    pytest.param(name, "xla", marks=() if name in ("vfe", "full-scale", "exact") else pytest.mark.slow)
    for name in APPROXIMATIONS
]


@pytest.mark.parametrize(("name", "backend"), BY_ROW)
def test_derivatives_by_the_target_and_the_noise_of_each_row(name, backend):
    """dF/dy_i and spread_i dF/dspread_i by central differences, of every row."""
    _, y, _ = table()
    likelihood = any_likelihood(name, backend)
    whole = evaluate(likelihood, KERNELS[0], y, SPREAD, by_row=True)
    bars = whole.by_row
    with likelihood.backend.scope():
        alone = likelihood.evaluate(KERNELS[0], Observed(y, NOISE, SPREAD), by_row=True, gradient=False)
    assert alone.value == pytest.approx(whole.value, rel=1e-12)
    for ours, expected in zip(alone.by_row, bars, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-11)
    step = 1e-5
    for i in range(0, N, 3):
        e = np.eye(N)[i] * step
        up, down = (evaluate(likelihood, KERNELS[0], y + s * e, SPREAD).value for s in (1, -1))
        assert bars.y[i] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-6)
        up, down = (evaluate(likelihood, KERNELS[0], y, SPREAD * np.exp(s * e)).value for s in (1, -1))
        assert bars.spread[i] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", APPROXIMATIONS)
def test_a_common_factor_of_the_spread_is_a_factor_of_the_noise(name):
    _, y, _ = table()
    likelihood = any_likelihood(name)
    with likelihood.backend.scope():
        once = likelihood.evaluate(KERNELS[0], Observed(y, NOISE, 4.0 * SPREAD))
        other = likelihood.evaluate(KERNELS[0], Observed(y, 4.0 * NOISE, SPREAD))
    assert once.value == pytest.approx(other.value, rel=1e-12)
    assert once.gradient["sigma_eps2"] == pytest.approx(4.0 * other.gradient["sigma_eps2"], rel=1e-9)


class TestEquivalences:
    def test_anchors_equal_to_data_give_the_exact_likelihood(self):
        X, y, _ = table()
        X = X + 0.01 * np.random.default_rng(1).normal(size=X.shape)
        exact = evaluate(Dense(X, choose_backend(Mixed(), "native")), KERNELS[0], y)
        for name in ANCHORS_ALONE:
            ours = evaluate(build(name, X, y, X, nearest_earlier(X, M)), KERNELS[0], y)
            assert ours.value == pytest.approx(exact.value, rel=1e-6), name
            for parameter, expected in exact.gradient.items():
                np.testing.assert_allclose(ours.gradient[parameter], expected, rtol=1e-4, atol=1e-4)

    def test_all_earlier_rows_as_neighbours_give_the_exact_likelihood(self):
        X, y, Z = table()
        exact = evaluate(Dense(X, choose_backend(Mixed(), "native")), KERNELS[0], y)
        neighbors = nearest_earlier(X, N - 1)
        for name in WITH_NEIGHBORS:
            ours = evaluate(build(name, X, y, Z, neighbors), KERNELS[0], y)
            assert ours.value == pytest.approx(exact.value, rel=1e-8)
            for parameter, expected in exact.gradient.items():
                np.testing.assert_allclose(ours.gradient[parameter], expected, rtol=1e-6, atol=1e-8)

    def test_full_scale_without_neighbours_is_fitc_and_without_anchors_vecchia(self):
        X, y, Z = table()
        neighbors = nearest_earlier(X, M)
        fitc = evaluate(build("fitc", X, y, Z, neighbors), KERNELS[0], y)
        assert evaluate(build("full-scale", X, y, Z, neighbors[:, :0]), KERNELS[0], y).value == fitc.value
        vecchia = evaluate(build("vecchia", X, y, Z, neighbors), KERNELS[0], y)
        assert evaluate(build("full-scale", X, y, Z[:0], neighbors), KERNELS[0], y).value == vecchia.value

    def test_the_bound_loses_against_the_exact_likelihood_and_against_dtc(self):
        X, y, Z = table()
        neighbors = nearest_earlier(X, M)
        exact = evaluate(Dense(X, choose_backend(Mixed(), "native")), KERNELS[0], y).value
        dtc, vfe = (evaluate(build(name, X, y, Z, neighbors), KERNELS[0], y).value for name in ("dtc", "vfe"))
        # The bound adds a trace to what dtc has: its loss lies above both the exact one and dtc's.
        assert vfe > exact
        assert vfe > dtc


@pytest.mark.parametrize("name", ["dtc", "vfe"])
def test_predictions_keep_the_variance_that_the_anchors_leave_over(name):
    """The textbook: E f* = K*z S Kzx y / noise, Var f* = K** - Q** + K*z S Kz*, with
    S = (Kzz + Kzx Kxz / noise)^-1.

    Without K** - Q** intervals far from the anchors are as narrow as among them.
    """
    (X, y, Z), kernel = table(), KERNELS[0]
    likelihood = build(name, X, y, Z, nearest_earlier(X, M))
    with likelihood.backend.scope():
        posterior = likelihood.posterior(kernel, Observed(y, NOISE))
    new = 3 * np.random.default_rng(1).normal(size=(6, I))
    mean, variance = make_predictor(posterior, None).predict(new)
    Kzz, Kzx, Kzn = (np.asarray(kernel(Z, other)) for other in (Z, X, new))
    S = np.linalg.inv(Kzz + Kzx @ Kzx.T / NOISE)
    left_over = np.diag(kernel(new)) - np.einsum("ij,ij->j", Kzn, np.linalg.solve(Kzz, Kzn))
    np.testing.assert_allclose(mean, Kzn.T @ S @ Kzx @ y / NOISE, rtol=1e-6)
    np.testing.assert_allclose(variance, left_over + np.einsum("ij,ij->j", Kzn, S @ Kzn), rtol=1e-6)
    assert np.all(left_over > variance / 3)


def test_a_hopeless_matrix_is_a_named_failure_not_a_nan():
    X, y, _ = table()
    Z = np.zeros((5, I))
    kernel = Mixed(sigma_b2=-9.0)
    result = evaluate(build("vfe", X, y, Z, nearest_earlier(X, M)), kernel, y)
    assert result.value == np.inf and "Cholesky" in result.problem


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_of_all_rows_is_the_whole(name):
    X, y, Z = table()
    family = build(name, X, y, Z, nearest_earlier(X, M))
    whole, batch = (evaluate(f, KERNELS[0], y) for f in (family, family.batch(np.arange(N))))
    assert batch.value == pytest.approx(whole.value, rel=1e-10)
    for parameter, expected in whole.gradient.items():
        np.testing.assert_allclose(batch.gradient[parameter], expected, rtol=1e-8, atol=1e-10)


def test_batches_estimate_the_vecchia_objective_without_bias():
    """The batches of one partition average to the whole, in value and gradient."""
    X, y, Z = table()
    family = build("vecchia", X, y, Z, nearest_earlier(X, M))
    whole = evaluate(family, KERNELS[0], y)
    halves = np.split(np.random.default_rng(0).permutation(N), 2)
    parts = [evaluate(family.batch(rows), KERNELS[0], y) for rows in halves]
    assert np.mean([p.value for p in parts]) == pytest.approx(whole.value, rel=1e-10)
    for parameter, expected in whole.gradient.items():
        mean = np.mean([p.gradient[parameter] for p in parts], axis=0)
        np.testing.assert_allclose(mean, expected, rtol=1e-8, atol=1e-10)


def test_subset_of_regressors_is_the_linear_model_in_the_features():
    """Var f* = Q** - Q*n (Q + noise)^-1 Qn*, which goes to 0 far from the anchors; the mean of dtc."""
    X, y, Z = table()
    kernel, backend = RBF(sigma_u2=0.5, sigma_b2=0.0), choose_backend(RBF(), "xla")
    new = np.vstack([np.random.default_rng(5).normal(size=(6, I)), np.full((1, I), 50.0)])
    rows = BlockedRows.cut(X, y, np.zeros((N, 0), np.int32), N, backend.pads)
    found = {}
    for name in ("sor", "dtc"):
        member = approximation(name)
        family = Family(name, member.rule, rows, Z, backend, LocalEngine(), made=member.posterior)
        with backend.scope():
            posterior = family.posterior(kernel, Observed(y, NOISE))
            found[name] = make_predictor(posterior, None).predict(new)
            joint = posterior.joint(backend, new)
        np.testing.assert_allclose(joint[0], found[name].mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(np.diag(joint[1]), found[name].variance, rtol=1e-7, atol=1e-12)
    phi = kernel(np.vstack([X, new]), Z) @ np.linalg.inv(np.linalg.cholesky(kernel(Z))).T
    seen, ahead = phi[:N], phi[N:]
    gain = np.linalg.solve(seen @ seen.T + NOISE * np.eye(N), seen @ ahead.T)
    np.testing.assert_allclose(found["sor"].mean, y @ gain, rtol=1e-6, atol=1e-9)
    variance = np.sum(ahead**2, axis=1) - np.sum((seen @ ahead.T) * gain, axis=0)
    np.testing.assert_allclose(found["sor"].variance, variance, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found["sor"].mean, found["dtc"].mean, rtol=1e-9)
    assert np.all(found["sor"].variance <= found["dtc"].variance + 1e-12)
    assert found["sor"].variance[-1] < 1e-12 and found["dtc"].variance[-1] == pytest.approx(1.0)
