"""Few rows whose kernel is left open: K_mix and a smooth kernel, averaged."""

import numpy as np
import pytest
from scipy.special import logsumexp

import widegp
from widegp import LogNormal, WideGPRegressor
from widegp.explain import explain
from widegp.fitting import conditioned
from widegp.held_out import HeldOut
from widegp.kernels import RBF, Mixed
from widegp.report.parameters import describe_parameters
from widegp.report.summary import summarise


def table(n, seed=0, inputs=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, inputs))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, -1] + 0.2 * rng.standard_normal(n)


def share(model, kernel):
    """Of all members with such a kernel."""
    own = [isinstance(one.posterior.kernel, kernel) for one in model.fitted_.members]
    return float(model.fitted_.weights[own].sum())


@pytest.fixture(scope="module")
def few():
    """Rows too few to hold any out, both kernels of them with a share to see."""
    return table(25)


@pytest.fixture(scope="module")
def model(few):
    return WideGPRegressor(random_state=0).fit(*few)


@pytest.fixture(scope="module")
def smooth():
    """Of a wave, sampled some six times a period: the smooth kernel leads."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-3, 3, (80, 1))
    y = np.sin(4 * X[:, 0]) + 0.1 * rng.standard_normal(80)
    return WideGPRegressor(random_state=0).fit(X, y), X, y


def test_without_rows_to_hold_out_the_evidence_weighs_all_four(few, model):
    """Shares and densities from four fits of their own."""
    plain = [
        WideGPRegressor.plain(kernel, posterior="auto", ard=ard, random_state=0).fit(*few)
        for kernel in ("mixed", "rbf")
        for ard in (False, True)
    ]
    logs = np.array([one.log_evidence_ for one in plain])
    shares = np.exp(logs - logsumexp(logs))
    assert share(model, RBF) == pytest.approx(shares[2:].sum(), abs=0.03)
    assert share(model, RBF) + share(model, Mixed) == pytest.approx(1)
    new, values = np.random.default_rng(5).uniform(-3, 3, (7, 2)), np.linspace(-1, 1, 7)
    parts = np.stack([one.log_density(new, values) for one in plain])
    expected = logsumexp(parts, axis=0, b=shares[:, None])
    np.testing.assert_allclose(model.log_density(new, values), expected, atol=0.03)
    means = shares @ np.stack([one.predict(new) for one in plain])
    np.testing.assert_allclose(model.predict(new), means, atol=0.03)
    best = max(plain, key=lambda one: one.log_evidence_)
    assert type(model.kernel_) is type(best.kernel_)
    assert model.log_evidence_ == pytest.approx(best.log_evidence_, abs=0.05)


def test_a_wave_is_smooth_and_a_step_is_not(smooth):
    model, X, _ = smooth
    assert share(model, RBF) > 0.8 and isinstance(model.kernel_, RBF)
    assert any("rbf with one variance for all inputs" in note for note in model.result_.notes)
    step = np.sign(X[:, 0]) + 0.1 * np.random.default_rng(2).standard_normal(len(X))
    assert share(WideGPRegressor(random_state=0).fit(X, step), RBF) < 0.1


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": "mixed"}, {"kernel": Mixed()}, {"kernel": "tanh"}, {"backend": "native"}, {"priors": None},
        {"priors": {"sigma_u2": LogNormal(1.0, 2.0)}}, {"metric": "iso"}, {"posterior": "laplace"},
        {"approximation": "vfe", "rank": 10},
    ],
    ids=str,
)  # fmt: skip
def test_who_says_more_has_one_kernel(few, settings):
    fitted = WideGPRegressor(random_state=0, **settings).fit(*few).fitted_
    assert len({type(one.kernel) for one in fitted.models}) == 1
    assert not isinstance(fitted.kernel, RBF)


def test_more_than_few_rows_have_one_kernel():
    X, y = table(301)
    settings = {"trees": "none", "scale_inputs": "standard", "target_transform": None, "noise": "constant"}
    left, named = (
        WideGPRegressor(kernel, random_state=0, **settings).fit(X, y) for kernel in ("auto", "mixed")
    )
    assert isinstance(left.kernel_, Mixed)
    np.testing.assert_array_equal(left.predict(X[:9]), named.predict(X[:9]))


@pytest.fixture(params=["mixed leads", "rbf leads"])
def either(request, few, model, smooth):
    """A model of each kernel beside members of the other, and its rows."""
    if request.param == "rbf leads":
        return smooth
    rng = np.random.default_rng(3)
    X = rng.uniform(-3, 3, (30, 1))
    y = np.abs(X[:, 0]) + 0.3 * rng.standard_normal(30)
    return WideGPRegressor(random_state=0).fit(X, y), X, y


def test_both_kernels_are_kept_in_a_file_and_grow(either, tmp_path):
    model, X, y = either
    assert {type(one.kernel) for one in model.fitted_.models} == {Mixed, RBF}
    model.save(tmp_path / "model.widegp")
    loaded = widegp.load(tmp_path / "model.widegp")
    for ask in (lambda m: m.predict(X), lambda m: m.log_density(X, y), lambda m: m.sample_y(X, 3)):
        np.testing.assert_array_equal(ask(loaded), ask(model))
    again = conditioned(model, model.fitted_, X, y)
    np.testing.assert_allclose(again.mean(X), model.predict(X), rtol=1e-5, atol=1e-7)
    new = np.array([[0.05], [0.1]])
    grown = loaded.update(new, model.predict(new))
    both = conditioned(model, model.fitted_, np.vstack([X, new]), np.append(y, model.predict(new)))
    np.testing.assert_allclose(grown.predict(X), both.mean(X), rtol=1e-5, atol=1e-6)


def test_both_kernels_are_reported_and_explained(either):
    model, X, y = either
    word = "rbf" if isinstance(model.kernel_, RBF) else "mixed"
    told = summarise(model, HeldOut.of(model, X, y), explanation=explain(model, X))
    assert told["model"]["kernel"] == word
    assert {row["name"].split("[")[0] for row in describe_parameters(model)} >= set(model.params_) - {"psi"}
    assert model.posterior_.labels == tuple(model.result_.credible_intervals)
