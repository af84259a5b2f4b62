"""The regressor as a user meets it."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

from widegp import Beta, InverseGamma, Reason, WideGPRegressor, kernels, metrics
from widegp.approximations.registry import APPROXIMATIONS as NAMES
from widegp.inference import starts

APPROXIMATIONS = sorted(NAMES)


@parametrize_with_checks([WideGPRegressor.plain(max_iter=5)])
def test_scikit_learn_contract(estimator, check, monkeypatch):
    monkeypatch.setattr(starts, "START_ROWS", 40)  # a good start is not what is checked
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([WideGPRegressor()])
def test_scikit_learn_contract_of_the_default(estimator, check):
    check(estimator)


def table(n=120, n_inputs=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_inputs))
    return X, np.sin(1.2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


def quick(**settings):
    defaults = {"rank": 40, "neighbors": 10, "predict_neighbors": 120, "max_iter": 60, "random_state": 0}
    return WideGPRegressor.plain(**(defaults | settings))


@pytest.fixture(scope="module", params=APPROXIMATIONS)
def fitted(request):
    X, y = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quick(approximation=request.param).fit(X, y)


class TestEveryApproximation:
    def test_it_says_what_to_beware_of(self, fitted):
        caveats = [member.caveat for member in NAMES.values() if member.caveat]
        own = NAMES[fitted.approximation].caveat
        assert [note for note in fitted.result_.notes if note in caveats] == ([own] if own else [])

    def test_ends_with_a_named_reason_and_finite_estimates(self, fitted):
        assert isinstance(fitted.result_.reason, Reason)
        assert all(np.all(np.isfinite(v)) for v in fitted.params_.values())
        assert set(fitted.params_) == {
            "sigma_a2", "sigma_u2", "sigma_b2", "sigma_v2", "alpha", "w", "sigma_eps2",
        }  # fmt: skip
        assert np.all(np.diff(fitted.result_.path) <= 1e-9)

    def test_predicts_better_than_the_mean_with_positive_spread(self, fitted):
        X, y = table(seed=1)
        mean, sd = fitted.predict(X, return_std=True)
        _, latent = fitted.predict(X, return_std=True, latent=True)
        if fitted.approximation_ != "nystrom":
            assert metrics.rmse(y, mean) < 0.5 * y.std()
        assert np.all(latent >= 0) and np.all(sd > 0) and np.all(latent <= sd)

    def test_interval_is_the_gaussian_one(self, fitted):
        X, _ = table(seed=1)
        mean, sd = fitted.predict(X, return_std=True)
        lower, upper = fitted.predict_interval(X, level=0.9)
        np.testing.assert_allclose((lower + upper) / 2, mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(upper - lower, 2 * 1.6448536269514722 * sd, rtol=1e-9)

    def test_one_row_at_a_time_gives_the_same_answer(self, fitted):
        X, _ = table(seed=1)
        one = np.concatenate([fitted.predict(X[i : i + 1]) for i in range(5)])
        np.testing.assert_allclose(one, fitted.predict(X)[:5], rtol=1e-9)

    def test_joint_draws_have_the_predicted_moments(self, fitted):
        X, _ = table(n=6, seed=1)
        mean, sd = fitted.predict(X, return_std=True)
        draws = fitted.sample_y(X, n_samples=4000, random_state=3)
        assert draws.shape == (6, 4000)
        np.testing.assert_allclose(draws.mean(1), mean, atol=5 * sd.max() / np.sqrt(4000))
        np.testing.assert_allclose(draws.std(1), sd, rtol=0.08)

    def test_same_seed_same_fit(self, fitted):
        X, y = table()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = clone(fitted).fit(X, y)
        assert again.params_ == fitted.params_

    def test_scaling_the_target_scales_the_prediction(self, fitted):
        X, y = table()
        fixed = clone(fitted).set_params(start={"sigma_u2": 0.3}, max_iter=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain, scaled = clone(fixed).fit(X, y), clone(fixed).fit(X, 1000 * y + 5)
        np.testing.assert_allclose(scaled.predict(X), 1000 * plain.predict(X) + 5, rtol=1e-7, atol=1e-6)
        sd, scaled_sd = (m.predict(X, return_std=True)[1] for m in (plain, scaled))
        np.testing.assert_allclose(scaled_sd, 1000 * sd, rtol=1e-7)


# Operation by operation, JAX would compile dozens of programs for each of the matrices.
compiled = jax.jit(lambda kernel, X, Y: kernel(X, Y))


class AtFixedParameters(SklearnKernel):
    """K_mix for scikit-learn's regressor, without hyperparameters."""

    def __init__(self, kernel=None):
        self.kernel = kernel

    def __call__(self, X, Y=None, eval_gradient=False):
        with jax.enable_x64(True):
            return np.array(compiled(self.kernel, X, X if Y is None else Y))

    def diag(self, X):
        return np.asarray(self.kernel.diag(X))

    def is_stationary(self):
        return False


