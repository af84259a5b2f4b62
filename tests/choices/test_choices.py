"""Metric, inputs, warp and noise chosen on held-out rows, from splits to the estimator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

import widegp
from widegp import WideGPRegressor, load
from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.choices.left_out import left_out_exactly, left_out_rows
from widegp.choices.moves import LearnMetric
from widegp.choices.search import Candidate, deciding_rows, judged_rows, splits
from widegp.choices.trials import Bench, Form, Trial
from widegp.compute.backend import choose_backend
from widegp.fitting import conditioned
from widegp.inference.objective import Problem, start_values
from widegp.inference.priors import resolve_priors
from widegp.inference.run import OptimizerSettings, Run
from widegp.kernels import Mixed
from widegp.prediction import TrainingRows, make_predictor
from widegp.trees import TreesInput, row_keys
from widegp.warps import make_warp

OPEN = {"metric": "auto", "noise": "auto", "scale_inputs": "auto", "target_transform": "auto"}


def few_of_many(n=180, seed=0):
    """A function of one direction among eight inputs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8))
    return X, np.sin(1.5 * (X[:, 0] - X[:, 1])) + 0.1 * rng.normal(size=n)


@given(st.integers(10, 5000), st.integers(0, 5))
def test_rows_held_out_are_never_fitted_and_small_tables_hold_every_row_out_once(n, seed):
    pairs = splits(n, seed)
    assert all(np.intersect1d(fitted, held).size == 0 for fitted, held in pairs)
    assert len({len(fitted) for fitted, _ in pairs}) == 1
    if len(pairs) > 1:
        held = np.concatenate([held for _, held in pairs])
        assert np.array_equal(np.sort(held), np.arange(n))


def scored(loss, squares):
    none = np.zeros(0)
    trial = Trial(Form("standard"), {}, None, None, None, np.asarray(loss), np.asarray(squares), none, none)
    return Candidate((), (trial,))


def test_a_difference_within_its_noise_goes_to_the_simpler():
    rng = np.random.default_rng(0)
    plain, noise = rng.normal(size=400), rng.normal(size=400)
    ones = np.ones(400)
    assert not scored(plain + noise - 0.05, ones).against(scored(plain, ones), "").kept
    assert scored(plain + 0.1 * noise - 0.05, ones).against(scored(plain, ones), "").kept
    # A better density buys a mean that is worse by 0.15 of the gain, or by a hundredth, and no more.
    assert scored(plain - 0.2, 1.029**2 * ones).against(scored(plain, ones), "").kept
    assert not scored(plain - 0.2, 1.031**2 * ones).against(scored(plain, ones), "").kept
    # Nats that repeated targets give away buy a twentieth at most.
    assert scored(plain - 3.0, 1.049**2 * ones).against(scored(plain, ones), "").kept
    assert not scored(plain - 3.0, 1.051**2 * ones).against(scored(plain, ones), "").kept
    assert not scored(plain - 0.05, 1.03 * ones).against(scored(plain, ones), "").kept


def bench(X, y, n_fit):
    kernel = Mixed(sigma_u2=1.0 / X.shape[1])
    problems = [
        Problem(kernel, y, make_warp("none"), resolve_priors("default", kernel, X.shape[1], each))
        for each in (False, True)
    ]
    rows, run = np.arange(len(X)), Run(OptimizerSettings("lbfgs", 100))
    scale = {"offset": 0.0, "scale": 1.0}
    held = rows[n_fit:]
    start = start_values(kernel, 0.04, np.zeros(0), None)
    made = Bench({"none": X}, *problems, scale, rows[:n_fit], held, run, choose_backend(kernel), 0)
    return made, start


def test_the_learned_metric_turns_with_the_inputs():
    X, y = few_of_many()
    Q = ortho_group.rvs(8, random_state=1)
    trials = []
    for rows in (X, X @ Q):
        made, start = bench(rows, y, 120)
        first = made.explored(Form("none"), start).with_curvature()
        trials.append(LearnMetric(0.5).apply(made, first))
    one, other = trials
    np.testing.assert_allclose(one.form.linear, Q @ other.form.linear @ Q.T, atol=2e-4)
    np.testing.assert_allclose(one.loss, other.loss, atol=2e-3)
    # It finds the direction, and predicts better with it.
    leading = np.linalg.eigh(one.form.linear)[1][:, -1]
    assert abs(leading[0] - leading[1]) > 1.3


