"""What every kernel offers, and how a kernel becomes a frozen dataclass that JAX can take apart."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from widegp.kernels.parameters import Parameter

if TYPE_CHECKING:
    from widegp.kernels.arc import ArcForm
    from widegp.kernels.composite import Product, Sum

Array = Any  # NumPy or JAX; the kernels follow whichever they are given.
Arrays = tuple[Array, ...]

CURVE_POINTS = 81


class Curve(NamedTuple):
    """Named parts of K, each (points,), over x (points,): the "correlation" or the "distance" of two rows.

    ``variance`` is that of both pre-activations, where correlations are theirs.
    """

    axis: str
    x: np.ndarray
    parts: dict[str, np.ndarray]
    variance: float | None = None


class Kernel(ABC):
    """A covariance function K(x, x') with declared parameters; `MomentKernel` and `StationaryKernel` are the
    families to derive from, `Sum` and `Product` what ``+`` and ``*`` make.

    NumPy in, NumPy out, in float64 whatever JAX's global setting is; JAX arrays and tracers (in
    the inputs or the parameters) keep their own precision and work under ``jit``, ``grad``, ``vmap``.
    """

    declared: ClassVar[tuple[Parameter, ...]] = ()
    """The parameters that a fit may move."""
    free: ClassVar[tuple[str, ...]] = ()
    """Their names."""
    word: ClassVar[str] = ""
    """Name of the class in settings and in the parameters of sums; by default its own in lower case."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "declared" in vars(cls):
            cls.free = tuple(parameter.name for parameter in cls.declared)
        if "word" not in vars(cls):
            cls.word = cls.__name__.lower()

    @abstractmethod
    def between(self, X: Array, Y: Array) -> Array:
        """K for all pairs of rows, in batches: X (..., n, I), Y (..., p, I) -> (..., n, p), JAX arrays."""

    @abstractmethod
    def variance(self, X: Array) -> Array:
        """K(x, x): X (..., I) -> (...), JAX arrays."""

    @abstractmethod
    def embedding(self, X: Array) -> Array:
        """Points whose Euclidean distance orders rows by their correlation: (n, I) -> (n, E), of NumPy or,
        where the rows are already on a device, of JAX.
        """

    @abstractmethod
    def unembedding(self, points: np.ndarray, n_inputs: int) -> np.ndarray:
        """Rows (r, I) of points (r, E) of the embedding, or of means of several of them."""

    @abstractmethod
    def input_weights(self, n_inputs: int) -> np.ndarray:
        """How strongly each input acts, as a factor of its square: (I,)."""

    @abstractmethod
    def signal_variance(self) -> float:
        """Scale of the part of K that depends on the rows."""

    @abstractmethod
    def summands(self) -> dict[str, Kernel]:
        """Kernels, by what a reader would call them, that add up to this one."""

    def native_form(self) -> ArcForm | None:
        """The numbers that `widegp.compute.native` needs, or None: XLA then computes this kernel."""
        return None

    def declarations(self) -> tuple[Parameter, ...]:
        """The declared parameters of this very kernel."""
        return self.declared

    @property
    def per_input(self) -> tuple[str, ...]:
        """Names of the parameters that may have one entry per input (ARD)."""
        return tuple(p.name for p in self.declarations() if p.per_input)

    def parameters(self) -> dict[str, Array]:
        """The free parameters by name."""
        return {name: getattr(self, name) for name in self.free}

    def replace(self, **parameters: Array) -> Self:
        """A copy with some parameters changed."""
        kernel: Any = self
        changed: Self = dataclasses.replace(kernel, **parameters)
        return changed

    def at_start(self, n_inputs: int) -> Self:
        """Where a fit begins on standardised inputs: what acts along all inputs is shared out among them.

        Pre-activations, or distances, are then of unit order whatever the number of inputs.
        """
        values = self.parameters()
        return self.replace(**{name: values[name] / n_inputs for name in self.per_input})

    def __call__(self, X: Array, Y: Array | None = None) -> Array:
        """K(X, Y): X (n, I), Y (p, I) -> (n, p); Y defaults to X."""
        if _all_numpy(self, X, Y):
            with jax.enable_x64(True):
                rows = jnp.asarray(X, float)
                return np.array(self._checked_between(rows, rows if Y is None else jnp.asarray(Y, float)))
        rows = jnp.asarray(X)
        return self._checked_between(rows, rows if Y is None else jnp.asarray(Y))

    def diag(self, X: Array) -> Array:
        """K(x, x) for every row of X: (n, I) -> (n,)."""
        if _all_numpy(self, X):
            with jax.enable_x64(True):
                return np.array(_variance(self, jnp.asarray(X, float)))
        return self._checked_variance(jnp.asarray(X))

    def _checked_between(self, X: Array, Y: Array) -> Array:
        check_inputs(self, X, Y)
        return self.between(X, Y)

    def _checked_variance(self, X: Array) -> Array:
        check_inputs(self, X, X)
        return self.variance(X)

    def curve(self, rows: np.ndarray, points: int = CURVE_POINTS) -> Curve:
        """K(x, x + t v) by component over t >= 0, x the mean row and v a unit step along all inputs alike.

        rows (s, I) as the kernel sees them; t runs to the root mean square distance of two of them.
        """
        rows = np.asarray(rows, float)
        n_inputs, centre = rows.shape[1], rows.mean(0)
        largest = float(np.sqrt(2 * rows.var(0).sum())) or 1.0
        t = np.linspace(0, largest, points)
        moved = centre + t[:, None] / np.sqrt(n_inputs)
        parts = {name: part(centre[None], moved)[0] for name, part in self.summands().items()}
        return Curve("distance", t, parts)

    def __add__(self, other: Kernel) -> Sum:
        from widegp.kernels.composite import Sum

        return Sum.of(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel) -> Product:
        from widegp.kernels.composite import Product

        return Product.of(self, other) if isinstance(other, Kernel) else NotImplemented