def test_exact_predictions_agree_with_scikit_learn_on_the_same_matrices():
    X, y = table()
    model = quick(approximation="exact").fit(X, y)
    scaled = (X - X.mean(0)) / X.std(0)
    peer = GaussianProcessRegressor(
        AtFixedParameters(model.kernel_), alpha=model.params_["sigma_eps2"], optimizer=None
    )
    peer.fit(scaled, (y - y.mean()) / y.std())
    mean, sd = peer.predict(scaled[:20] + 0.1, return_std=True)
    ours, latent = model.predict(X[:20] + 0.1 * X.std(0), return_std=True, latent=True)
    np.testing.assert_allclose(ours, mean * y.std() + y.mean(), rtol=1e-8)
    np.testing.assert_allclose(latent, sd * y.std(), rtol=1e-6)


def test_the_optimum_is_a_minimum_of_the_exact_posterior():
    """Minus log posterior by scikit-learn's likelihood plus the priors is no lower nearby."""
    X, y = table(n=80)
    model = quick(approximation="exact", max_iter=200).fit(X, y)
    scaled, target = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()

    def loss(params):
        kernel = kernels.Mixed(**{k: v for k, v in params.items() if k != "sigma_eps2"})
        K = np.asarray(kernel(scaled)) + params["sigma_eps2"] * np.eye(len(y))
        likelihood = 0.5 * (
            target @ np.linalg.solve(K, target) + np.linalg.slogdet(K)[1] + len(y) * np.log(2 * np.pi)
        )
        from widegp.inference.priors import default_priors

        priors = default_priors(kernel, 3, False)
        return likelihood + sum(priors[k].penalty(np.asarray(v)) for k, v in params.items())

    best = loss(model.params_)
    assert best == pytest.approx(-model.log_posterior_, rel=1e-8)
    for name in model.params_:
        for factor in (0.9, 1.1):
            moved = dict(model.params_, **{name: min(model.params_[name] * factor, 0.9999)})
            assert loss(moved) >= best - 1e-4