def test_rows_left_out_of_an_exact_fit_are_those_of_fits_without_them():
    X, y = few_of_many(40)
    kernel, noise = Mixed(sigma_u2=0.2), 0.05
    spread = np.exp(0.3 * X[:, 2])
    K = kernel(X) + noise * np.diag(spread)
    from widegp.approximations.dense import DensePosterior

    posterior = DensePosterior(kernel, noise, X, np.linalg.solve(K, y), np.linalg.cholesky(K))
    found = left_out_exactly(posterior, noise * spread)
    for i in (0, 7, 39):
        rest = np.delete(np.arange(40), i)
        weights = np.linalg.solve(K[np.ix_(rest, rest)], K[rest, i])
        assert found.residual[i] == pytest.approx(y[i] - weights @ y[rest])
        assert found.latent[i] + noise * spread[i] == pytest.approx(K[i, i] - weights @ K[rest, i])


def test_rows_left_out_beside_neighbours_are_near_those_of_an_exact_fit():
    X, y = few_of_many(300)
    kernel, backend = Mixed(sigma_u2=0.2), choose_backend(Mixed())
    from widegp.approximations.evaluation import Observed

    with backend.scope():
        dials = (Dials(name, 30, 20, "kmeans", "random", None) for name in ("exact", "full-scale"))
        exact, near = (Builder(X, each, backend, 0) for each in dials)
        observed = Observed(y, 0.05)
        dense = exact.likelihood(exact.layout(kernel)).posterior(kernel, observed)
        layout = near.layout(kernel)
        posterior = near.likelihood(layout).posterior(kernel, observed)
    rows = TrainingRows(X, y, kernel, 100)
    truth = left_out_exactly(dense, np.full(300, 0.05))
    found = left_out_rows(posterior, rows, np.arange(60))
    assert np.corrcoef(found.residual, truth.residual[:60])[0, 1] > 0.97
    assert np.median(found.latent / truth.latent[:60]) == pytest.approx(1, abs=0.15)


def test_the_default_choices_find_few_inputs_among_many_and_are_kept_in_a_file(tmp_path):
    X, y = few_of_many(200)
    model = WideGPRegressor(random_state=0, **OPEN).fit(X[:120], y[:120])
    plain = WideGPRegressor.plain(random_state=0).fit(X[:120], y[:120])
    errors = [np.sqrt(np.mean((m.predict(X[120:]) - y[120:]) ** 2)) for m in (model, plain)]
    assert errors[0] < 0.8 * errors[1]
    assert any("held-out training rows" in note for note in model.result_.notes)
    model.save(tmp_path / "m.widegp")
    again = widegp.load(tmp_path / "m.widegp")
    np.testing.assert_array_equal(again.predict(X[120:]), model.predict(X[120:]))
    same = WideGPRegressor(random_state=0, **OPEN).fit(X[:120], y[:120])
    np.testing.assert_array_equal(same.predict(X[120:]), model.predict(X[120:]))


@pytest.mark.slow
def test_noise_that_varies_is_recovered_and_predicted():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 1))
    sd = 0.4 * np.exp(0.6 * X[:, 0])
    y = np.sin(2 * X[:, 0]) + sd * rng.normal(size=600)
    model = WideGPRegressor.plain(random_state=0, noise="varying").fit(X, y)
    grid = np.linspace(-1.8, 1.8, 60)[:, None]
    ratio = model.predict(grid, return_std=True)[1] / (0.4 * np.exp(0.6 * grid[:, 0]))
    assert np.sqrt(np.mean(np.log(ratio) ** 2)) < 0.1
    draws = model.sample_y(np.repeat(grid[[0, -1]], 2, 0), 2000).std(1)
    np.testing.assert_allclose(draws[[0, 2]], model.predict(grid[[0, -1]], return_std=True)[1], rtol=0.1)


