"""All approximations, by name: the one place where they are listed."""

from __future__ import annotations

from widegp.approximations.base import Approximation
from widegp.approximations.dense import DenseApproximation
from widegp.approximations.family import FamilyApproximation
from widegp.approximations.nystrom import NystromApproximation
from widegp.approximations.posterior import DegeneratePosterior
from widegp.approximations.sums import Rule

EITHER = ("inputs", "kernel")

APPROXIMATIONS: dict[str, Approximation] = {
    member.name: member
    for member in (
        DenseApproximation("exact", "all rows at once", coarse=False),
        DenseApproximation("subset", "the anchors' rows alone", anchors="rows", coarse=False),
        NystromApproximation("nystrom", "the paper's equation literally", anchors="rows", coarse=False),
        # Anchors are all there is, and rows far out should take no more of them than others.
        FamilyApproximation("dtc", "anchors", "points", ("kernel",), rule=Rule(residual=False)),
        FamilyApproximation("vfe", "anchors, a bound", "points", ("kernel",), rule=Rule(False, trace=True)),
        FamilyApproximation(
            "sor", "anchors, as a linear model", "points", ("kernel",), rule=Rule(residual=False),
            posterior=DegeneratePosterior,
            caveat="Subset of regressors: a sum of as many features as there are anchors, so that variances"
            " are too small far from them; approximation='dtc' has the same means, and what is left besides.",
        ),
        # Beside residuals, which carry what is near, either metric may give the better likelihood: anchors
        # spread over the inputs did on Superconductivity, over the kernel's on YearPredictionMSD.
        FamilyApproximation("fitc", "anchors and residual variances", "points", EITHER),
        FamilyApproximation("vecchia", "neighbours", neighbors=True),
        FamilyApproximation("full-scale", "anchors and neighbours", "points", EITHER, neighbors=True),
    )
}  # fmt: skip


def approximation(name: str) -> Approximation:
    """The approximation called ``name``."""
    if name not in APPROXIMATIONS:
        raise ValueError(
            f"Unknown approximation {name!r}; choose 'auto' or one of {', '.join(APPROXIMATIONS)}."
        )
    return APPROXIMATIONS[name]
