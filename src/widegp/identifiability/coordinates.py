"""The parameters of a kernel and its noise as one vector theta, in their own scale and without constraints.

    variance, noise   zeta = log theta
    alpha, w          zeta = log(theta / (1 - theta))
    weights           zeta_m = log(w_m / w_M), m < M; the last weight is 1 minus the others

The weights of a mixture are divided by their sum, so M numbers would hold one that no data could ever
determine; M - 1 of them leave the comparison with K_mix to the kernel's shape alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from widegp.kernels.base import Kernel
from widegp.kernels.closed import LeakyReLU, Mixture
from widegp.kernels.parameters import EXP, FRACTION, LOGISTIC, Map

Array = Any

LOG, LOGIT, SIMPLEX = "log", "logit", "simplex"
# From zeta to theta; weights are divided by their sum afterwards.
MAPS: dict[str, Map] = {LOG: EXP, LOGIT: LOGISTIC, SIMPLEX: EXP}


@dataclass(frozen=True)
class Coordinates:
    """theta (p,) with its names and scales; ``kernel_at`` maps theta without the noise to a kernel.

    The noise sigma_eps2 is the last entry. ``kernel_at`` works on JAX tracers.
    """

    names: tuple[str, ...]
    theta: np.ndarray
    scales: tuple[str, ...]
    kernel_at: Callable[[Array], Kernel]

    @property
    def noise(self) -> float:
        return float(self.theta[-1])

    def without(self, *held: str) -> Coordinates:
        """The coordinates that are left when some parameters are known."""
        for name in held:
            # Weights share a sum and the noise is the last entry by construction: neither can be taken out.
            free = [n for n, s in zip(self.names[:-1], self.scales, strict=False) if s != SIMPLEX]
            if name not in free:
                raise ValueError(f"{name!r} cannot be held fixed; choose from {', '.join(free)}.")
        keep = [j for j, name in enumerate(self.names) if name not in held]
        whole, kernel_at = self.theta[:-1], self.kernel_at

        def restricted(theta: Array) -> Kernel:
            import jax.numpy as jnp

            return kernel_at(jnp.asarray(whole).at[jnp.array(keep[:-1])].set(theta))

        return Coordinates(
            tuple(self.names[j] for j in keep), self.theta[keep],
            tuple(self.scales[j] for j in keep), restricted,
        )  # fmt: skip

    def slopes(self) -> np.ndarray:
        """T = d theta / d zeta (p, p), diagonal but for the weights: dw_m/dzeta_k = w_m (1{m=k} - w_k)."""
        maps = [MAPS[scale] for scale in self.scales]
        T = np.diag([m.slope(m.inverse(t)) for m, t in zip(maps, self.theta, strict=True)])
        on = np.flatnonzero([s == SIMPLEX for s in self.scales])
        T[np.ix_(on, on)] -= np.outer(self.theta[on], self.theta[on])
        return T

    def moved(self, direction: np.ndarray) -> np.ndarray:
        """theta after zeta has moved by ``direction`` (p,)."""
        steps = zip((MAPS[scale] for scale in self.scales), self.theta, direction, strict=True)
        out = np.array([m.forward(m.inverse(t) + step) for m, t, step in steps])
        on = np.array(self.scales) == SIMPLEX
        out[on] /= out[on].sum() + 1 - self.theta[on].sum()
        return out


def coordinates(kernel: Kernel, noise: float, inside: bool = True) -> Coordinates:
    """The coordinates of a kernel's free parameters (entries of vectors one by one) and of the noise.

    ``inside`` insists on parameters off the edge of their space, where logs and logits exist.
    """
    if not noise > 0:
        raise ValueError(f"The noise variance must be positive; got {noise}. Pass None for the paper's 4%.")
    if isinstance(kernel, Mixture):
        names, values, scales, kernel_at = _of_mixture(kernel)
    else:
        names, values, scales, kernel_at = _of_free(kernel)
    if inside:
        _check(names, values, scales)
    return Coordinates((*names, "sigma_eps2"), np.array([*values, noise], float), (*scales, LOG), kernel_at)


def _check(names: list[str], values: list[float], scales: list[str]) -> None:
    for name, value, scale in zip(names, values, scales, strict=True):
        if not value > 0 or (scale != LOG and not value < 1):
            where = "positive" if scale == LOG else "strictly between 0 and 1"
            raise ValueError(
                f"{name} = {value:g} lies on the edge of the parameter space; information is defined inside"
                f" it, where {name} is {where}. boundary_cases() shows what happens on the edge."
            )


def _of_free(kernel: Kernel) -> tuple[list[str], list[float], list[str], Callable[[Array], Kernel]]:
    names: list[str] = []
    values: list[float] = []
    scales: list[str] = []
    places: dict[str, slice | int] = {}
    fractions = {p.name for p in kernel.declarations() if p.kind is FRACTION}
    for name, value in kernel.parameters().items():
        entries = np.atleast_1d(np.asarray(value, float))
        start = len(names)
        places[name] = start if np.ndim(value) == 0 else slice(start, start + entries.size)
        names += [name] if np.ndim(value) == 0 else [f"{name}[{j}]" for j in range(entries.size)]
        values += entries.tolist()
        scales += [LOGIT if name in fractions else LOG] * entries.size

    def kernel_at(theta: Array) -> Kernel:
        return kernel.replace(**{name: theta[place] for name, place in places.items()})

    return names, values, scales, kernel_at


def _of_mixture(kernel: Mixture) -> tuple[list[str], list[float], list[str], Callable[[Array], Kernel]]:
    """The variances, every slope alpha among the components, and all weights but the last."""
    import jax.numpy as jnp

    variances = [name for name in kernel.free if name != "weights"]
    labels = component_names(kernel)
    leaky = [m for m, c in enumerate(kernel.components) if hasattr(c, "alpha")]
    weights = np.asarray(kernel.weights, float) / np.sum(kernel.weights)
    names = [*variances, *("alpha" if len(leaky) == 1 else f"alpha[{labels[m]}]" for m in leaky)]
    values = [float(getattr(kernel, name)) for name in variances]
    values += [float(kernel.components[m].alpha) for m in leaky]  # type: ignore[attr-defined]
    scales = [LOG] * len(variances) + [LOGIT] * len(leaky) + [SIMPLEX] * (len(weights) - 1)
    names += [f"w_{label}" for label in labels[:-1]]
    values += weights[:-1].tolist()
    first = len(variances)

    def kernel_at(theta: Array) -> Kernel:
        components = list(kernel.components)
        for k, m in enumerate(leaky):
            components[m] = components[m].replace(alpha=theta[first + k])
        free = theta[first + len(leaky) : first + len(leaky) + len(weights) - 1]
        return Mixture(
            components,
            jnp.concatenate([free, 1 - jnp.sum(free, keepdims=True)]),
            **{name: theta[j] for j, name in enumerate(variances)},
        )

    return names, values, scales, kernel_at


def component_names(kernel: Mixture) -> list[str]:
    """tanh, sigmoid, relu, leaky_relu; a second one of a kind gets its number."""
    plain = [c.word for c in kernel.components]
    return [w if plain.count(w) == 1 else f"{w}{plain[: m + 1].count(w)}" for m, w in enumerate(plain)]


def four_components(alpha: float = 0.5, **variances: float) -> Mixture:
    """The unreduced mixture of eq. (kernel_mix_general): tanh, sigmoid, ReLU, leaky ReLU at equal weights."""
    return Mixture(["tanh", "sigmoid", "relu", LeakyReLU().replace(alpha=alpha)], None, **variances)
