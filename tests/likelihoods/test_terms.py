"""Densities and derivatives against SciPy's distributions and derivatives of 50 digits by mpmath."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from likelihoods.cases import IDS, LIKELIHOODS, mp_log_p, targets
from widegp.fitted_warp import FittedWarp
from widegp.inference.parameters import declared_parameters
from widegp.kernels import NAMES as KERNELS
from widegp.likelihoods import (
    NAMES,
    Bernoulli,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Poisson,
    Softmax,
    StudentT,
    log_exposure,
    make_likelihood,
)

each = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=IDS)
# Far out in both tails, where naive formulas cancel or overflow.
FAR = [-60.0, -38.0, -26.0, -12.0, -5.01, -4.99, -1.0, 0.0, 0.3, 4.0, 9.0, 30.0]


def scipy_log_density(likelihood, y, f):
    match likelihood.name:
        case "gaussian":
            return stats.norm.logpdf(y, f, np.sqrt(likelihood.variance))
        case "student-t":
            return stats.t.logpdf(y, likelihood.nu, f, likelihood.scale)
        case "logit":
            return stats.bernoulli.logpmf(y, stats.logistic.cdf(f))
        case "probit":
            return stats.bernoulli.logpmf(y, stats.norm.cdf(f))
        case "poisson":
            return stats.poisson.logpmf(y, np.exp(f))
        case "gamma":
            return stats.gamma.logpdf(y, likelihood.shape, scale=np.exp(f) / likelihood.shape)
    r = 1 / likelihood.dispersion
    return stats.nbinom.logpmf(y, r, r / (r + np.exp(f)))


@each
def test_density_is_scipys(likelihood):
    y, f = targets(likelihood, 200)
    np.testing.assert_allclose(
        likelihood.terms(y, f).log_p, scipy_log_density(likelihood, y, f), rtol=1e-10, atol=1e-11
    )


@each
@pytest.mark.parametrize("f", FAR)
def test_derivatives_by_f_have_their_digits_in_the_tails(likelihood, f):
    y = {0.0, 1.0} if isinstance(likelihood, Bernoulli) else {0.0, 1.0, 7.0, 400.0}
    y -= {0.0} if likelihood.support == "positive" else set()
    for value in sorted(y):
        terms = likelihood.terms(np.array([value]), np.array([f]))
        with mp.workdps(60):
            exact = [mp.diff(lambda t, v=value: mp_log_p(likelihood, v, t), mp.mpf(f), k) for k in range(4)]
        for name, got, want in zip(terms._fields, terms, exact, strict=False):
            # log p is asked for in nats; a mean subtracted from a count costs the last digits of the count.
            least = 1e-11 if name == "log_p" else max(1e-50, 1e-14 * value)
            assert float(got[0]) == pytest.approx(float(want), rel=2e-9, abs=least), (name, value)


@each
def test_derivatives_by_psi(likelihood):
    y, f = targets(likelihood, 12, seed=1)
    got, psi = likelihood.psi_terms(y, f), likelihood.psi
    assert all(part.shape == (12, psi.size) for part in got)
    for k, value in enumerate(psi):
        step = 1e-5 * value * np.eye(psi.size)[k]
        above = likelihood.with_psi(psi + step).terms(y, f)
        below = likelihood.with_psi(psi - step).terms(y, f)
        with mp.workdps(50):
            exact = [
                float(mp.diff(lambda t, i=i, k=k: mp_log_p(
                    likelihood, y[i], float(f[i]), [*psi[:k], t, *psi[k + 1 :]]), mp.mpf(value)))
                for i in range(12)
            ]  # fmt: skip
        np.testing.assert_allclose(got.log_p[:, k], exact, rtol=1e-8, atol=1e-8 * np.abs(exact).max())
        for name in ("d1", "W"):
            numeric = (getattr(above, name) - getattr(below, name)) / (2 * step[k])
            scale = np.abs(getattr(got, name)[:, k]).max()
            np.testing.assert_allclose(getattr(got, name)[:, k], numeric, rtol=1e-6, atol=1e-7 * scale)


@each
def test_curvature_is_positive_and_its_slope_is_right(likelihood):
    y, f = targets(likelihood, 100, seed=2)
    step = 1e-5
    terms = likelihood.terms(y, f)
    assert np.all(terms.W > 0)
    numeric = (likelihood.terms(y, f + step).W - likelihood.terms(y, f - step).W) / (2 * step)
    np.testing.assert_allclose(terms.dW, numeric, rtol=1e-6, atol=1e-8 * np.abs(terms.W).max())
    # Fisher information: W = E[-d2] = E[d1^2]; where W = -d2 nothing need be averaged over more than y.
    if isinstance(likelihood, StudentT):
        density = lambda e: stats.t.pdf(e, likelihood.nu, 0, likelihood.scale)  # noqa: E731
        squared = lambda e: likelihood.terms(np.array([e]), np.zeros(1)).d1[0] ** 2 * density(e)  # noqa: E731
        assert terms.W[0] == pytest.approx(2 * integrate.quad(squared, 0, np.inf, limit=200)[0], rel=1e-8)
    else:
        np.testing.assert_array_equal(terms.W, -terms.d2)


@settings(max_examples=40, deadline=None)
@given(f=st.floats(-5, 4), dispersion=st.floats(1e-3, 5))
def test_count_densities_add_up_to_one(f, dispersion):
    for likelihood in (Poisson(), NegativeBinomial(dispersion)):
        mean = np.exp(f)
        most = int(mean + 60 * np.sqrt(mean + dispersion * mean**2) + 60)
        y = np.arange(most, dtype=float)
        p = np.exp(likelihood.terms(y, np.full(most, f)).log_p)
        tail = 1 - likelihood.below(np.array(most - 1.0), np.array(f))
        assert p.sum() + tail == pytest.approx(1, abs=1e-11)
        assert p @ y == pytest.approx(mean, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(f=st.floats(-5, 5), nu=st.floats(2.1, 100), scale=st.floats(0.1, 5))
def test_student_density_integrates_to_one(f, nu, scale):
    likelihood = StudentT(nu, scale)
    density = lambda y: np.exp(likelihood.terms(np.array([y]), np.array([f])).log_p[0])  # noqa: E731
    total = sum(integrate.quad(density, *ends, limit=200)[0] for ends in ((-np.inf, f), (f, np.inf)))
    assert total == pytest.approx(1, abs=1e-8)


@each
def test_level_and_start_suit_the_target(likelihood):
    rng = np.random.default_rng(3)
    y = likelihood.sample(np.full(4000, 0.7), rng)
    assert likelihood.level(y) == pytest.approx(0.7, abs=0.35)
    assert likelihood.level(y, np.full(4000, 0.2)) == pytest.approx(likelihood.level(y) - 0.2, abs=1e-12)
    start = likelihood.start(y)
    assert start.shape == y.shape and np.all(np.isfinite(likelihood.terms(y, start).d1))


@each
def test_draws_have_the_moments_of_the_density(likelihood):
    if likelihood.name == "student-t" and likelihood.nu < 5:
        pytest.skip("fourth moments do not exist, so a mean of squares does not settle")
    rng = np.random.default_rng(4)
    draws = likelihood.sample(np.full(100_000, 0.4), rng)
    known = likelihood.predictive(np.array([0.4]), np.array([0.0]))
    error = np.sqrt(known.variance[0] / draws.size)
    assert draws.mean() == pytest.approx(known.mean[0], abs=5 * error)
    assert draws.var() == pytest.approx(known.variance[0], rel=0.15)


def test_softmax_derivatives_and_agreement_with_logit():
    rng = np.random.default_rng(5)
    likelihood, f = Softmax(4), rng.normal(0, 2, (6, 4))
    y = likelihood.check([0, 1, 2, 3, 3, 1])
    terms, step = likelihood.terms(y, f), 1e-5
    eye = np.eye(4)
    for c in range(4):
        above, below = (likelihood.terms(y, f + side * step * eye[c]) for side in (1, -1))
        np.testing.assert_allclose(terms.d1[:, c], (above.log_p - below.log_p) / (2 * step), atol=1e-9)
        np.testing.assert_allclose(-terms.hessian[:, c], (above.d1 - below.d1) / (2 * step), atol=1e-9)
        np.testing.assert_allclose(terms.W[:, c], terms.hessian[:, c, c], rtol=1e-13)
        np.testing.assert_allclose(terms.dW[:, c], (above.W - below.W)[:, c] / (2 * step), atol=1e-9)
        third = -(above.hessian - below.hessian) / (2 * step)
        np.testing.assert_allclose(terms.third[:, c], third, atol=1e-9)
    t = np.linspace(-30, 30, 13)
    two = Softmax(2).terms(np.ones(13), np.stack([np.zeros(13), t], axis=1))
    np.testing.assert_allclose(two.log_p, Bernoulli().terms(np.ones(13), t).log_p, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(two.d1[:, 1], Bernoulli().terms(np.ones(13), t).d1, rtol=1e-13)
    p = [0.1, 0.2, 0.3, 0.4]
    shares = np.bincount(likelihood.sample(np.tile(np.log(p), (50_000, 1)), rng).astype(int))
    np.testing.assert_allclose(shares / 50_000, p, atol=0.01)


@pytest.mark.parametrize(
    ("likelihood", "y", "words"),
    [
        (Poisson(), [1, 2.5], "2.5 in row 1.*whole numbers"),
        (NegativeBinomial(), [-1, 2], "-1 in row 0.*whole numbers"),
        (Bernoulli(), [0, 1, 2], "2 in row 2.*0 and 1"),
        (Gamma(), [2, 0.0], "0 in row 1.*above 0"),
        (Gaussian(), [0, np.nan], "nan in row 1.*finite"),
        (StudentT(), [[0.0]], "shape"),
        (Softmax(3), [0, 3], "3 in row 1.*0 to 2"),
    ],
)
def test_impossible_targets_are_refused(likelihood, y, words):
    with pytest.raises(ValueError, match=words):
        likelihood.check(y)


@each
def test_what_a_likelihood_says_of_its_targets_is_so(likelihood):
    y, f = targets(likelihood, 400, seed=6)
    likelihood.check(y)
    assert likelihood.discrete == bool(np.all(y == np.floor(y)))
    shifted = -1.0 - y
    if likelihood.scales_target:
        likelihood.check(shifted)
    else:
        with pytest.raises(ValueError, match="in row 0"):
            likelihood.check(shifted)
    # An exposure e multiplies the mean, whatever f.
    certain = np.zeros(3)
    at, above = (likelihood.predictive(np.array([-1.0, 0.2, 2.0]) + c, certain).mean for c in (0, np.log(3)))
    assert likelihood.takes_exposure == bool(np.allclose(above, 3 * at, rtol=1e-12))
    if likelihood.mean_warp is not None:
        warp = FittedWarp(likelihood.mean_warp)
        np.testing.assert_allclose(warp.inverse(np.array([-1.0, 0.2, 2.0])), at, rtol=1e-12)


def test_names_parameters_and_exposure():
    for name in NAMES:
        likelihood = make_likelihood(name)
        assert likelihood.name == name
        assert likelihood.with_psi(likelihood.psi) == likelihood
        np.testing.assert_allclose(likelihood.with_z(likelihood.z).psi, likelihood.psi, rtol=1e-14)
        assert all(p.lower < v < p.upper for p, v in zip(likelihood.parameters, likelihood.psi, strict=True))
        assert all(p.title and p.meaning.endswith(".") for p in likelihood.parameters)
        # A model lists them beside those of its kernel, each under its own name.
        taken = {p.name for kernel in KERNELS.values() for p in declared_parameters(kernel()).values()}
        assert not taken & {p.name for p in likelihood.parameters}
    with pytest.raises(ValueError, match="Unknown likelihood 'beta'"):
        make_likelihood("beta")
    with pytest.raises(ValueError, match="link is 'cloglog'"):
        Bernoulli("cloglog")
    np.testing.assert_array_equal(log_exposure(None, 3), np.zeros(3))
    np.testing.assert_allclose(log_exposure([1, 2], 2), [0, np.log(2)])
    for bad, words in (([1.0], "shape"), ([1.0, 0.0], "row 1")):
        with pytest.raises(ValueError, match=words):
            log_exposure(bad, 2)
