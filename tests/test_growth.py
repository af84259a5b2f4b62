"""More rows without a new fit: the same as conditioning on all rows at the same parameters."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from naive_gp import nearest_earlier
from scipy.stats import kstest, multivariate_normal

import widegp
from widegp import WideGPClassifier, WideGPRegressor
from widegp.approximations.dense import Dense
from widegp.approximations.evaluation import Observed
from widegp.approximations.family import Family
from widegp.approximations.nystrom import Nystrom
from widegp.approximations.registry import APPROXIMATIONS, approximation
from widegp.compute.backend import choose_backend
from widegp.conditioning import TrainingRows
from widegp.engines.blocks import BlockedRows
from widegp.engines.local import LocalEngine
from widegp.inference.result import Growth
from widegp.kernels import Mixed
from widegp.neighbors import NeighborIndex, nearest_before
from widegp.prediction import make_predictor
from widegp.tails import NORMAL, Tails

N, Q, INPUTS, RANK, NEAR, NOISE = 60, 25, 3, 12, 7, 0.05
KERNEL = Mixed(sigma_u2=0.4, alpha=0.3, w=0.6)


def rows(n=N + Q, seed=0):
    """Inputs, targets, and noise variances that differ from row to row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, INPUTS))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.2 * rng.normal(size=n)
    return X, y, rng.uniform(0.5, 2.0, n)


def likelihood(name, X, backend):
    """Of the rows in their order; anchors are rows 0, 1, ..., of the first of them."""
    kept = np.arange(RANK)
    if name in ("exact", "subset"):
        return Dense(X if name == "exact" else X[:RANK], backend, None if name == "exact" else kept)
    if name == "nystrom":
        rest = np.arange(RANK, len(X))
        cut = BlockedRows.cut(X[rest], np.zeros(len(rest)), np.zeros((len(rest), 0), np.int32), 100)
        return Nystrom(cut, kept, rest, X[:RANK], backend, LocalEngine())
    member = approximation(name)
    m = NEAR if member.neighbors else 0
    near = nearest_earlier(KERNEL.embedding(X), m).astype(np.int32)
    cut = BlockedRows.cut(X, np.zeros(len(X)), near, 100, backend.pads)
    Z = X[: RANK if member.anchors != "none" else 0]
    return Family(name, member.rule, cut, Z, backend, LocalEngine(), None, m, made=member.posterior)


def dense_covariance(name, X):
    """Q + (I - a)^-1 D (I - a)^-T, the covariance of all rows that a member of the family stands for."""
    K, n = KERNEL(X), len(X)
    if name == "exact":
        return K + NOISE * np.eye(n)
    Q = np.zeros((n, n))
    if name != "vecchia":
        K_ZZ = KERNEL(X[:RANK]) + 1e-10 * np.mean(np.diag(K)[:RANK]) * np.eye(RANK)
        Q = K[:, :RANK] @ np.linalg.solve(K_ZZ, K[:RANK])
    if name == "sor":
        return Q + NOISE * np.eye(n)
    R, lower, d = K - Q + NOISE * np.eye(n), np.eye(n), np.empty(n)
    near = nearest_earlier(KERNEL.embedding(X), NEAR if approximation(name).neighbors else 0)
    for i in range(n):
        N_i = near[i][near[i] >= 0]
        a = np.linalg.solve(R[np.ix_(N_i, N_i)], R[N_i, i])
        lower[i, N_i], d[i] = -a, R[i, i] - a @ R[N_i, i]
    inverse = np.linalg.inv(lower)
    return Q + inverse @ np.diag(d) @ inverse.T


def log_density(y, covariance):
    return multivariate_normal(cov=covariance).logpdf(y)


def new_blocks(name, X, y, spread, n, size, backend):
    """The rows after the first n, and the neighbours that they condition on."""
    m = NEAR if approximation(name).neighbors else 0
    near = nearest_earlier(KERNEL.embedding(X), m).astype(np.int32)
    if m == 0:
        return BlockedRows(X[n:], y[n:], spread[n:], near[n:], size, backend.pads)
    return BlockedRows(X, y, spread, near, size, backend.pads).restricted(np.arange(n, len(X)), size)