class NetworkKernel(Kernel):
    """K(x, x') = sigma_b2 + sigma_v2 E[h(Z) h(Z')], eq. (kernel_general_main): a wide network's covariance.

    sigma_u2 : prior variance, or squared scale, of the hidden weights; a vector has one entry per input.
    sigma_b2, sigma_v2 : prior variances of the output bias and (times the width) output weights.
    """

    sigma_u2: Array
    sigma_b2: Array
    sigma_v2: Array

    def input_weights(self, n_inputs: int) -> np.ndarray:
        """sigma_u2, for each input."""
        return np.broadcast_to(np.asarray(self.sigma_u2, float), (n_inputs,))

    def signal_variance(self) -> float:
        return float(self.sigma_v2)

    def summands(self) -> dict[str, Kernel]:
        """What is constant, and what the hidden layer adds."""
        return {"level": self.replace(sigma_v2=0.0), "network": self.replace(sigma_b2=0.0)}


def as_kernel(cls: type) -> type:
    """Make a kernel class a frozen dataclass whose parameters are the leaves of a JAX pytree.

    Not by ``register_dataclass``: JAX (0.10) takes the structures of two such classes with the same fields
    for equal, and a function jitted for Tanh then now and then answers for Sigmoid.
    """
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    static = tuple(getattr(cls, "static", ()))
    leaves = tuple(f.name for f in dataclasses.fields(cls) if f.name not in static)
    make: Any = cls

    def flatten(kernel: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(kernel, n) for n in leaves), tuple(getattr(kernel, n) for n in static)

    def flatten_with_keys(kernel: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        values, constants = flatten(kernel)
        keys = (jax.tree_util.GetAttrKey(n) for n in leaves)
        return tuple(zip(keys, values, strict=True)), constants

    def unflatten(constants: tuple[Any, ...], values: Any) -> Any:
        return make(**dict(zip(leaves, values, strict=True)), **dict(zip(static, constants, strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def check_inputs(kernel: Kernel, X: Array, Y: Array) -> None:
    """Raise ValueError unless X and Y are tables of rows that suit each other and the kernel."""
    if X.ndim != 2 or Y.ndim != 2:
        shapes = X.shape if X is Y else (X.shape, Y.shape)
        raise ValueError(
            f"A kernel takes tables of rows, shape (n, I); got {shapes}. Reshape one row with X[None, :]."
        )
    if X.shape[1] != Y.shape[1]:
        raise ValueError(f"X has {X.shape[1]} inputs and Y has {Y.shape[1]}; they must agree.")
    values = kernel.parameters()
    for name in kernel.per_input:
        if np.ndim(values[name]) > 0 and np.size(values[name]) != X.shape[1]:
            raise ValueError(
                f"{name} has {np.size(values[name])} entries but the rows have {X.shape[1]} inputs;"
                " pass one entry per input, or a single number."
            )


def namespace(X: Array) -> Any:
    """`jax.numpy` for what is on a device, `numpy` for everything else."""
    return jnp if isinstance(X, jax.Array) else np


@jax.jit
def _variance(kernel: Kernel, X: Array) -> Array:
    """By one program: for every number of rows JAX would compile each operation of a kernel by itself."""
    return kernel._checked_variance(X)


def _all_numpy(*trees: Any) -> bool:
    return not any(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(trees))