class TestTables:
    def test_pandas_and_polars_keep_names(self):
        X, y = table(n=40)
        names = ["depth", "age", "dose"]
        frame = pd.DataFrame(X, columns=names)
        model = quick(approximation="exact", max_iter=5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(frame, pd.Series(y))
            assert list(model.feature_names_in_) == names
            expected = model.predict(frame)
            polars = clone(model).fit(pl.DataFrame(X, schema=names), pl.Series(y))
        assert list(polars.feature_names_in_) == names
        np.testing.assert_allclose(polars.predict(pl.DataFrame(X, schema=names)), expected, rtol=1e-10)

    def test_pipeline_and_grid_search(self):
        X, y = table(n=60)
        search = GridSearchCV(
            make_pipeline(PolynomialFeatures(1), quick(approximation="exact", max_iter=10)),
            {"widegpregressor__kernel": ["relu", "mixed"]},
            cv=2,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            search.fit(X, y)
        assert search.best_score_ > 0.3


class TestAwkwardTables:
    @pytest.mark.parametrize("approximation", APPROXIMATIONS)
    def test_fewer_rows_than_anchors_and_neighbours(self, approximation):
        X, y = table(n=7)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = WideGPRegressor.plain(approximation=approximation, max_iter=10, random_state=0).fit(X, y)
        assert np.all(np.isfinite(model.predict(X)))

    @pytest.mark.parametrize("approximation", APPROXIMATIONS)
    def test_one_row(self, approximation):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = quick(approximation=approximation).fit([[1.0, 2.0]], [3.0])
        mean, sd = model.predict([[1.0, 2.0], [5.0, 5.0]], return_std=True)
        np.testing.assert_allclose(mean[0], 3.0, atol=1e-6)
        assert np.all(np.isfinite(sd)) and np.all(sd > 0)

    @pytest.mark.parametrize("approximation", ["exact", "vfe", "full-scale"])
    def test_constant_target(self, approximation):
        X, _ = table(n=50)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = quick(approximation=approximation).fit(X, np.full(50, 7.5))
        np.testing.assert_allclose(model.predict(X), 7.5, atol=1e-6)

    @pytest.mark.parametrize("approximation", ["exact", "vfe", "fitc", "full-scale"])
    def test_constant_columns_duplicates_and_a_huge_scale(self, approximation):
        X, y = table(n=60)
        X = np.column_stack([X, np.full(60, 3.0), X[:, 0] * 1e14, np.zeros(60)])
        X, y = np.concatenate([X, X]), np.concatenate([y, y])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = quick(approximation=approximation).fit(X, y)
        assert metrics.rmse(y, model.predict(X)) < 0.4

    @pytest.mark.parametrize(
        ("spoil", "message"),
        [
            (lambda X, y: (np.where(X > 2, np.nan, X), y), "NaN"),
            (lambda X, y: (X, np.where(y > 1, np.inf, y)), "infinity"),
            (lambda X, y: (X[:, 0], y), "2D array"),
            (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
            (lambda X, y: (X.astype(str).astype(object) + "x", y), "could not convert string"),
            (lambda X, y: (X[:0], y[:0]), "0 sample"),
        ],
    )
    def test_bad_tables_get_one_clear_sentence(self, spoil, message):
        with pytest.raises(ValueError, match=message):
            quick().fit(*spoil(*table()))

    def test_wrong_number_of_inputs_at_prediction(self):
        X, y = table(n=30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = quick(max_iter=2).fit(X, y)
        with pytest.raises(ValueError, match="expecting 3 features"):
            model.predict(X[:, :2])


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"approximation": "magic"}, "Unknown approximation 'magic'; choose"),
            ({"kernel": "cubic"}, "Unknown kernel 'cubic'; choose"),
            ({"optimizer": "sgd"}, "Unknown optimizer 'sgd'; choose"),
            ({"rank": 0}, "rank must be an integer of at least 1"),
            ({"neighbors": -1}, "neighbors must be an integer"),
            ({"priors": {"w": InverseGamma(1, 1)}}, "prior of w must be Beta"),
            ({"priors": {"omega": Beta(1, 1)}}, "no parameter 'omega'"),
            ({"start": {"omega": 1.0}}, "start names \\['omega'\\]"),
            ({"scale_inputs": "robust"}, "robust"),
            ({"target_transform": "cube"}, "cube"),
            ({"anchors": "best"}, "best"),
        ],
    )
    def test_unknown_settings_are_named(self, settings, message):
        X, y = table(n=60)
        with pytest.raises(ValueError, match=message):
            quick(**({"approximation": "vfe"} | settings)).fit(X, y)

    def test_priors_can_be_moved_and_switched_off(self):
        X, y = table()
        free = quick(approximation="exact", priors=None).fit(X, y)
        strong = quick(approximation="exact", priors={"w": Beta(500, 500)}).fit(X, y)
        assert abs(strong.params_["w"] - 0.5) < 0.1 < abs(free.params_["w"] - 0.5)

    def test_ard_ranks_the_inputs(self):
        X, y = table(n=300)
        model = quick(approximation="exact", ard=True, max_iter=100).fit(X, y)
        assert model.params_["sigma_u2"].shape == (3,)
        assert np.argsort(-model.input_importance_).tolist() == [0, 1, 2]
        assert model.input_importance_[2] < 0.02

    @pytest.mark.parametrize("kernel", ["tanh", "sigmoid", "relu", "leaky_relu"])
    def test_single_activations(self, kernel):
        X, y = table()
        model = quick(kernel=kernel, approximation="vfe").fit(X, y)
        assert metrics.rmse(y, model.predict(X)) < 0.5

    def test_a_kernel_object_with_all_four_activations(self):
        X, y = table()
        mixture = kernels.Mixture(["tanh", "sigmoid", "relu", "leaky_relu"], sigma_u2=0.3)
        model = quick(kernel=mixture, approximation="exact").fit(X, y)
        assert model.params_["weights"].shape == (4,)
        assert metrics.rmse(y, model.predict(X)) < 0.5

    @pytest.mark.slow
    def test_a_quadrature_kernel(self):
        X, y = table(n=25)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = quick(kernel=kernels.exact_tanh, approximation="exact", max_iter=5).fit(X, y)
        assert model.result_.backend == "xla"
        assert metrics.rmse(y, model.predict(X)) < y.std()

    def test_both_backends_agree(self):
        X, y = table()
        start = {"sigma_u2": 0.3}
        fits = [
            quick(approximation="full-scale", backend=b, start=start, max_iter=60).fit(X, y)
            for b in ("native", "xla")
        ]
        np.testing.assert_allclose(fits[0].predict(X), fits[1].predict(X), rtol=1e-3, atol=1e-3)
        assert fits[0].log_posterior_ == pytest.approx(fits[1].log_posterior_, abs=1e-3)


