"""y | f ~ p(y | f; psi): densities, derivatives by f and psi, predictions with f ~ N(m, v) integrated out."""

from typing import NoReturn

from widegp.likelihoods.base import Likelihood, LikelihoodParameter, Predictive, PsiTerms, Terms, log_exposure
from widegp.likelihoods.bernoulli import Bernoulli
from widegp.likelihoods.counts import NegativeBinomial, Poisson
from widegp.likelihoods.gamma import Gamma
from widegp.likelihoods.gaussian import Gaussian
from widegp.likelihoods.softmax import Softmax
from widegp.likelihoods.student_t import StudentT

__all__ = [
    "LIKELIHOODS", "NAMES", "Bernoulli", "Gamma", "Gaussian", "Likelihood", "LikelihoodParameter",
    "NegativeBinomial", "Poisson", "Predictive", "PsiTerms", "Softmax", "StudentT", "Terms", "log_exposure",
    "make_likelihood", "refuse_exposure",
]  # fmt: skip

LIKELIHOODS: dict[str, Likelihood] = {
    likelihood.name: likelihood
    for likelihood in (
        Gaussian(),
        StudentT(),
        Bernoulli("logit"),
        Bernoulli("probit"),
        Poisson(),
        NegativeBinomial(),
        Gamma(),
    )
}
"""Likelihoods by the name that settings know them by, at their starting parameters: the one list of them."""

NAMES = tuple(LIKELIHOODS)


def make_likelihood(name: str) -> Likelihood:
    """The likelihood called ``name``, with its starting parameters."""
    if name not in LIKELIHOODS:
        raise ValueError(f"Unknown likelihood {name!r}; choose one of {', '.join(map(repr, NAMES))}.")
    return LIKELIHOODS[name]


def refuse_exposure(name: str) -> NoReturn:
    """Raises: an exposure means nothing under a likelihood whose mean is not proportional to it."""
    able = [repr(other) for other, likelihood in LIKELIHOODS.items() if likelihood.takes_exposure]
    raise ValueError(
        f"exposure is of counts and amounts, not of {name!r}; fit with likelihood={' or '.join(able)}."
    )
