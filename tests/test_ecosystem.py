"""The regressor among its neighbours: joblib, pickle, pandas, polars, pipelines, meta-estimators, skops."""

from __future__ import annotations

import copy
import pickle
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import VotingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from widegp import WideGPRegressor, kernels
from widegp.approximations.registry import APPROXIMATIONS as NAMES
from widegp.kernels import FromActivation

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(1.2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


def quick(**settings):
    """A few steps from one start; what these tests ask does not depend on a good fit."""
    defaults = {"approximation": "exact", "rank": 10, "neighbors": 5, "predict_neighbors": 20, "max_iter": 3}
    return WideGPRegressor.plain(**(defaults | {"start": {"sigma_u2": 0.3}, "random_state": 0} | settings))


@pytest.fixture(scope="module")
def processes():
    """Two worker processes, which end with the tests; a new process does not know pytest's filters."""
    from joblib.externals.loky import get_reusable_executor

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", "ignore")
        with joblib.parallel_config("loky", inner_max_num_threads=1):
            yield
    get_reusable_executor().shutdown(wait=True)


class TestJoblib:
    def test_folds_in_processes_score_as_in_one(self, processes):
        X, y = table()
        serial = cross_val_score(quick(), X, y, cv=3, n_jobs=1, error_score="raise")
        parallel = cross_val_score(quick(), X, y, cv=3, n_jobs=2, error_score="raise")
        np.testing.assert_allclose(parallel, serial, rtol=1e-9)

    @pytest.mark.slow
    def test_a_grid_of_kernels_and_dials_in_processes(self, processes):
        X, y = table()
        linear = kernels.LeakyReLU(alpha=0.999)  # its draws are straight lines, which the target is not
        grid = {"kernel": [linear, kernels.Tanh(sigma_u2=0.3)], "approximation": ["exact", "full-scale"]}
        search = GridSearchCV(
            quick(max_iter=0, start={"sigma_b2": 0.5}), grid, cv=2, n_jobs=2, error_score="raise"
        )
        search.fit(X, y)
        assert isinstance(search.best_params_["kernel"], kernels.Tanh)
        assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))

    def test_threads_do_not_disturb_each_other(self):
        X, y = table()
        model = quick(approximation="full-scale")
        serial = cross_val_score(model, X, y, cv=4, n_jobs=1, error_score="raise")
        with joblib.parallel_config("threading"):
            parallel = cross_val_score(model, X, y, cv=4, n_jobs=2, error_score="raise")
        # BLAS may use another number of threads meanwhile, and sum in another order.
        np.testing.assert_allclose(parallel, serial, rtol=1e-9)


class TestPickle:
    @pytest.mark.parametrize("approximation", sorted(NAMES))
    def test_a_copy_predicts_the_same_to_the_last_bit(self, approximation, tmp_path):
        X, y = table()
        model = quick(approximation=approximation, target_transform="sinh-arcsinh").fit(X, y)
        model.predict(X)  # builds the index of neighbours, which is then copied too
        joblib.dump(model, tmp_path / "model.joblib", compress=3)
        copies = (
            pickle.loads(pickle.dumps(model)),
            joblib.load(tmp_path / "model.joblib"),
            copy.deepcopy(model),
        )
        for other in copies:
            np.testing.assert_array_equal(
                other.predict(X, return_std=True), model.predict(X, return_std=True)
            )
            np.testing.assert_array_equal(other.predict_interval(X), model.predict_interval(X))
            assert other.params_ == model.params_ and other.result_.reason is model.result_.reason

    def test_an_unfitted_copy_fits_the_same(self):
        X, y = table()
        model = quick(kernel=kernels.Mixture(["tanh", "relu"], sigma_u2=0.3), priors=None)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.fit(X, y).predict(X), model.fit(X, y).predict(X))

    @pytest.mark.skipif(not hasattr(FromActivation, "__setstate__"), reason="FromActivation does not pickle")
    @pytest.mark.parametrize("kernel", [kernels.exact_tanh, kernels.exact_sigmoid], ids=["tanh", "sigmoid"])
    def test_ready_made_quadrature_kernels_are_pickled(self, kernel):
        again = pickle.loads(pickle.dumps(kernel.replace(sigma_u2=0.3, terms=64)))
        X = table(5)[0]
        assert again.fn is kernel.fn and again.terms == 64
        np.testing.assert_array_equal(again(X), kernel.replace(sigma_u2=0.3, terms=64)(X))

    def test_skops_writes_and_reads_a_fitted_model(self):
        io = pytest.importorskip("skops.io")
        X, y = table()
        for approximation in ("exact", "full-scale"):
            model = quick(approximation=approximation).fit(X, y)
            data = io.dumps(model)
            foreign = io.get_untrusted_types(data=data)
            assert all(name.startswith("widegp.") for name in foreign)
            np.testing.assert_array_equal(io.loads(data, trusted=foreign).predict(X), model.predict(X))


