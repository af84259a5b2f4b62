"""Injectivity inside the parameter space, and each edge where it fails."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import reference_value

from widegp.identifiability import boundary_cases, injectivity_check
from widegp.identifiability.boundary import ALIASED, REGULAR, SINGULAR
from widegp.kernels import Mixed


@pytest.fixture(scope="module")
def report():
    return injectivity_check(200, seed=1)


@pytest.fixture(scope="module")
def cases():
    return {case.name: case for case in boundary_cases()}


def test_different_parameters_give_different_kernels(report):
    assert report.injective and report.to_dict()["injective"]
    assert np.all(report.gap > 0)
    assert 1e-7 < report.hardest_ratio <= np.min((report.gap / report.distance)[report.distance > 0.5])
    assert report.smallest_slope > 1e-7


def test_the_reported_pairs_have_the_reported_ratio(report):
    inputs = np.random.default_rng(5).normal(size=(6, 3))
    for pair in (report.pair, report.hardest_pair):
        first, second = (dict(zip(report.names, map(float, theta), strict=True)) for theta in pair)
        gaps = [
            reference_value("mixed", x, x, first) - reference_value("mixed", x, x, second) for x in inputs
        ]
        # Other inputs than those of the check, 50 digits: still not the same kernel.
        assert np.max(np.abs(gaps)) > 1e-8


def test_the_search_keeps_its_pair_apart_and_inside(report):
    fraction = np.array([name in ("alpha", "w") for name in report.names])
    zeta = np.where(fraction, np.log(report.hardest_pair / (1 - np.where(fraction, report.hardest_pair, 0))),
                    np.log(report.hardest_pair))  # fmt: skip
    assert np.linalg.norm(zeta[0] - zeta[1]) > 0.49
    assert np.all(np.abs(zeta) < 2.945)


def test_every_edge_does_what_it_says(cases):
    assert len(cases) == 12
    for case in cases.values():
        if case.verdict == ALIASED:
            assert case.gap < 1e-14 and case.distance > 0.1, case
        elif case.verdict == SINGULAR:
            assert case.rank < case.n_parameters and 0 < case.gap < 1e-5, case
        else:
            assert case.rank == case.n_parameters and case.gap > 1e-4, case
        assert case.name in str(case) and case.to_dict()["verdict"] == case.verdict


@pytest.mark.parametrize(
    "name, verdict, rank",
    [
        ("w = 0", ALIASED, 5),
        ("w = 1", ALIASED, 5),
        ("alpha = 1", SINGULAR, 5),
        ("alpha = 0", REGULAR, 6),
        ("sigma_u2 = 0", ALIASED, 2),
        ("alpha > 1", ALIASED, 6),
        ("four components, alpha free", ALIASED, 7),
        ("inputs of one norm at right angles", ALIASED, 2),
    ],
)
def test_how_much_each_edge_loses(cases, name, verdict, rank):
    assert (cases[name].verdict, cases[name].rank) == (verdict, rank)


def test_near_alpha_one_kernels_approach_each_other_quadratically(cases):
    # sigma_v2 w and sigma_v2 (1 - w) alpha stay, so that only the angular term (1 - alpha)^2 J is left over.
    X, gaps = np.random.default_rng(0).normal(size=(20, 3)), []
    for step in (1e-2, 1e-3):
        v = 0.5 + 0.5 / (1 - step)
        other = Mixed(alpha=1 - step, sigma_v2=v, w=0.5 / v)
        gaps.append(np.abs(other(X) - Mixed(alpha=1.0)(X)).max())
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.05)


def test_too_few_pairs_are_refused():
    with pytest.raises(ValueError, match="at least 2"):
        injectivity_check(1)
