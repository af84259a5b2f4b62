"""Undetermined directions: the data's information against the prior's, in fits and in `identify` alike."""

import numpy as np
import pytest

from widegp import LogNormal, WideGPRegressor
from widegp.identifiability import identify_table
from widegp.inference.information import NO_PRIOR, prior_information, ratios
from widegp.kernels.parameters import FRACTION, VARIANCE
from widegp.kernels.priors import Beta


def table(n: int, n_inputs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, n_inputs))
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(n)


def test_information_of_priors():
    """Var log x of a log-normal is spread^2; Var logit x of sqrt(x (1 - x)) d logit is 2 trigamma(1 / 2)."""
    found = prior_information(LogNormal(0.3, 0.5), VARIANCE.map, VARIANCE.lower, VARIANCE.upper)
    assert found == pytest.approx(4.0, rel=1e-3)
    found = prior_information(Beta(1.5, 1.5), FRACTION.map, FRACTION.lower, FRACTION.upper)
    assert found == pytest.approx(1 / np.pi**2, rel=1e-2)
    assert prior_information(None, VARIANCE.map, 1e-9, 1e6) == NO_PRIOR


def test_ratios_are_generalised_eigenvalues():
    import scipy.linalg

    rng = np.random.default_rng(1)
    root = rng.standard_normal((4, 4))
    D, P = root @ root.T, rng.uniform(0.5, 2, 4)
    found = ratios(D, P)
    np.testing.assert_allclose([f.ratio for f in found], scipy.linalg.eigh(D, np.diag(P))[0], rtol=1e-10)
    for one in found:
        v = one.direction
        np.testing.assert_allclose(v @ D @ v / (v @ (P * v)), one.ratio, rtol=1e-8)
        np.testing.assert_allclose(one.sd**-2, v @ (D + np.diag(P)) @ v, rtol=1e-8)


def test_a_firm_prior_leaves_its_parameter_undetermined_and_a_vague_one_does_not():
    """A posterior that is narrow because the prior is, as under the old rule, is not one the data decided."""
    X, y = table(60, 1)
    firm = {"sigma_v2": LogNormal(1.0, 0.05)}
    held = WideGPRegressor.plain(approximation="exact", priors=firm, random_state=0).fit(X, y)
    free = WideGPRegressor.plain(approximation="exact", random_state=0).fit(X, y)
    assert any(abs(d.loadings["sigma_v2"]) > 0.3 and d.sd < 0.5 for d in held.result_.undetermined)
    assert not any(abs(d.loadings["sigma_eps2"]) > 0.5 for d in free.result_.undetermined)


def test_identify_and_the_fit_agree():
    X, y = table(80, 1)
    model = WideGPRegressor.plain(approximation="exact", random_state=0).fit(X, y)
    seen = identify_table(X, y, model, with_profile=False)
    # Expected information there, observed here: numbers of directions may differ by one at the threshold.
    assert abs(len(seen.to_dict()["weak_directions"]) - len(model.result_.undetermined)) <= 1


def test_every_input_has_its_own_direction():
    X, y = table(60, 3)
    model = WideGPRegressor.plain(approximation="exact", ard=True, random_state=0).fit(X, y)
    errors = model.result_.standard_errors
    assert {"sigma_u2", "sigma_u2[0]", "sigma_u2[1]", "sigma_u2[2]"} <= set(errors)
    open_inputs = {name for d in model.result_.undetermined for name, v in d.loadings.items() if abs(v) > 0.5}
    assert "sigma_u2[0]" not in open_inputs


def test_parameters_at_a_bound_are_noted():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40, 1))
    model = WideGPRegressor.plain(approximation="exact", priors=None, random_state=0).fit(X, 2 * X[:, 0])
    assert any("ended at" in note for note in model.result_.notes)


@pytest.mark.parametrize("approximation", ["exact", "vecchia"])
def test_no_jitter_is_reported_where_none_is_added(approximation):
    X, y = table(60, 2)
    model = WideGPRegressor.plain(approximation=approximation, neighbors=5, random_state=0).fit(X, y)
    assert model.result_.jitter == 0.0