class TestPosteriors:
    @pytest.mark.parametrize(
        ("name", "backend"),
        [(name, "native") for name in APPROXIMATIONS] + [(name, "xla") for name in ("exact", "full-scale")],
    )
    def test_growing_is_conditioning_from_scratch(self, name, backend):
        X, y, spread = rows()
        backend = choose_backend(KERNEL, backend)
        test = rows(9, seed=1)[0]
        with backend.scope():
            old = likelihood(name, X[:N], backend).posterior(KERNEL, Observed(y[:N], NOISE, spread[:N]))
            blocks = new_blocks(name, X, y, spread, N, 10, backend)
            grown = approximation(name).grown(old, backend, blocks).posterior
            whole = likelihood(name, X, backend).posterior(KERNEL, Observed(y, NOISE, spread))
        expected, found = (self.predicted(p, X, y, spread, test) for p in (whole, grown))
        np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-8)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=0, atol=1e-8)

    @staticmethod
    def predicted(posterior, X, y, spread, test):
        near = getattr(posterior, "neighbors", 0)
        held = TrainingRows(X, y, KERNEL, 20, spread) if near else None
        return make_predictor(posterior, held).predict(test)

    @pytest.mark.parametrize("name", ["exact", "sor", "fitc", "vecchia", "full-scale"])
    def test_rows_are_foretold_with_their_joint_density(self, name):
        """sum log p(y_i | rows before) = log N(all rows) - log N(old rows), by dense matrices."""
        X, y, _ = rows()
        backend = choose_backend(KERNEL, "native")
        old = likelihood(name, X[:N], backend).posterior(KERNEL, Observed(y[:N], NOISE))
        blocks = new_blocks(name, X, y, np.ones(N + Q), N, 10, backend)
        made = approximation(name).grown(old, backend, blocks)

        covariance = dense_covariance(name, X)
        expected = log_density(y, covariance) - log_density(y[:N], covariance[:N, :N])
        np.testing.assert_allclose(np.sum(NORMAL.log_density(made.t) - made.log_sd), expected, rtol=1e-7)

    @pytest.mark.parametrize("name", ["dtc", "vfe"])
    def test_rows_of_dtc_are_foretold_as_they_are_predicted(self, name):
        """One by one: predicted with R_ii, then added, which drops it."""
        X, y, spread = rows()
        backend = choose_backend(KERNEL, "native")
        posterior = likelihood(name, X[:N], backend).posterior(KERNEL, Observed(y[:N], NOISE, spread[:N]))
        made = approximation(name).grown(posterior, backend, new_blocks(name, X, y, spread, N, 10, backend))
        for k, i in enumerate(range(N, N + 4)):
            mean, variance = make_predictor(posterior, None).predict(X[i : i + 1])
            sd = np.sqrt(variance[0] + NOISE * spread[i])
            np.testing.assert_allclose(made.log_sd[k], np.log(sd), rtol=0, atol=1e-8)
            np.testing.assert_allclose(made.t[k], (y[i] - mean[0]) / sd, rtol=0, atol=1e-8)
            seen = Observed(y[: i + 1], NOISE, spread[: i + 1])
            posterior = likelihood(name, X[: i + 1], backend).posterior(KERNEL, seen)

    def test_a_file_without_the_gram_matrix_says_so(self):
        X, y, spread = rows()
        backend = choose_backend(KERNEL, "native")
        old = likelihood("nystrom", X[:N], backend).posterior(KERNEL, Observed(y[:N], NOISE))
        bare = type(old)(old.kernel, old.noise, old.Z, old.W, old.beta)
        with pytest.raises(ValueError, match="fit it again"):
            approximation("nystrom").grown(bare, backend, new_blocks("nystrom", X, y, spread, N, 10, backend))


def fixed(name="full-scale", **changes):
    """A model whose parameters stay where they start, so that its layout can be made again."""
    settings = {
        "approximation": name, "rank": RANK, "neighbors": NEAR, "predict_neighbors": 20, "anchors": "first",
        "max_iter": 0, "start": KERNEL.parameters() | {"sigma_eps2": NOISE}, "random_state": 0,
    } | changes  # fmt: skip
    return WideGPRegressor.plain(**settings)


