"""The closed-form limit kernels: four activations, their M-component mixture, and K_mix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from widegp.kernels.arc import ArcForm, combine
from widegp.kernels.base import Array, Kernel, as_kernel
from widegp.kernels.moment import VARIANCES, MomentKernel
from widegp.kernels.parameters import ALPHA, WEIGHTS, Parameter, W

Terms = tuple[Array, Array, Array, Array, Array]


class ClosedForm(MomentKernel):
    """A kernel whose moment is a combination of the five functions of `widegp.kernels.arc`."""

    def terms(self) -> Terms:
        """Weights of (1, asin_tanh, asin_sigmoid, c, J) in E[h(Z) h(Z')]."""
        raise NotImplementedError

    def moment(self, c: Array, d: Array, e: Array) -> Array:
        return combine(self.terms(), c, d, e)

    def arc(self) -> ArcForm:
        """The whole kernel, sigma_b2 and sigma_v2 folded into the five coefficients."""
        constant, *rest = (self.sigma_v2 * t for t in self.terms())
        return ArcForm(self.sigma_a2, self.sigma_u2, (self.sigma_b2 + constant, *rest))

    def native_form(self) -> ArcForm:
        return self.arc()

    def summands(self) -> dict[str, Kernel]:
        """The constant; the arcsines of tanh and sigmoid, "smooth"; terms of the leaky ReLU, "angular"."""
        k = self.arc().coefficients
        groups = {
            "level": (k[0], 0.0, 0.0, 0.0, 0.0),
            "smooth": (0.0, k[1], k[2], 0.0, 0.0),
            "angular": (0.0, 0.0, 0.0, k[3], k[4]),
        }
        make: Any = ArcTerms
        hidden = {"sigma_a2": self.sigma_a2, "sigma_u2": self.sigma_u2}
        return {name: make(**hidden, sigma_b2=0.0, given=terms) for name, terms in groups.items()}


@as_kernel
class ArcTerms(ClosedForm):
    """``given``, five numbers, as the weights of the five functions: a part of another kernel."""

    given: Terms = (0.0, 0.0, 0.0, 0.0, 0.0)

    def terms(self) -> Terms:
        return self.given


@as_kernel
class Tanh(ClosedForm):
    """tanh, through tanh(z) ~ erf(sqrt(pi) z / 2), eq. (LCov1): E = (2/pi) asin_{pi/2}(c, d, e).

    The approximation inflates the moment by about 6% at unit variance; `exact_tanh` has none.
    """

    def terms(self) -> Terms:
        return (0.0, 2 / math.pi, 0.0, 0.0, 0.0)


@as_kernel
class Sigmoid(ClosedForm):
    """Logistic sigmoid through erf, eq. (LCov2): E = 1/4 + (1/2 pi) asin_{pi/8}(c, d, e)."""

    def terms(self) -> Terms:
        return (0.25, 0.0, 1 / (2 * math.pi), 0.0, 0.0)


@as_kernel
class ReLU(ClosedForm):
    """max(0, z), eq. (LCov3), exact: E = J(c, d, e)."""

    def terms(self) -> Terms:
        return (0.0, 0.0, 0.0, 0.0, 1.0)


@as_kernel
class LeakyReLU(ClosedForm):
    """max(z, alpha z), eq. (LCov4), exact: E = alpha c + (1 - alpha)^2 J(c, d, e)."""

    alpha: Array = 0.1
    declared: ClassVar[tuple[Parameter, ...]] = (*MomentKernel.declared, ALPHA)
    word: ClassVar[str] = "leaky_relu"

    def terms(self) -> Terms:
        return (0.0, 0.0, 0.0, self.alpha, (1 - self.alpha) ** 2)


@as_kernel
class Mixed(ClosedForm):
    """K_mix, eq. (k_mix_reduced): sigma_b2 + sigma_v2 [w K_smooth + (1 - w) K_angular].

    K_smooth is `Tanh`'s moment, K_angular is `LeakyReLU`'s; ``alpha`` and ``w`` lie in (0, 1).
    """

    alpha: Array = 0.5
    w: Array = 0.5
    declared: ClassVar[tuple[Parameter, ...]] = (*MomentKernel.declared, ALPHA, W)

    def terms(self) -> Terms:
        angular = 1 - self.w
        return (0.0, self.w * (2 / math.pi), 0.0, angular * self.alpha, angular * (1 - self.alpha) ** 2)


@as_kernel
class Mixture(ClosedForm):
    """sigma_b2 + sigma_v2 sum_m w_m E[h_m(Z) h_m(Z')], eq. (kernel_block_mixture).

    The blocks share one hidden layer, so the four variances belong to the mixture; a component
    contributes its activation alone. ``weights`` are divided by their sum.
    """

    components: tuple[ClosedForm, ...] = ()
    weights: Array = None
    declared: ClassVar[tuple[Parameter, ...]] = (*MomentKernel.declared, WEIGHTS)

    def __init__(
        self, components: Sequence[ClosedForm | str] = (), weights: Array | None = None, **variances: Array
    ) -> None:
        members = tuple(_named(c) if isinstance(c, str) else c for c in components)
        if weights is None:
            weights = np.full(len(members), 1 / max(len(members), 1))
        elif isinstance(weights, list | tuple):
            weights = np.asarray(weights, float)
        unknown = set(variances) - set(VARIANCES)
        if unknown:
            raise TypeError(f"Mixture has no parameter {sorted(unknown)}; it has {', '.join(VARIANCES)}.")
        _check_components(members, weights)
        values = {name: variances.get(name, 1.0) for name in VARIANCES}
        values |= {"components": members, "weights": weights}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def terms(self) -> Terms:
        weights = self.weights / self.weights.sum()
        columns = zip(*(c.terms() for c in self.components), strict=True)
        return tuple(
            sum(w * t for w, t in zip(weights, column, strict=True) if not _zero(t)) for column in columns
        )


def _zero(term: Array) -> bool:
    return isinstance(term, float) and term == 0.0


def _check_components(components: tuple[ClosedForm, ...], weights: Array) -> None:
    for component in components:
        if isinstance(component, Kernel) and not isinstance(component, ClosedForm):
            raise TypeError(
                f"{type(component).__name__} has no closed form and cannot be mixed; see Mixture."
            )
        if isinstance(component, ClosedForm):
            moved = [v for v in VARIANCES if _differs_from_one(getattr(component, v))]
            if moved:
                raise ValueError(
                    f"Component {type(component).__name__} sets {', '.join(moved)}, but the components of a"
                    " mixture share one hidden layer: pass the variances to Mixture itself."
                )
    # JAX rebuilds kernels around placeholders, which have no shape to check.
    if isinstance(weights, np.ndarray) and weights.shape != (len(components),):
        raise ValueError(f"{len(components)} components need as many weights; got shape {weights.shape}.")


def _differs_from_one(value: Array) -> bool:
    return isinstance(value, int | float | np.ndarray) and bool(np.any(np.asarray(value) != 1.0))


CLOSED_FORMS: tuple[type[ClosedForm], ...] = (Mixed, Tanh, Sigmoid, ReLU, LeakyReLU)


def _named(word: str) -> ClosedForm:
    """The activation called ``word``, at its default parameters."""
    known = {cls.word: cls for cls in CLOSED_FORMS}
    if word not in known:
        raise ValueError(
            f"Unknown kernel {word!r}; choose one of {', '.join(known)}, or pass a closed-form kernel."
        )
    return known[word]()