@pytest.mark.parametrize("changes", [{"budget": 60.0}, {"optimizer": "adam", "max_iter": 3}])
def test_a_budget_and_adam_turn_the_choices_off(changes):
    X, y = few_of_many(120)
    model = WideGPRegressor(random_state=0, **(OPEN | {"target_transform": None} | changes)).fit(X, y)
    assert model.metric_ is None and model.result_.notes == ()


def test_without_a_noise_model_the_spread_is_that_of_the_posterior_and_one_noise():
    X, y = few_of_many(60)
    model = WideGPRegressor.plain(random_state=0).fit(X, y)
    fitted = model.fitted_
    moments = make_predictor(fitted.posterior, fitted.rows).predict(fitted.inputs.transform(X))
    np.testing.assert_allclose(
        model.predict(X, return_std=True)[1],
        fitted.target.sd * np.sqrt(moments.variance + fitted.posterior.noise),
    )


@given(st.integers(300, 40_000), st.integers(0, 5))
def test_rows_that_judge_are_among_those_that_decide_and_are_not_fitted_in_trials(n, seed):
    judged, deciding = judged_rows(n, seed), deciding_rows(n, seed)
    assert np.isin(judged, deciding).all() and 3 * len(judged) <= len(deciding) <= 12_000
    if n >= 3000:
        ((fitted, held),) = splits(n, seed)
        assert np.isin(judged, held).all() and not np.isin(judged, fitted).any()


def steps(n):
    """Boxes of constant value, which trees see at once and a smooth process does not."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    y = np.where((X[:, 0] > 0.2) ^ (X[:, 1] > -0.1), 1.0, -1.0) + 0.1 * rng.standard_normal(n)
    return X, y


STEPS = {"max_iter": 5, "random_state": 0, "scale_inputs": "standard", "target_transform": None}
STEPS |= {"metric": "iso", "noise": "constant"}


@pytest.fixture(scope="module")
def beside_trees():
    X, y = steps(800)
    return WideGPRegressor(**STEPS).fit(X[:400], y[:400]), X, y


def test_trees_join_the_inputs_where_they_predict_better_and_go_into_the_file(beside_trees, tmp_path):
    model, X, y = beside_trees
    alone = WideGPRegressor(**STEPS, trees="none").fit(X[:400], y[:400])
    assert any("trees beside the inputs" in note for note in model.result_.notes)
    assert np.std(y[400:] - model.predict(X[400:])) < 0.8 * np.std(y[400:] - alone.predict(X[400:]))
    model.save(tmp_path / "model.widegp")
    same = load(tmp_path / "model.widegp").predict_distribution(X[400:])
    np.testing.assert_array_equal(same.mean, model.predict_distribution(X[400:]).mean)


def test_trees_are_compared_by_rows_that_have_not_grown_them_and_grown_on_all_for_good(monkeypatch):
    X, _ = steps(400)
    grown, fit = [], TreesInput.fit

    def recorded(rows, *given, weight, **named):
        grown.append(set(row_keys(rows[weight > 0])))
        return fit(rows, *given, weight=weight, **named)

    monkeypatch.setattr(TreesInput, "fit", recorded)
    y = np.where(X[:, 0] > 0, 1.0, -1.0) + 0.1 * np.random.default_rng(1).standard_normal(len(X))
    model = WideGPRegressor(**STEPS).fit(X, y)
    keys = row_keys(model.fitted_.inputs.parts[0].transform(X))
    judged = judged_rows(len(X), model.fitted_.seed)
    assert grown[0] == set(np.delete(keys, judged))
    assert grown[1:] == [set(keys)]


def test_conditioning_on_the_same_rows_again_changes_nothing_beside_trees(beside_trees):
    model, X, y = beside_trees
    again = conditioned(model, model.fitted_, X[:400], y[:400])
    new = np.random.default_rng(1).uniform(-1, 1, (50, 3))
    np.testing.assert_allclose(again.mean(new), model.predict(new), rtol=1e-6, atol=1e-8)