def fitted(model, *args, **known):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*args, **known)


def assert_same_predictions(found, expected, X, atol=1e-8):
    for a, b in zip(found.predict(X, True), expected.predict(X, True), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


class TestEstimator:
    @pytest.mark.parametrize("name", ["vecchia", "full-scale"])
    def test_new_rows_come_last_and_condition_on_earlier_ones(self, name):
        X, y, _ = rows()
        model = fitted(fixed(name).set_params(predict_cells=False), X[:N], y[:N]).update(X[N:], y[N:])
        one = model.fitted_
        # The order in which the fit conditioned its rows, then the new rows.
        first = np.random.default_rng(one.seed).permutation(N)
        order = np.append(first, np.arange(N, N + Q))
        rows_, z = one.inputs.transform(X)[order], one.standardised(y)[order]
        near = nearest_earlier(one.kernel.embedding(rows_), NEAR).astype(np.int32)
        cut = BlockedRows.cut(rows_, np.zeros(len(z)), near, 1000)
        family = Family(
            name, approximation(name).rule, cut, one.posterior.Z, choose_backend(one.kernel), LocalEngine()
        )
        whole = family.posterior(one.kernel, Observed(z, NOISE))
        predictor = make_predictor(whole, TrainingRows(rows_, z, one.kernel, 20))
        test = one.inputs.transform(rows(9, seed=1)[0])
        for found, expected in zip(one.predictor.predict(test), predictor.predict(test), strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)

    @pytest.mark.parametrize("name", ["exact", "full-scale", "vfe"])
    def test_rows_may_come_in_pieces(self, name):
        X, y, _ = rows()
        whole = fitted(fixed(name), X[:N], y[:N]).update(X[N:], y[N:])
        pieces = fitted(fixed(name), X[:N], y[:N])
        for part in (slice(N, N + 1), slice(N + 1, N + 9), slice(N + 9, N + Q)):
            pieces.update(X[part], y[part])
        assert_same_predictions(pieces, whole, rows(9, seed=1)[0])
        pooled, at_once = Growth.pooled(pieces.result_.growth), whole.result_.growth[0]
        for name in ("rows", "score", "expected", "doubt"):
            np.testing.assert_allclose(getattr(pooled, name), getattr(at_once, name), rtol=1e-8)

    def test_a_weight_is_a_number_of_rows(self):
        X, y, _ = rows()
        weighted = fitted(fixed("exact"), X[:N], y[:N])
        weighted.update(X[N:], y[N:], np.where(np.arange(Q) < 4, 2.0, np.arange(Q) < 20))
        repeated = fitted(fixed("exact"), X[:N], y[:N])
        again = np.r_[N : N + 4, N : N + 20]
        assert_same_predictions(weighted, repeated.update(X[again], y[again]), rows(9, seed=1)[0])

    def test_known_noise_of_new_rows_is_used(self):
        X, y, spread = rows()
        noise = 0.04 * spread
        grown = fitted(fixed("exact"), X[:N], y[:N], noise_variance=noise[:N])
        one = grown.update(X[N:], y[N:], noise_variance=noise[N:]).fitted_
        inside = one.inputs.transform(X)
        K = one.kernel(inside) + np.diag(noise / one.target.sd**2)
        test = rows(5, seed=1)[0]
        mean = one.kernel(one.inputs.transform(test), inside) @ np.linalg.solve(K, one.standardised(y))
        np.testing.assert_allclose(grown.predict(test), one.target.inverse_mean(mean), rtol=0, atol=1e-8)

    def test_a_subset_stays_as_it_is_and_still_judges_the_rows(self):
        X, y, _ = rows()
        model = fitted(fixed("subset"), X[:N], y[:N])
        before = model.predict(X)
        model.update(X[N:], y[N:])
        np.testing.assert_array_equal(model.predict(X), before)
        assert model.result_.growth[0].rows == Q

    def test_anchors_that_are_all_rows_of_a_nystrom_model(self):
        X, y, _ = rows()
        grown = fitted(fixed("nystrom"), X[:RANK], y[:RANK]).update(X[RANK:], y[RANK:])
        one = grown.fitted_
        backend, Z = choose_backend(one.kernel), one.inputs.transform(X)
        observed = Observed(one.standardised(y), NOISE)
        rest = np.arange(RANK, N + Q)
        cut = BlockedRows.cut(Z[rest], np.zeros(len(rest)), np.zeros((len(rest), 0), np.int32), 100)
        scratch = Nystrom(cut, np.arange(RANK), rest, Z[:RANK], backend, LocalEngine())
        expected = make_predictor(scratch.posterior(one.kernel, observed), None).predict(Z[:7])
        # The whole matrix of a fit without other rows has no jitter, that of the anchors 1e-10 of it.
        np.testing.assert_allclose(one.predictor.predict(Z[:7]).mean, expected.mean, rtol=0, atol=1e-7)

    def test_all_members_of_an_average_grow(self):
        X, y, _ = rows()
        model = fitted(WideGPRegressor.plain(posterior="laplace", random_state=0, max_iter=2), X[:20], y[:20])
        one = model.update(X[20:N], y[20:N]).fitted_
        assert len(one.members) > 1
        test, inside = rows(4, seed=1)[0], one.inputs.transform(X[:N])
        for member in one.members:
            kernel, noise = member.posterior.kernel, member.params["sigma_eps2"]
            alpha = np.linalg.solve(kernel(inside) + noise * np.eye(N), one.standardised(y[:N]))
            found = make_predictor(member.posterior, None).predict(one.inputs.transform(test)).mean
            expected = kernel(one.inputs.transform(test), inside) @ alpha
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)

    def test_each_output_grows(self):
        X, y, _ = rows()
        Y = np.stack([y, np.cos(X[:, 1]) - y], axis=1)
        model = fitted(fixed("full-scale", start=None), X[:N], Y[:N]).update(X[N:], Y[N:])
        assert [one.result.growth[0].rows for one in model.fitted_] == [Q, Q]
        assert model.predict(X).shape == (N + Q, 2)
        with pytest.raises(ValueError, match="the model has 2 outputs"):
            model.update(X, y)

    def test_what_cannot_grow_says_so(self):
        X, y, _ = rows()
        counts = fitted(WideGPRegressor.plain(likelihood="poisson", max_iter=2), X, np.round(np.exp(y)))
        with pytest.raises(ValueError, match="fit again with all rows"):
            counts.update(X, np.round(np.exp(y)))
        with pytest.raises(ValueError, match="A classifier cannot take more rows"):
            WideGPClassifier().update(X, y > 0)
        positive = fitted(fixed("exact", target_transform="log"), X, np.exp(y))
        with pytest.raises(ValueError, match="new row 1 is -2, which the model's log warp excludes"):
            positive.update(X[:2], [1.0, -2.0])
        with pytest.raises(ValueError, match="fit it again"):
            old = widegp.load(Path(__file__).parent / "fixtures" / "model-v1.widegp")
            old.update(np.full((1, 3), 5.0), [1.0])

    @pytest.mark.parametrize("name", ["exact", "nystrom", "vfe", "full-scale"])
    def test_saved_models_grow_and_grown_models_are_saved(self, name, tmp_path):
        X, y, _ = rows()
        model = fitted(fixed(name, predict_cells=True), X[:N], y[:N])
        model.save(tmp_path / "model.widegp")
        loaded = widegp.load(tmp_path / "model.widegp").update(X[N:], y[N:])
        model.predict(X)  # Index and cells are there when the rows come.
        model.update(X[N:], y[N:])
        loaded.save(tmp_path / "grown.widegp")
        again = widegp.load(tmp_path / "grown.widegp")
        for found in (loaded, again):
            assert_same_predictions(found, model, X, atol=0)
            assert found.result_.growth == model.result_.growth


