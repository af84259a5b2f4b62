"""The posterior of the parameters: its density, its evidence, and predictions averaged over it."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

import widegp
from widegp import WideGPRegressor
from widegp.approximations.dense import Dense
from widegp.compute.backend import choose_backend
from widegp.fitting import conditioned
from widegp.identifiability import Computation, map_objective
from widegp.inference.density import PosteriorDensity
from widegp.inference.evidence import evidence, pareto_tail, smoothed
from widegp.inference.objective import Problem
from widegp.inference.parameters import ParameterSpace
from widegp.inference.priors import default_priors
from widegp.kernels import Matern32, Mixed, ReLU, Tanh
from widegp.kernels.parameters import KINDS
from widegp.report.parameters import describe_parameters
from widegp.warps import make_warp


def rows(n=25, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def data():
    return rows()


@pytest.fixture(scope="module")
def model(data):
    return WideGPRegressor(metric="iso", random_state=0).fit(*data)


class TestDensity:
    X, y = rows(12)
    objective, z0 = map_objective(Mixed(), 0.1, X, y, computation=Computation(backend="native"))
    density = PosteriorDensity(objective, objective)

    def naive(self, z):
        """log N(y; 0, K + noise I) + sum_j log p(x_j) + log dx_j / dz_j, with the priors as declared."""
        names = ["sigma_a2", "sigma_u2", "sigma_b2", "sigma_v2", "alpha", "w"]
        x = np.array([*np.exp(z[:4]), *(1 / (1 + np.exp(-z[4:6]))), np.exp(2 * z[6])])
        slopes = np.array([*x[:4], *(x[4:6] * (1 - x[4:6])), 2 * x[6]])
        K = Mixed(**dict(zip(names, x[:6], strict=True)))(self.X) + x[6] * np.eye(len(self.y))
        medians, spreads = [1, 0.5, 0.25, 1, 0.1], [2, 2, 2, 2, 1.5]
        variances = x[[0, 1, 2, 3, 6]]
        prior = stats.lognorm.logpdf(variances, spreads, scale=medians).sum()
        prior += stats.beta.logpdf(x[4:6], 1.5, 1.5).sum() + np.log(slopes).sum()
        return stats.multivariate_normal(np.zeros(len(self.y)), K).logpdf(self.y) + prior

    @settings(max_examples=20, deadline=None)
    @given(seed=st.integers(0, 1000))
    def test_is_that_of_the_declared_priors(self, seed):
        z = self.z0 + np.random.default_rng(seed).normal(size=7)
        assert self.density.value(z) == pytest.approx(-self.naive(z), rel=1e-9)

    @settings(max_examples=10, deadline=None)
    @given(seed=st.integers(0, 1000))
    def test_gradient(self, seed):
        z = self.z0 + np.random.default_rng(seed).normal(size=7)
        step = 1e-5
        slopes = [
            (self.density.value(z + step * e) - self.density.value(z - step * e)) / (2 * step)
            for e in np.eye(7)
        ]
        np.testing.assert_allclose(self.density(z).gradient, slopes, rtol=1e-5, atol=1e-5)


class TestEvidence:
    def test_two_parameters_against_a_grid(self):
        """Roughness and noise of fifteen rows, everything else fixed: to 0.05 nats."""
        X, y = rows(15, 3)
        kernel, free = Tanh(), {"sigma_u2": np.array(0.5), "sigma_eps2": np.array(0.1)}
        problem = Problem(kernel, y, make_warp("none"), default_priors(kernel, 2, False))
        space = ParameterSpace.of(kernel, free)
        objective = problem.on(Dense(X, choose_backend(kernel, "native")), space)
        density = PosteriorDensity(objective, objective)
        found, drawn = evidence(density, density.mode(space.pack(free)))
        axes = [np.linspace(-8, 9, 90), np.linspace(-6, 3, 90)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        cell = np.prod([axis[1] - axis[0] for axis in axes])
        logs = np.array([-density.value(z) for z in grid])
        exact = logsumexp(logs) + np.log(cell)
        assert found.reliable and found.log_evidence == found.sampled
        assert found.sampled == pytest.approx(exact, abs=0.05)
        assert abs(found.laplace - exact) < 0.5
        shares = np.exp(logs - logsumexp(logs))
        np.testing.assert_allclose(drawn.weights @ drawn.z, shares @ grid, atol=0.1)

    @pytest.mark.parametrize("k", [0.1, 0.5, 0.9])
    def test_the_shape_of_a_pareto_tail(self, k):
        x = stats.genpareto(k, scale=2.0).rvs(4000, random_state=0)
        shape, scale = pareto_tail(x)
        assert shape == pytest.approx(k, abs=0.08)
        assert scale == pytest.approx(2.0, rel=0.1)

    def test_smoothing_keeps_the_order_and_the_largest(self):
        log_weights = np.random.default_rng(0).standard_normal(500) * 2
        found = smoothed(log_weights)
        order = np.argsort(log_weights)
        assert np.all(np.diff(found.log_weights[order]) >= -1e-12)
        assert found.log_weights.max() <= log_weights.max()
        np.testing.assert_array_equal(found.log_weights[order[:-100]], log_weights[order[:-100]])


class TestAveraging:
    def test_predictions_are_the_mixture_of_exact_ones(self, data, model):
        """Every draw by formulas of its own: K, Cholesky, mean and variance."""
        X, y = data
        new = np.random.default_rng(5).uniform(-3, 3, (7, 2))
        unit, centre = X.std(0), X.mean(0)
        rows, at = (X - centre) / unit, (new - centre) / unit
        target = (y - y.mean()) / y.std()
        theta, means, variances = model.posterior_, [], []
        members = model.fitted_.members
        assert theta.method == "importance" and len(members) == 15
        for member in members:
            named = dict(member.params)
            noise = named.pop("sigma_eps2")
            kernel = Mixed(**named)
            K = np.asarray(kernel(rows)) + noise * np.eye(len(y))
            cross = np.asarray(kernel(at, rows))
            means.append(cross @ np.linalg.solve(K, target))
            inner = np.einsum("ij,ji->i", cross, np.linalg.solve(K, cross.T))
            variances.append(np.asarray(kernel.diag(at)) - inner + noise)
        w, means, sds = model.fitted_.weights, np.array(means), np.sqrt(variances)
        np.testing.assert_allclose(model.predict(new), y.mean() + y.std() * (w @ means), rtol=1e-7)
        observed = y.mean() + np.linspace(-1, 1, 7)
        z = (observed - y.mean()) / y.std()
        density = np.log(w @ stats.norm.pdf(z, means, sds)) - np.log(y.std())
        np.testing.assert_allclose(model.log_density(new, observed), density, rtol=1e-6)
        low, high = model.predict_interval(new, 0.9)
        ends = (np.array([low, high]) - y.mean()) / y.std()
        np.testing.assert_allclose(w @ stats.norm.cdf(ends[0], means, sds), 0.05, atol=1e-7)
        np.testing.assert_allclose(w @ stats.norm.cdf(ends[1], means, sds), 0.95, atol=1e-7)

    def test_fifteen_rows_are_averaged_over_draws(self):
        """Means and sds of z are those of four times as many; those of points around the mode are not."""
        rng = np.random.default_rng([5003, 15, 1])
        X = rng.uniform(-3, 3, (15, 1))
        y = np.sign(X[:, 0]) + 0.2 * rng.standard_normal(15)
        model = WideGPRegressor("mixed", random_state=0).fit(X, y)
        many = WideGPRegressor.plain(posterior="laplace", random_state=0).fit(X, y).posterior_
        sd = np.sqrt(np.diagonal(many.z_covariance))
        values = [[member.params[label] for label in many.labels] for member in model.fitted_.members]
        maps = [KINDS[kind].map for kind in many.kinds]
        members = np.array([[m.inverse(x) for m, x in zip(maps, one, strict=True)] for one in values])
        weights = model.fitted_.weights
        mean = weights @ members
        np.testing.assert_array_less(np.abs(mean - many.z_mean) / sd, 0.15)
        np.testing.assert_allclose(np.sqrt(weights @ (members - mean) ** 2), sd, rtol=0.1)

    def test_draws_are_of_the_mixture_and_joint(self, data, model):
        X, _ = data
        drawn = model.sample_y(X[:4], 20_000)
        mean, sd = model.predict(X[:4], return_std=True)
        np.testing.assert_allclose(drawn.mean(1), mean, atol=5 * sd.max() / np.sqrt(20_000))
        np.testing.assert_allclose(drawn.std(1), sd, rtol=0.05)
        near = np.vstack([X[0], X[0] + 1e-6])
        first, second = model.sample_y(near, 5000)
        assert np.corrcoef(first, second)[0, 1] > 0.1
        assert model.sample_y(X[:4], 0).shape == (4, 0)

    def test_a_file_predicts_the_same(self, data, model, tmp_path):
        X, y = data
        model.save(tmp_path / "model.widegp")
        loaded = widegp.load(tmp_path / "model.widegp")
        for method in (lambda m: m.predict(X), lambda m: m.log_density(X, y), lambda m: m.sample_y(X, 3)):
            np.testing.assert_array_equal(method(loaded), method(model))
        np.testing.assert_array_equal(loaded.posterior_.z, model.posterior_.z)
        assert loaded.log_evidence_ == model.log_evidence_
        assert loaded.result_.credible_intervals == model.result_.credible_intervals

    def test_few_rows_alone_are_averaged(self, data):
        X, y = data
        assert WideGPRegressor.plain(random_state=0).fit(X, y).posterior_ is None
        sparse = WideGPRegressor(approximation="vfe", rank=10, random_state=0).fit(X, y)
        assert sparse.posterior_ is None and len(sparse.fitted_.models) == 1
        with pytest.raises(AttributeError, match="posterior='laplace'"):
            _ = sparse.log_evidence_

    def test_neighbours_and_a_warp(self, data):
        X, y = data
        settings = {"approximation": "vecchia", "neighbors": 8, "predict_neighbors": 12}
        model = WideGPRegressor.plain(
            posterior="laplace", target_transform="yeo-johnson", random_state=0, **settings
        ).fit(X, y)
        assert "psi[0]" in model.posterior_.labels
        one = np.average([m.predictive(X).mean for m in model.fitted_.models], 0, model.fitted_.weights)
        np.testing.assert_allclose(model.predict(X), one)
        fewer = model.fitted_.with_neighbors(3)
        assert not np.allclose(fewer.mean(X), model.fitted_.mean(X))

    def test_conditioning_on_more_rows_keeps_the_points(self, data, model):
        X, y = data
        more, targets = rows(40, 9)
        again = conditioned(model, model.fitted_, np.vstack([X, more]), np.append(y, targets))
        np.testing.assert_array_equal(again.weights, model.fitted_.weights)
        assert again.models[3].params == model.fitted_.models[3].params
        assert np.all(again.predictive(more).sd < model.fitted_.predictive(more).sd)
        same = conditioned(model, model.fitted_, X, y)
        np.testing.assert_allclose(same.mean(more), model.fitted_.mean(more), rtol=1e-6)

    def test_what_cannot_be_done_is_refused(self, data):
        with pytest.raises(ValueError, match="choose from auto, map, laplace, sample"):
            WideGPRegressor(posterior="bayes").fit(*data)
        with pytest.raises(ValueError, match="likelihood='gaussian'"):
            WideGPRegressor(posterior="laplace", likelihood="student-t").fit(*data)


class TestOneVarianceOrOnePerInput:
    """Which of the two is as uncertain as the parameters where rows are few: the evidence weighs them, or
    rows that were held out.
    """

    def fits(self, X, y):
        made = [WideGPRegressor.plain(posterior="auto", ard=ard, random_state=0).fit(X, y) for ard in (0, 1)]
        return WideGPRegressor("mixed", random_state=0).fit(X, y), *made

    def test_predictions_are_the_mixture_of_both(self, data):
        X, y = data
        both, one, each = self.fits(X, y)
        logs = np.array([model.log_evidence_ for model in (one, each)])
        shares = np.exp(logs - logsumexp(logs))
        assert 0.01 < shares[0] < 0.99
        np.testing.assert_allclose(both.fitted_.weights[:15].sum(), shares[0], atol=0.02)
        new, values = np.random.default_rng(5).uniform(-3, 3, (7, 2)), np.linspace(-1, 1, 7)
        parts = np.stack([model.log_density(new, values) for model in (one, each)])
        expected = logsumexp(parts, axis=0, b=shares[:, None])
        np.testing.assert_allclose(both.log_density(new, values), expected, atol=0.02)
        assert any("one variance for each input" in note for note in both.result_.notes)

    def test_inputs_that_do_not_matter_are_found_in_few_rows(self):
        """One variance for all spreads the rows over six inputs, of which two matter."""
        rng = np.random.default_rng(1)
        X = rng.uniform(-2, 2, (138, 6))
        y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(138)
        train, test = slice(38), slice(38, None)
        both, one, _ = self.fits(X[train], y[train])
        gain = both.log_density(X[test], y[test]) - one.log_density(X[test], y[test])
        assert gain.mean() > 0.3
        assert both.input_importance_[:2].sum() > 0.9


class TestPosterior:
    def test_intervals_in_tables(self, model):
        ends = model.posterior_.intervals()
        assert ends == model.result_.credible_intervals
        for name, (low, high) in ends.items():
            assert low < model.params_[name] < high
        entries = {entry["name"]: entry["credible_interval"] for entry in describe_parameters(model)}
        assert entries["w"] == list(ends["w"])
        assert "sigma_eps2: " in str(model.posterior_)

    def test_weighted_draws(self, data):
        model = WideGPRegressor.plain(kernel="relu", posterior="laplace", random_state=0).fit(*data)
        theta = model.posterior_
        assert theta.method == "importance" and theta.evidence.reliable
        resampled = theta.draws(20_000)
        np.testing.assert_allclose(resampled.mean(0), theta.z_mean, atol=0.06)
        low, high = theta.intervals(0.8)["sigma_eps2"]
        inside = (theta.values[:, -1] >= low) & (theta.values[:, -1] <= high)
        assert theta.weights[inside].sum() == pytest.approx(0.8, abs=0.02)

    def test_arviz_is_asked_for(self, model, monkeypatch):
        monkeypatch.setitem(sys.modules, "arviz", None)
        with pytest.raises(ImportError, match="pip install arviz"):
            model.posterior_.to_arviz()

    def test_to_arviz(self, model):
        pytest.importorskip("arviz")
        found = model.posterior_.to_arviz(draws=100)
        assert found["posterior"]["w"].shape == (1, 100)


@pytest.mark.parametrize("kernel", [ReLU(), Matern32()], ids=["native", "xla"])
def test_what_nuts_is_given_has_all_digits(kernel):
    """Called back from JAX's own threads, in which float64 is off."""
    import jax

    from widegp.inference.sample import _potential

    objective, z = map_objective(kernel, 0.1, *rows(20))
    density = PosteriorDensity(objective, objective)
    root = np.diag(np.linspace(0.5, 1.5, len(z)))
    u = np.random.default_rng(0).standard_normal(len(z))
    with jax.enable_x64(True):
        there = density(z + root @ u)
        value, gradient = jax.jit(jax.value_and_grad(_potential(density, z, root)))(u)
        far = jax.jit(_potential(density, z, root))(1e4 + u)
    assert float(value) == pytest.approx(there.value, rel=1e-13)
    np.testing.assert_allclose(gradient, root @ there.gradient, rtol=1e-10)
    assert np.isinf(far)


