"""From networks to the kernels of their limits, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from widegp.kernels import FromActivation, Kernel, LeakyReLU, Mixed, Mixture, ReLU, Sigmoid, Tanh
from widegp.kernels.base import as_kernel
from widegp.kernels.closed import ClosedForm
from widegp.kernels.moment import MomentKernel
from widegp.networks.activations import Activation, Named


@as_kernel
class SumOfMoments(MomentKernel):
    """sigma_b2 + sigma_v2 sum_m w_m E[h_m(Z) h_m(Z')], eq. (kernel_block_mixture), of any kernels."""

    components: tuple[MomentKernel, ...] = ()
    weights: Any = None

    def moment(self, c: Any, d: Any, e: Any) -> Any:
        return sum(w * k.moment(c, d, e) for w, k in zip(self.weights, self.components, strict=True))


def limit_kernel(blocks: Sequence[tuple[float, Activation]], variances: dict[str, Any]) -> Kernel:
    """The limit of a network with blocks (w_m, h_m) and Gaussian hidden weights; a closed form if all are."""
    kernels = tuple(activation.kernel for _, activation in blocks)
    if len(blocks) == 1:
        return kernels[0].replace(**variances)
    weights = np.array([w for w, _ in blocks])
    closed = [kernel for kernel in kernels if isinstance(kernel, ClosedForm)]
    if len(closed) == len(kernels):
        return Mixture(closed, weights, **variances)
    return SumOfMoments(components=kernels, weights=weights, **variances)  # type: ignore[call-arg]


def blocks_of(kernel: Kernel) -> tuple[tuple[Named, ...], tuple[float, ...], float]:
    """Activations h_m, weights w_m and the leaky slope of a network whose limit is exactly ``kernel``.

    `Tanh` and `Sigmoid` are exact for error functions, so those stand in their networks.
    """
    match kernel:
        case Tanh():
            return ("erf",), (1.0,), 0.0
        case Sigmoid():
            return ("erf_sigmoid",), (1.0,), 0.0
        case ReLU():
            return ("relu",), (1.0,), 0.0
        case LeakyReLU():
            return ("leaky_relu",), (1.0,), float(kernel.alpha)
        case FromActivation():
            return (kernel.fn,), (1.0,), 0.0
        case Mixed():
            w = float(kernel.w)
            return _positive(("erf", "leaky_relu"), (w, 1 - w), float(kernel.alpha))
        case Mixture():
            return _of_mixture(kernel)
    raise ValueError(
        f"No network with the limit {type(kernel).__name__} is known; pass a kernel of widegp.kernels, or"
        " FromActivation(fn) for an activation of your own."
    )


def _of_mixture(kernel: Mixture) -> tuple[tuple[Named, ...], tuple[float, ...], float]:
    names: list[Named] = []
    shares: list[float] = []
    slopes = set()
    for share, part in zip(kernel.weights / np.sum(kernel.weights), kernel.components, strict=True):
        activations, weights, alpha = blocks_of(part)
        names += activations
        shares += [float(share) * w for w in weights]
        slopes |= {alpha} if "leaky_relu" in activations else set()
    if len(slopes) > 1:
        raise ValueError(
            f"The mixture has leaky ReLUs of slopes {sorted(slopes)}; a network has one alpha. Give them all"
            " the same slope."
        )
    return _positive(tuple(names), tuple(shares), slopes.pop() if slopes else 0.0)


def _positive(
    names: tuple[Named, ...], weights: tuple[float, ...], alpha: float
) -> tuple[tuple[Named, ...], tuple[float, ...], float]:
    """Without the blocks of weight 0, which eq. (block_mixture_prior) does not have."""
    kept = [m for m, w in enumerate(weights) if w > 0]
    return tuple(names[m] for m in kept), tuple(weights[m] for m in kept), alpha
