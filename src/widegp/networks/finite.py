"""Bayesian networks of finite width: draws from the prior, and what the hidden layer alone determines."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

import numpy as np
from scipy.special import gammainccinv, ndtr

from widegp.kernels.base import Kernel
from widegp.kernels.moment import VARIANCES
from widegp.kernels.stationary import STATIONARY, RationalQuadratic, StationaryKernel
from widegp.networks.activations import Activation, Named, check_second_moment, resolve
from widegp.networks.limits import blocks_of, limit_kernel
from widegp.networks.priors import Prior, check_prior, unit_draws
from widegp.progress import Listener, Progress
from widegp.threads import in_threads

BLOCK_BYTES = 32 * 2**20
"""Hidden units are drawn in blocks whose weights and values fit this."""
LIMIT_UNITS = 2**20
"""Width that stands for infinity where the limit has no formula."""

_ROW_TILE = 1024
_STATIONARY = {cls.degrees_of_freedom: cls for cls in STATIONARY if cls.degrees_of_freedom is not None}


class HiddenMoments(NamedTuple):
    """What drawn hidden layers determine of the outputs, output weights and bias integrated out.

    covariance : C = sigma_b2 + (sigma_v2 / H) sum_m w_m sum_j h_m(z_j(x)) h_m(z_j(x')), (n_draws, n, n).
    quartic : (sigma_v2 / H)^2 sum_m w_m^2 sum_j h_m(z_j(x))^4, (n_draws, n).
    """

    covariance: np.ndarray
    quartic: np.ndarray


@dataclass(frozen=True)
class Network(ABC):
    """What shallow and block-mixture networks share: eqs. (shallow_bnn), (block_mixture_prior), K outputs.

    Parameters
    ----------
    width : H, the number of hidden units.
    sigma_a2, sigma_u2 : variances of the hidden biases a_j and weights u_ji; ``sigma_u2`` may have one
        entry per input.
    sigma_b2, sigma_v2 : variance of the output biases b_k, and H times that of the output weights v_kj.
    alpha : slope of "leaky_relu" for negative arguments.
    n_outputs : K. Outputs share the hidden layer: uncorrelated, and independent only in the limit.
    hidden_prior : distribution of a_j and u_ji: "gaussian", "uniform", "laplace" or ("student-t", df).
    output_prior : distribution of v_kj. The bias b_k is one number, which no width averages, so it is
        Gaussian always: with any other bias the limit would not be a Gaussian process.
    """

    width: int
    sigma_a2: float = field(default=1.0, kw_only=True)
    sigma_u2: float | np.ndarray = field(default=1.0, kw_only=True)
    sigma_b2: float = field(default=1.0, kw_only=True)
    sigma_v2: float = field(default=1.0, kw_only=True)
    alpha: float = field(default=0.1, kw_only=True)
    n_outputs: int = field(default=1, kw_only=True)
    hidden_prior: Prior = field(default="gaussian", kw_only=True)
    output_prior: Prior = field(default="gaussian", kw_only=True)

    def __post_init__(self) -> None:
        for name in ("width", "n_outputs"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a positive integer; got {value!r}.")
        for name in VARIANCES:
            if not np.all(np.asarray(getattr(self, name)) >= 0):
                raise ValueError(f"{name} is a variance and cannot be negative; got {getattr(self, name)}.")
        check_prior(self.hidden_prior)
        check_prior(self.output_prior)
        for _, activation in self.blocks():
            check_second_moment(activation, self.hidden_prior)

    @abstractmethod
    def blocks(self) -> list[tuple[float, Activation]]:
        """The weight w_m and activation h_m of each block."""

    def replace(self, **changes: object) -> Self:
        """A copy with some settings changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def draw(
        self,
        X: np.ndarray,
        n_draws: int = 1,
        rng: np.random.Generator | int | None = None,
        progress: Listener | None = None,
    ) -> np.ndarray:
        """f_k(x) = b_k + sum_m sqrt(w_m) sum_j v_kj^(m) h_m(a_j + u_j.x) of ``n_draws`` networks.

        X (n, I) -> (n_draws, n, K). Hidden units pass by in blocks, so that memory is O(n) however wide the
        network; their size does not change the draw. ``progress`` is told of the hidden units done.
        """
        X = _table(X)
        rng = np.random.default_rng(rng)
        bias = math.sqrt(self.sigma_b2) * rng.spawn(1)[0].standard_normal((n_draws, 1, self.n_outputs))
        f = np.repeat(bias, len(X), axis=1)
        done = 0
        tiles = [slice(start, start + _ROW_TILE) for start in range(0, len(X), _ROW_TILE)]
        for draws, layer, output in self._layers(X.shape[1], min(len(X), _ROW_TILE), n_draws, rng):
            in_threads(partial(_add_outputs, f[draws], X, layer, output, self.blocks()), tiles)
            done += layer.shape[0] * layer.shape[1]
            if progress is not None:
                progress(Progress.step("drawing", done, n_draws * self.width))
        return f

    def hidden_moments(
        self, X: np.ndarray, n_draws: int = 1, rng: np.random.Generator | int | None = None
    ) -> HiddenMoments:
        """Moments of the outputs at X (n, I) given each of ``n_draws`` hidden layers.

        With the same ``rng`` the hidden layers are those of `draw`.
        """
        X = _table(X)
        rng = np.random.default_rng(rng)
        rng.spawn(1)  # the bias of `draw`
        covariance = np.full((n_draws, len(X), len(X)), float(self.sigma_b2))
        quartic = np.zeros((n_draws, len(X)))
        scale = self.sigma_v2 / self.width
        for draws, layer, _ in self._layers(X.shape[1], len(X), n_draws, rng):
            z = _preactivation(layer, X)
            for w, activation in self.blocks():
                h = activation.fn(z)
                covariance[draws] += scale * w * (h.swapaxes(1, 2) @ h)
                quartic[draws] += (scale * w) ** 2 * np.sum(h**4, axis=1)
        return HiddenMoments(covariance, quartic)

    def hidden_covariance(self, X: np.ndarray, rng: np.random.Generator | int | None = None) -> np.ndarray:
        """Covariance (n, n) of one output at X given one drawn hidden layer; K(X, X) as H grows."""
        return self.hidden_moments(X, 1, rng).covariance[0]

    def limit_kernel(self) -> Kernel:
        """The kernel of the limit H -> infinity, eqs. (kernel_general_main) and (kernel_block_mixture).

        Only Gaussian hidden weights make the pre-activations Gaussian, as the kernels assume.
        """
        if self.hidden_prior != "gaussian":
            raise ValueError(
                f"With hidden_prior={self.hidden_prior!r} the pre-activations are not Gaussian and the limit"
                " has no kernel object; limit_covariance(X) computes its matrix from a very wide network."
            )
        return limit_kernel(self.blocks(), {name: getattr(self, name) for name in VARIANCES})

    def limit_covariance(
        self, X: np.ndarray, rng: np.random.Generator | int | None = 0, n_units: int = LIMIT_UNITS
    ) -> np.ndarray:
        """K(X, X) of the limit, (n, n): by its kernel if there is one, else from ``n_units`` hidden units."""
        if self.hidden_prior == "gaussian":
            return np.asarray(self.limit_kernel()(_table(X)))
        return self.replace(width=n_units).hidden_covariance(X, rng)

    def _layers(
        self, n_inputs: int, tile: int, n_draws: int, rng: np.random.Generator
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Weights a block at a time: which draws, (a_j, u_j) (g, units, I + 1), v (g, units, M, K).

        A block holds several whole networks, or a part of one.
        """
        hidden_rng, output_rng = rng.spawn(2)
        n_blocks = len(self.blocks())
        per_unit = 8 * (n_inputs + 1 + n_blocks * (self.n_outputs + tile) + tile)
        room = max(1, BLOCK_BYTES // per_unit)
        group, units = max(1, room // self.width), min(room, self.width)
        for start in range(0, n_draws, group):
            draws = slice(start, min(start + group, n_draws))
            count = draws.stop - draws.start
            for low in range(0, self.width, units):
                size = min(units, self.width - low)
                layer = self._hidden_layer((count, size), n_inputs, hidden_rng)
                shape = (count, size, n_blocks, self.n_outputs)
                output = unit_draws(self.output_prior, output_rng, shape)
                yield draws, layer, output * math.sqrt(self.sigma_v2 / self.width)

    def _hidden_layer(self, units: tuple[int, int], n_inputs: int, rng: np.random.Generator) -> np.ndarray:
        """(a_j, u_j) of (g, units) hidden units, (g, units, I + 1); more of them go on where these end."""
        scales = np.sqrt(np.append(self.sigma_a2, np.broadcast_to(self.sigma_u2, n_inputs)))
        return unit_draws(self.hidden_prior, rng, (*units, n_inputs + 1)) * scales


@dataclass(frozen=True)
class ShallowBNN(Network):
    """f_k(x) = b_k + sum_j v_kj h(a_j + u_j.x), eq. (shallow_bnn); parameters as in `Network`.

    activation : h, a name of `activations.NAMES` or a function written with ``jax.numpy``.
    """

    activation: Named = "tanh"

    def blocks(self) -> list[tuple[float, Activation]]:
        return [(1.0, resolve(self.activation, self.alpha))]


@dataclass(frozen=True)
class BlockMixtureBNN(Network):
    """f_k(x) = b_k + sum_m sqrt(w_m) sum_j v_kj^(m) h_m(z_j(x)), eq. (block_mixture_prior).

    The M blocks see one hidden layer z_j = a_j + u_j.x and have output weights of their own.

    activations, weights : h_m and w_m; the weights are positive and add up to 1.
    """

    activations: tuple[Named, ...] = ("tanh", "leaky_relu")
    weights: tuple[float, ...] = (0.5, 0.5)

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, float)
        if len(weights) != len(self.activations) or len(weights) == 0:
            raise ValueError(f"{len(self.activations)} activations need as many weights; got {len(weights)}.")
        if not np.all(weights > 0) or not math.isclose(weights.sum(), 1.0, rel_tol=1e-9):
            raise ValueError(f"The weights of a mixture are positive and add up to 1; got {self.weights}.")
        super().__post_init__()

    def blocks(self) -> list[tuple[float, Activation]]:
        return [
            (float(w), resolve(h, self.alpha)) for w, h in zip(self.weights, self.activations, strict=True)
        ]


@dataclass(frozen=True)
class CosineBNN(Network):
    """f_k(x) = b_k + sum_j v_kj sqrt(2) cos(p_j + u_j.x), phases p_j uniform on [0, 2 pi).

    u_j = sqrt(sigma_u2) g_j / sqrt(chi2_j / df), g_j standard Gaussian and chi2_j, one number for all inputs
    of a unit, chi-squared with df degrees of freedom: a multivariate t distribution, or with df infinite a
    Gaussian one. The limits are `Matern12`, `Matern32`, `Matern52` and `RBF`. No bias but the phase.

    degrees_of_freedom : df, one of 1, 3, 5 and infinity.
    mixing : a; with it u_j = sqrt(sigma_u2 tau_j) g_j, tau_j Gamma-distributed with shape a and mean 1, and
        the limit is `RationalQuadratic`. Then df is infinite.
    """

    degrees_of_freedom: float = math.inf
    mixing: float | None = None
    sigma_a2: float = field(default=0.0, init=False)
    hidden_prior: Prior = field(default="gaussian", init=False)

    def __post_init__(self) -> None:
        if self.degrees_of_freedom not in _STATIONARY:
            known = ", ".join(f"{df:g}" for df in _STATIONARY)
            raise ValueError(f"degrees_of_freedom must be one of {known}; got {self.degrees_of_freedom}.")
        if self.mixing is not None and not (self.mixing > 0 and math.isinf(self.degrees_of_freedom)):
            raise ValueError(
                "mixing is a positive number, of weights with infinite degrees_of_freedom; got"
                f" mixing={self.mixing} with {self.degrees_of_freedom:g}."
            )
        super().__post_init__()

    def blocks(self) -> list[tuple[float, Activation]]:
        return [(1.0, Activation(lambda z: math.sqrt(2) * np.cos(z), self.limit_kernel()))]

    def limit_kernel(self) -> StationaryKernel:
        """`RationalQuadratic`, `RBF` or a Matérn kernel, by the mixing and the degrees of freedom."""
        variances = {name: getattr(self, name) for name in ("sigma_u2", "sigma_b2", "sigma_v2")}
        if self.mixing is not None:
            return RationalQuadratic(**variances | {"mixing": self.mixing})
        return _STATIONARY[self.degrees_of_freedom](**variances)

    def _hidden_layer(self, units: tuple[int, int], n_inputs: int, rng: np.random.Generator) -> np.ndarray:
        df = int(self.degrees_of_freedom) if math.isfinite(self.degrees_of_freedom) else 0
        # Everything is made of normals, unit by unit: the draw then does not depend on the size of a block.
        further = df if self.mixing is None else 1
        normals = rng.standard_normal((*units, 1 + n_inputs + further))
        layer = normals[..., : 1 + n_inputs]
        layer[..., 0] = 2 * math.pi * ndtr(layer[..., 0])
        layer[..., 1:] *= np.sqrt(np.asarray(self.sigma_u2, float))
        if df:
            layer[..., 1:] /= np.sqrt(np.mean(normals[..., 1 + n_inputs :] ** 2, axis=-1, keepdims=True))
        if self.mixing is not None:
            tau = gammainccinv(self.mixing, ndtr(-normals[..., 1 + n_inputs :])) / self.mixing
            layer[..., 1:] *= np.sqrt(tau)
        return layer


def network_of(kernel: Kernel, width: int) -> Network:
    """The network of ``width`` hidden units whose limit is exactly ``kernel``.

    For K_mix the smooth block is an error function: eq. (k_mix_reduced) is exact for it, not for tanh.
    """
    if isinstance(kernel, StationaryKernel):
        df = math.inf if isinstance(kernel, RationalQuadratic) else kernel.degrees_of_freedom
        if df is None:
            raise ValueError(
                f"How hidden weights of {type(kernel).__name__} are drawn is not known; there are networks of"
                " 'rbf', 'rational_quadratic' and the Matérn kernels."
            )
        return CosineBNN(width, df, **kernel.parameters())
    activations, weights, alpha = blocks_of(kernel)
    variances = {name: np.asarray(getattr(kernel, name), float) for name in VARIANCES}
    scalars = {name: v if v.ndim else float(v) for name, v in variances.items()}
    return BlockMixtureBNN(width, activations, weights, alpha=alpha, **scalars)  # type: ignore[arg-type]


def _preactivation(layer: np.ndarray, X: np.ndarray) -> np.ndarray:
    """z_j(x) = a_j + u_j.x: layer (g, units, I + 1), X (n, I) -> (g, units, n)."""
    return layer[..., :1] + layer[..., 1:] @ X.T


def _add_outputs(
    f: np.ndarray,
    X: np.ndarray,
    layer: np.ndarray,
    output: np.ndarray,
    blocks: list[tuple[float, Activation]],
    rows: slice,
) -> None:
    """f (g, n, K) += sum_m sqrt(w_m) sum_j v_j^(m) h_m(z_j(x)) over the units of one block, for some rows."""
    z = _preactivation(layer, X[rows])
    for m, (w, activation) in enumerate(blocks):
        f[:, rows] += math.sqrt(w) * (activation.fn(z).swapaxes(1, 2) @ output[:, :, m])


def _table(X: np.ndarray) -> np.ndarray:
    X = np.ascontiguousarray(X, float)
    if X.ndim != 2:
        raise ValueError(f"A network takes tables of rows, shape (n, I); got {X.shape}. Use X[None, :].")
    return X
