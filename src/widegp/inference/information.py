"""What the data say about a direction of the parameters against what their priors say.

A direction v of z is undetermined where the data's information is below the prior's: v' D v < v' P v, with D
the Hessian of -log p(y | X, theta) in z and P = diag(1 / Var z_j) under the priors. Seeing the data has then
narrowed the prior's standard deviation by less than a factor of sqrt 2. The extremes of v' D v / v' P v are
the eigenvalues of D v = ratio P v.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from widegp.kernels.parameters import Map
from widegp.kernels.priors import Prior

# The one threshold: data's information over the prior's.
UNDETERMINED = 1.0
# Information of a parameter without a prior: a standard deviation of a hundred in z.
NO_PRIOR = 1e-4
POINTS = 4001


class Ratio(NamedTuple):
    """A unit direction of z (p,), the data's information over the prior's along it, and the posterior sd."""

    direction: np.ndarray
    ratio: float
    sd: float

    @property
    def undetermined(self) -> bool:
        return self.ratio < UNDETERMINED


def prior_information(prior: Prior | None, mapped: Map, lower: float, upper: float) -> float:
    """1 / Var z for a parameter x = forward(z) in [lower, upper], exp(-penalty) being the density of z.

    The variance, not the curvature at a point: a Beta prior is all but flat in the logit near 0 and 1.
    """
    if prior is None:
        return NO_PRIOR
    ends = mapped.inverse(np.array([lower, upper]))
    z = np.linspace(ends[0], ends[1], POINTS)
    loss = prior.each(mapped.forward(z))
    weight = np.exp(loss.min() - loss)
    weight /= weight.sum()
    return 1 / float(weight @ (z - weight @ z) ** 2)


def ratios(data: np.ndarray, prior: np.ndarray) -> list[Ratio]:
    """Directions by their ratio, least determined first, for D (p, p) and the diagonal of P (p,).

    They are orthogonal under both D and P: the posterior's precision along each is the sum of the two.
    """
    root = 1 / np.sqrt(prior)
    values, vectors = np.linalg.eigh(root[:, None] * (data + data.T) / 2 * root)
    found = []
    for value, vector in zip(values, (root[:, None] * vectors).T, strict=True):
        length = float(np.linalg.norm(vector))
        found.append(Ratio(vector / length, float(value), length / np.sqrt(1 + max(value, 0.0))))
    return found