@pytest.mark.slow
def test_weighted_draws_against_nuts():
    """Means and sds of 60 rows within 10% of four chains of 500 draws, up to 3 standard errors of these."""
    pytest.importorskip("numpyro")
    from widegp.inference.posterior_points import principal
    from widegp.inference.sample import _drawn

    X, y = rows(60, 1)
    y = (y - y.mean()) / y.std()
    objective, start = map_objective(ReLU(), 0.1, X, y, computation=Computation(backend="native"))
    density = PosteriorDensity(objective, objective)
    mode = density.mode(start)
    sds, vectors = principal(mode.hessian)
    z, rhat = _drawn(density, mode.z, vectors * sds, 0, (4, 300, 500))
    found, drawn = evidence(density, mode)
    assert z.shape == (2000, 5) and np.all(rhat < 1.02) and found.reliable
    centre = drawn.weights @ drawn.z
    spread = np.sqrt(drawn.weights @ (drawn.z - centre) ** 2)
    np.testing.assert_allclose((centre - z.mean(0)) / z.std(0), 0, atol=0.1 + 3 / np.sqrt(1000))
    np.testing.assert_allclose(spread / z.std(0), 1, atol=0.1 + 3 / np.sqrt(2000))


@pytest.mark.slow
def test_averaging_covers_better_than_the_mode():
    """Fifteen rows, twenty seeds: coverage of 95% intervals and log score of 100 new rows."""
    seen = {"map": [], "auto": []}
    for seed in range(2000, 2020):
        X, y = rows(115, seed)
        for posterior, found in seen.items():
            model = WideGPRegressor(posterior=posterior, random_state=0).fit(X[:15], y[:15])
            predictive = model.predict_distribution(X[15:])
            low, high = predictive.interval(0.95)
            inside = np.mean((low <= y[15:]) & (y[15:] <= high))
            found.append((inside, np.mean(predictive.log_density(y[15:]))))
    mode, averaged = np.mean(seen["map"], 0), np.mean(seen["auto"], 0)
    assert mode[0] < 0.92 < averaged[0]
    assert averaged[1] > mode[1]