class TestFrames:
    names = ("depth", "age", "dose")

    def frames(self, X):
        pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
        frame = pandas.DataFrame(X, columns=list(self.names))
        yield frame
        yield frame.convert_dtypes()  # pandas' own nullable numbers
        yield polars.DataFrame(X, schema=list(self.names))

    def test_every_kind_of_frame_gives_the_arrays_answer(self):
        X, y = table()
        expected = quick().fit(X, y).predict(X)
        for frame in self.frames(X):
            model = quick().fit(frame, y)
            assert list(model.feature_names_in_) == list(self.names)
            np.testing.assert_array_equal(model.predict(frame), expected)

    def test_arrow_columns_and_integers(self):
        pytest.importorskip("pyarrow")
        pandas = pytest.importorskip("pandas")
        X, y = table()
        whole = np.round(10 * X)
        frame = pandas.DataFrame(whole, columns=list(self.names)).astype("int64[pyarrow]")
        expected = quick().fit(whole, y).predict(whole)
        np.testing.assert_array_equal(quick().fit(frame, y).predict(frame), expected)

    def test_columns_in_another_order_are_refused(self):
        X, y = table()
        for frame in self.frames(X):
            model = quick().fit(frame, y)
            with pytest.raises(ValueError, match="same order"):
                model.predict(frame[list(self.names[::-1])])

    def test_a_missing_value_is_refused(self):
        X, y = table()
        X[3, 1] = np.nan
        for frame in self.frames(X):
            with pytest.raises(ValueError, match="contains NaN"):
                quick().fit(frame, y)

    def test_sparse_tables_are_refused_with_the_cure(self):
        X, y = table()
        with pytest.raises(TypeError, match="dense data is required"):
            quick().fit(sparse.csr_array(X), y)


class TestPipelines:
    @pytest.mark.parametrize("library", ["pandas", "polars"])
    def test_names_arrive_through_set_output(self, library):
        pandas = pytest.importorskip("pandas")
        pytest.importorskip(library)
        X, y = table()
        frame = pandas.DataFrame(X, columns=["depth", "age", "dose"])
        model = make_pipeline(StandardScaler(), quick()).set_output(transform=library)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*feature names.*")
            model.fit(frame, y).predict(frame)
        assert list(model[-1].feature_names_in_) == ["depth", "age", "dose"]

    def test_categories_beside_numbers(self):
        pandas = pytest.importorskip("pandas")
        X, y = table()
        frame = pandas.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 1] > 0, "a", "b")})
        encoder = ColumnTransformer(
            [("kind", OneHotEncoder(sparse_output=False), ["kind"])], remainder="passthrough"
        )
        model = make_pipeline(encoder, quick(ard=True)).set_output(transform="pandas").fit(frame, y)
        assert list(model[-1].feature_names_in_) == ["kind__kind_a", "kind__kind_b", "remainder__x"]
        assert model[-1].input_importance_.shape == (3,)

    def test_spread_and_latent_pass_through_a_pipeline(self):
        X, y = table()
        model = make_pipeline(StandardScaler(), quick()).fit(X, y)
        mean, sd = model.predict(X, return_std=True)
        _, latent = model.predict(X, return_std=True, latent=True)
        np.testing.assert_array_equal(mean, model.predict(X))
        assert np.all(latent < sd)

    def test_a_transformed_target_is_the_fit_on_it_mapped_back(self):
        X, y = table()
        wrapped = TransformedTargetRegressor(quick(), func=np.log, inverse_func=np.exp).fit(X, np.exp(y))
        np.testing.assert_allclose(wrapped.predict(X), np.exp(quick().fit(X, y).predict(X)), rtol=1e-8)

    def test_under_metadata_routing(self):
        X, y = table()
        plain = cross_val_score(make_pipeline(StandardScaler(), quick()), X, y, cv=2)
        with sklearn.config_context(enable_metadata_routing=True):
            routed = cross_val_score(make_pipeline(StandardScaler(), quick()), X, y, cv=2)
        np.testing.assert_array_equal(routed, plain)


class TestMetaEstimators:
    def test_voting_is_the_mean_of_its_members(self):
        X, y = table()
        members = [("mixed", quick()), ("relu", quick(kernel="relu"))]
        vote = VotingRegressor(members).fit(X, y).predict(X)
        np.testing.assert_allclose(vote, np.mean([clone(m).fit(X, y).predict(X) for _, m in members], 0))

    def test_permutation_importance_finds_the_idle_input(self):
        X, y = table()
        model = quick(max_iter=30).fit(X, y)
        drops = permutation_importance(model, X, y, n_repeats=3, random_state=0).importances_mean
        assert np.argsort(-drops).tolist() == [0, 1, 2]

    def test_an_unconverged_fit_warns_once_for_callers_to_catch(self):
        X, y = table()
        with pytest.warns(ConvergenceWarning, match="not converged") as caught:
            quick(max_iter=1).fit(X, y)
        assert len([w for w in caught if w.category is ConvergenceWarning]) == 1
