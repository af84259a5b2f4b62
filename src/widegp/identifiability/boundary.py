"""Where Proposition (ident_mix) stops: edges of the parameter space, inputs and models, with numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from widegp.identifiability.coordinates import coordinates, four_components
from widegp.identifiability.injectivity import probing_inputs
from widegp.kernels.base import Kernel
from widegp.kernels.closed import LeakyReLU, Mixed, Mixture

ALIASED, SINGULAR, REGULAR = "aliased", "singular", "regular"
RANK_TOLERANCE = 1e-10


@dataclass(frozen=True)
class BoundaryCase:
    """One edge, and two parameter points on it.

    ``verdict``: ``"aliased"``, different parameters give one kernel; ``"singular"``, kernels differ but only
    to second order, so that the information is singular; ``"regular"``, nothing is lost.
    ``distance`` is that of the two points, ``gap`` the largest difference of their kernels over the largest
    entry; ``rank`` of the derivatives of the kernel by its ``n_parameters`` parameters, at the first point.
    """

    name: str
    explanation: str
    verdict: str
    first: Kernel
    second: Kernel
    distance: float
    gap: float
    rank: int
    n_parameters: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.verdict}. {self.explanation} Parameters {self.distance:.2g} apart give"
            f" kernels {self.gap:.1g} apart; rank {self.rank} of {self.n_parameters}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        fields = ("name", "explanation", "verdict", "distance", "gap", "rank", "n_parameters")
        return {field: getattr(self, field) for field in fields}


def boundary_cases(seed: int = 0) -> list[BoundaryCase]:
    """Every edge with its demonstration, over inputs that vary norms and angles."""
    X = probing_inputs(3, np.random.default_rng(seed))
    mixed, mixture = _compiled(Mixed(), X), _compiled(four_components(), X)
    cases = [_measured(*case, mixed) for case in (*_edges(), *_regular_edges(), _inverse_slopes())]
    concentrated = _measured(*_concentrated(), _compiled(Mixed(), 2.0 * np.eye(12)))
    return [*cases, _measured(*_four(), mixture), concentrated]


Case = tuple[str, str, str, Kernel, Kernel]


def _edges() -> list[Case]:
    """Edges of Theta on which parameters drop out."""
    return [
        ("w = 0",
         "Only the angular part is left, and it is homogeneous: doubling sigma_a2 and sigma_u2 and halving"
         " sigma_v2 changes nothing.",
         ALIASED, _mixed(w=0.0), _mixed(w=0.0, sigma_a2=2.0, sigma_u2=2.0, sigma_v2=0.5)),
        ("w = 1", "Only the smooth part is left, and alpha is not in it.",
         ALIASED, _mixed(w=1.0, alpha=0.2), _mixed(w=1.0, alpha=0.8)),
        ("alpha = 1",
         "The leaky ReLU is linear; the weight (1 - alpha)^2 of its angular term vanishes with its"
         " derivative, so alpha, w and sigma_v2 move only two coefficients to first order.",
         SINGULAR, _mixed(alpha=1.0), _near_linear(1e-3)),
        ("w = 0 and alpha = 1",
         "A linear network: K = sigma_b2 + sigma_v2 (sigma_a2 + sigma_u2 x.x') is two numbers.",
         ALIASED, _mixed(w=0.0, alpha=1.0, sigma_b2=1.0),
         _mixed(w=0.0, alpha=1.0, sigma_a2=0.5, sigma_u2=2.0, sigma_v2=0.5, sigma_b2=1.75)),
        ("sigma_u2 = 0", "No input acts and K is constant: one number for all parameters.",
         ALIASED, _mixed(sigma_u2=0.0), _constant()),
        ("sigma_v2 = 0", "The network is its output bias; nothing else is in K.",
         ALIASED, _mixed(sigma_v2=0.0), _mixed(sigma_v2=0.0, sigma_a2=3.0, sigma_u2=0.2, alpha=0.1, w=0.9)),
    ]  # fmt: skip


def _regular_edges() -> list[Case]:
    """Edges on which every parameter is still determined, though the proposition leaves them out."""
    return [
        ("alpha = 0",
         "A ReLU beside the smooth part: alpha / (1 - alpha)^2 has slope 1 at 0, nothing is lost.",
         REGULAR, _mixed(alpha=0.0), _mixed(alpha=0.1)),
        ("sigma_a2 = 0", "No hidden bias; the other parameters stay determined.",
         REGULAR, _mixed(sigma_a2=0.0), _mixed(sigma_a2=0.1)),
        ("sigma_b2 = 0", "No output bias; the other parameters stay determined.",
         REGULAR, _mixed(sigma_b2=0.0), _mixed(sigma_b2=0.1)),
    ]  # fmt: skip


def _inverse_slopes() -> Case:
    return (
        "alpha > 1",
        "Slopes alpha and 1/alpha give one kernel, sigma_v2 and w following: alpha must stay below 1.",
        ALIASED, _mixed(alpha=0.5), _with_parts(0.5, 0.5 * 0.5**2, 1 / 0.5),
    )  # fmt: skip


def _four() -> Case:
    return (
        "four components, alpha free",
        "ReLU and leaky ReLU share the angular term, so their two weights and alpha set two coefficients: the"
        " mixture of four is not identified at all unless alpha is known.",
        ALIASED, four_components(alpha=0.5), _other_slope(0.6),
    )  # fmt: skip


def _compiled(kernel: Kernel, X: np.ndarray) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """theta (p,) -> entries of K (q,) and their derivatives by theta (q, p), for kernels of one form."""
    import jax

    at, upper = coordinates(kernel, 1.0), np.triu_indices(len(X))

    def entries(theta):  # type: ignore[no-untyped-def]
        return at.kernel_at(theta)(X)[upper]

    both = jax.jit(lambda theta: (entries(theta), jax.jacfwd(entries)(theta)))

    def call(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            values, slopes = both(theta)
        return np.asarray(values), np.asarray(slopes)

    return call


def _measured(
    name: str, text: str, verdict: str, first: Kernel, second: Kernel, entries: Callable
) -> BoundaryCase:
    a, b = (coordinates(kernel, 1.0, inside=False).theta[:-1] for kernel in (first, second))
    (K, J), (other, _) = entries(a), entries(b)
    lengths = np.linalg.norm(J, axis=0)
    singular = np.linalg.svd(J / np.where(lengths > 0, lengths, 1.0), compute_uv=False)
    return BoundaryCase(
        name, text, verdict, first, second, float(np.linalg.norm(a - b)),
        float(np.abs(K - other).max() / np.abs(K).max()),
        int(np.sum(singular > RANK_TOLERANCE * singular[0])), len(a),
    )  # fmt: skip


def _mixed(**parameters: float) -> Mixed:
    return Mixed().replace(**parameters)


def _with_parts(smooth: float, angular: float, alpha: float) -> Mixed:
    """The K_mix with sigma_v2 w = smooth and sigma_v2 (1 - w) = angular."""
    return _mixed(alpha=alpha, sigma_v2=smooth + angular, w=smooth / (smooth + angular))


def _near_linear(step: float) -> Mixed:
    """alpha = 1 - step with the weights of asin and c as at alpha = 1, sigma_v2 = 1, w = 1/2."""
    return _with_parts(0.5, 0.5 / (1 - step), 1 - step)


def _constant() -> Mixed:
    """Another kernel without inputs, sigma_b2 chosen so that the constant is that of _mixed(sigma_u2=0)."""
    zero = np.zeros((1, 1))
    other = _mixed(sigma_u2=0.0, sigma_a2=0.5, alpha=0.3)
    return other.replace(sigma_b2=1.0 + float(_mixed(sigma_u2=0.0)(zero)[0, 0] - other(zero)[0, 0]))


def _other_slope(alpha: float) -> Mixture:
    """The four components with another slope: weights V_m = sigma_v2 w_m that keep all coefficients.

    V_leaky alpha and V_relu + V_leaky (1 - alpha)^2 are the weights of c and J.
    """
    V, old = np.full(4, 0.25), 0.5
    linear, angle = V[3] * old, V[2] + V[3] * (1 - old) ** 2
    leaky = linear / alpha
    new = np.array([V[0], V[1], angle - leaky * (1 - alpha) ** 2, leaky])
    leaky_relu = LeakyReLU().replace(alpha=alpha)
    return Mixture(["tanh", "sigmoid", "relu", leaky_relu], new / new.sum(), sigma_v2=float(new.sum()))


def _concentrated() -> Case:
    """Rows of one norm at right angles: K has one value on the diagonal and one off it."""
    X = 2.0 * np.eye(2)
    first, shape = Mixed(), _mixed(alpha=0.3, w=0.4, sigma_a2=0.5, sigma_b2=0.0)
    K, M = first(X), shape(X)
    v = (K[0, 0] - K[0, 1]) / (M[0, 0] - M[0, 1])
    second = shape.replace(sigma_v2=float(v), sigma_b2=float(K[0, 0] - v * M[0, 0]))
    return (
        "inputs of one norm at right angles",
        "What uniform inputs tend to in many dimensions: K has two different entries and tells two numbers.",
        ALIASED, first, second,
    )  # fmt: skip