class TestPaperProtocol:
    def test_fifty_steps_of_a_thousandth(self):
        """Adam moves an unconstrained parameter by at most about its rate: w stays within sigmoid(+-0.05)."""
        X, y = table()
        model = WideGPRegressor.paper_protocol(rank=40, random_state=0).fit(X, y)
        assert model.n_iter_ == 49 and model.result_.reason is Reason.MAX_ITER
        assert 0.4874 <= model.params_["w"] <= 0.5126
        assert 0.968 <= model.params_["sigma_u2"] <= 1.033
        assert model.approximation_ == "subset"

    def test_the_noise_starts_where_asked_and_moves_in_log_sd(self):
        X, y = table()
        model = WideGPRegressor.paper_protocol(rank=40, noise_start=0.02**2, random_state=0).fit(X, y)
        assert model.params_["sigma_eps2"] == pytest.approx(0.02**2 * np.exp(0.1), rel=0.02)


class TestWarps:
    def test_a_skewed_target_gets_a_warp_and_better_density(self):
        X, y = table(n=300)
        skewed = np.exp(1.5 * y)
        X_new, y_new = table(n=300, seed=1)
        plain = quick(approximation="full-scale").fit(X, skewed)
        warped = quick(approximation="full-scale", target_transform="auto").fit(X, skewed)
        assert warped.transform_.name != "none"
        new = np.exp(1.5 * y_new)
        assert warped.log_density(X_new, new).mean() > plain.log_density(X_new, new).mean() + 0.3
        lower, upper = warped.predict_interval(X_new)
        assert np.all(lower > 0) and 0.9 < metrics.coverage(new, lower, upper) < 0.99

    def test_quantiles_and_samples_agree(self):
        X, y = table(n=100)
        model = quick(approximation="exact", target_transform="log").fit(X, np.exp(y))
        draws = model.sample_y(X[:3], 4000, random_state=0)
        quantiles = model.predict_quantiles(X[:3], [0.1, 0.5, 0.9])
        np.testing.assert_allclose(np.quantile(draws, [0.1, 0.5, 0.9], axis=1).T, quantiles, rtol=0.1)
        assert draws.mean(1) == pytest.approx(model.predict(X[:3]), rel=0.05)


def test_one_mistyped_cell_leaves_the_others_of_its_row_their_say():
    """By default it counts as one width outside; the plain process knows nothing of such a row."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (80, 3))
    y = np.sin(3 * X[:, 0]) + 0.05 * rng.normal(size=80)
    row = np.array([[0.5, 0.0, 1000.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = WideGPRegressor(random_state=0, metric="iso", trees="none", posterior="map").fit(X, y)
        plain = WideGPRegressor.plain(random_state=0).fit(X, y)
    mean, sd = model.predict(row, return_std=True)
    assert abs(mean[0] - np.sin(1.5)) < sd[0] < 3 * y.std()
    assert plain.predict(row, return_std=True)[1][0] > 10 * y.std()
