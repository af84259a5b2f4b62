"""y | f ~ p(y | f; psi): densities, derivatives by f and psi, predictions with f ~ N(m, v) integrated out."""

from widegp.likelihoods.base import Likelihood, LikelihoodParameter, Predictive, PsiTerms, Terms, log_exposure
from widegp.likelihoods.bernoulli import Bernoulli
from widegp.likelihoods.counts import NegativeBinomial, Poisson
from widegp.likelihoods.gaussian import Gaussian
from widegp.likelihoods.softmax import Softmax
from widegp.likelihoods.student_t import StudentT

__all__ = [
    "NAMES", "Bernoulli", "Gaussian", "Likelihood", "LikelihoodParameter", "NegativeBinomial", "Poisson",
    "Predictive", "PsiTerms", "Softmax", "StudentT", "Terms", "log_exposure", "make_likelihood",
]  # fmt: skip

NAMES = ("gaussian", "student-t", "logit", "probit", "poisson", "negative-binomial")


def make_likelihood(name: str) -> Likelihood:
    """The likelihood called ``name``, with its starting parameters."""
    made: dict[str, Likelihood] = {
        "gaussian": Gaussian(),
        "student-t": StudentT(),
        "logit": Bernoulli("logit"),
        "probit": Bernoulli("probit"),
        "poisson": Poisson(),
        "negative-binomial": NegativeBinomial(),
    }
    if name not in made:
        raise ValueError(f"Unknown likelihood {name!r}; choose one of {', '.join(map(repr, NAMES))}.")
    return made[name]