class TestJudgement:
    def test_the_score_of_a_right_model_scatters_as_it_says(self):
        """(score - expected) / chance over draws from the model itself is nearly standard normal."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(140, 2))
        kernel = Mixed()
        draws = np.linalg.cholesky(kernel(X) + 0.1 * np.eye(140)) @ rng.normal(size=(140, 80))
        backend, found = choose_backend(kernel, "native"), []
        for y in draws.T:
            old = Dense(X[:40], backend).posterior(kernel, Observed(y[:40], 0.1))
            t = old.grown(backend, X[40:], Observed(y[40:], 0.1)).t
            mean, sd = NORMAL.log_density_moments()
            found.append((NORMAL.log_density(t).mean() - mean) / sd * 10)
        assert kstest(found, "norm").pvalue > 0.01

    def test_a_changed_world_calls_for_a_new_fit(self):
        X, y, _ = rows(300)
        model = fitted(WideGPRegressor.plain(random_state=0, max_iter=20), X[:150], y[:150])
        model.update(X[150:225], y[150:225])
        assert not model.result_.refit_due
        model.update(X[225:], y[225:] + 1.0)
        assert model.result_.refit_due and model.result_.growth[-1].refit_due
        assert "a new fit is due" in model.result_.growth[-1].words

    def test_few_rows_call_for_nothing_until_they_are_many(self):
        few = Growth(5, -9.0, 0.0, 0.3)
        assert not few.refit_due
        pooled = Growth.pooled([few] * 4)
        assert pooled.refit_due and pooled.rows == 20 and pooled.chance == pytest.approx(0.15)

    def test_moments_of_the_log_density_by_draws(self):
        tails = Tails(np.array([0.7, 0.3]), np.array([0.5, 2.0]))
        rng = np.random.default_rng(0)
        widths = rng.choice(tails.factors, 400_000, p=tails.weights)
        values = tails.log_density(rng.normal(size=400_000) * widths)
        np.testing.assert_allclose(tails.log_density_moments(), (values.mean(), values.std()), atol=0.01)
        np.testing.assert_allclose(
            NORMAL.log_density_moments(), (-0.5 * (1 + np.log(2 * np.pi)), np.sqrt(0.5)), rtol=1e-12
        )


class TestNeighbors:
    def test_later_rows_find_earlier_ones(self):
        points = np.random.default_rng(0).normal(size=(90, 4))
        expected = nearest_earlier(points, 6)[70:]
        index = lambda: NeighborIndex(points[:70])  # noqa: E731
        np.testing.assert_array_equal(nearest_before(points[:70], points[70:], 6, index), expected)

    def test_many_later_rows_go_through_the_index(self, monkeypatch):
        monkeypatch.setattr("widegp.neighbors.later.EXACT_ROWS", 1)
        points = np.random.default_rng(0).normal(size=(90, 4))
        found = nearest_before(points[:70], points[70:], 6, lambda: NeighborIndex(points[:70]))
        np.testing.assert_array_equal(found, nearest_earlier(points, 6)[70:])

    def test_a_grown_index_is_that_of_all_rows(self):
        rng = np.random.default_rng(0)
        points, queries = rng.normal(size=(3300, 5)), rng.normal(size=(40, 5))
        grown = NeighborIndex(points[:3000], "approximate").grown(points[3000:])
        made = NeighborIndex(points, "approximate", laid=3000)
        found = grown.query(queries, 10)
        np.testing.assert_array_equal(found, made.query(queries, 10))
        # Rows that came later are searched exactly: none of them is missed.
        exact = NeighborIndex(points, "exact").query(queries, 10)
        for own, true in zip(found, exact, strict=True):
            assert set(true[true >= 3000]) <= set(own)
        assert (exact >= 3000).any()

    def test_an_index_is_built_anew_when_many_rows_have_come(self):
        X, y, _ = rows()
        held = TrainingRows(X, y, KERNEL, 5)
        held.nearest(X)
        few = held.grown(X[:5], y[:5], None)
        assert few.laid == len(X) and few._index is not None and len(few._index.reference) == len(X) + 5
        assert held.grown(X, y, np.ones(len(X))).laid is None
