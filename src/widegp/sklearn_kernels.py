"""The limit kernels for scikit-learn's own Gaussian processes.

    K(x, x') = sigma_b2 + sigma_v2 E[h(Z) h(Z')],  eq. (kernel_general_main), as in `widegp.kernels`

>>> GaussianProcessRegressor(Mixed(sigma_u2=1 / X.shape[1]) + WhiteKernel()).fit(X, y)

theta holds the logarithms of the parameters, in the order of ``hyperparameters``. The derivatives follow from
those of one entry by c = Cov(Z, Z'), d = Var Z, e = Var Z':

    dK/dsigma_a2 = K_c + K_d + K_e,     dK/dsigma_u2_i = K_c x_i x'_i + K_d x_i^2 + K_e x'_i^2
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Hyperparameter
from sklearn.gaussian_process.kernels import Kernel as SklearnKernel

from widegp.compute.backend import choose_backend
from widegp.kernels import closed

Bounds = Any  # (low, high), one such pair per input for a vector, or "fixed"

VARIANCE_BOUNDS = (1e-5, 1e5)
FRACTION_BOUNDS = (1e-5, 1 - 1e-5)


# scikit-learn reads the parameters off the signature of __init__, which a dataclass writes and extends;
# equality and repr stay those of kernels.
_fields = partial(dataclass, eq=False, repr=False, kw_only=True)


@_fields()
class LimitKernel(SklearnKernel):
    """What the five kernels share; ``form`` is the kernel of `widegp.kernels` that does the mathematics.

    Parameters
    ----------
    sigma_a2, sigma_u2, sigma_b2, sigma_v2 : prior variances of hidden bias, hidden weights, output bias
        and output weights; ``sigma_u2`` may hold one entry per input (ARD). On standardised inputs start
        at sigma_u2 = 1 / n_inputs.
    *_bounds : (low, high) of the parameter itself, or ``"fixed"`` to keep it out of theta.
    """

    sigma_a2: float = 1.0
    sigma_u2: float | Sequence[float] | np.ndarray = 1.0
    sigma_b2: float = 1.0
    sigma_v2: float = 1.0
    sigma_a2_bounds: Bounds = VARIANCE_BOUNDS
    sigma_u2_bounds: Bounds = VARIANCE_BOUNDS
    sigma_b2_bounds: Bounds = VARIANCE_BOUNDS
    sigma_v2_bounds: Bounds = VARIANCE_BOUNDS

    form: ClassVar[type[closed.ClosedForm]]

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        """The parameters in the order of theta: variances, then alpha and w."""
        return [
            Hyperparameter(name, "numeric", getattr(self, f"{name}_bounds"), np.size(getattr(self, name)))
            for name in self.form.free
        ]

    def limit(self) -> closed.ClosedForm:
        """The same kernel as an object of `widegp.kernels`."""
        values = {name: getattr(self, name) for name in self.form.free}
        many = np.size(self.sigma_u2) > 1
        values["sigma_u2"] = np.asarray(self.sigma_u2, float) if many else float(np.ravel(self.sigma_u2)[0])
        return self.form(**values)

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False) -> Any:
        """K(X, Y) (n, p), Y = X by default; with ``eval_gradient`` also dK/dtheta (n, n, dim theta)."""
        kernel, X = self._checked(X)
        backend = choose_backend(kernel, "native")
        K = backend.cross(kernel, X, X if Y is None else self._checked(Y)[1])
        if not eval_gradient:
            return K
        if Y is not None:
            raise ValueError("The gradient is of K(X, X) alone; leave out Y, or pass eval_gradient=False.")
        return K, self._gradient(kernel, X)

    def diag(self, X: ArrayLike) -> np.ndarray:
        """K(x, x) for every row: (n, I) -> (n,)."""
        kernel, X = self._checked(X)
        return np.asarray(choose_backend(kernel, "native").diagonal(kernel, X))

    def is_stationary(self) -> bool:
        """False: K depends on where the rows lie, not on their difference alone."""
        return False

    def __repr__(self) -> str:
        values = {name: np.asarray(getattr(self, name), float) for name in self.form.free}
        shown = [f"{name}={np.array2string(v, precision=3, separator=', ')}" for name, v in values.items()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _checked(self, X: ArrayLike) -> tuple[closed.ClosedForm, np.ndarray]:
        rows, entries = np.atleast_2d(np.asarray(X, float)), np.size(self.sigma_u2)
        if entries not in (1, rows.shape[1]):
            raise ValueError(
                f"sigma_u2 has {entries} entries but the rows have {rows.shape[1]} inputs;"
                " pass one entry per input, or a single number."
            )
        return self.limit(), rows

    def _gradient(self, kernel: closed.ClosedForm, X: np.ndarray) -> np.ndarray:
        """dK/dtheta = parameter dK/dparameter for the parameters that are not fixed, (n, n, dim theta)."""
        slopes = np.empty((self.n_dims, len(X), len(X)))
        for row, slope in zip(slopes, self._log_slopes(kernel, X), strict=True):
            row[...] = slope
        return np.moveaxis(slopes, 0, -1)

    def _log_slopes(self, kernel: closed.ClosedForm, X: np.ndarray) -> Iterator[np.ndarray]:
        """The entries of theta in turn, dK/dtheta_k (n, n): never two tables of them at once."""
        with jax.enable_x64(True):
            K_c, K_d, by_name = jax.tree.map(np.asarray, _slopes(self.form, kernel.parameters(), X))
        for name in (h.name for h in self.hyperparameters if not h.fixed):
            if name == "sigma_u2":
                for columns in _columns(kernel, X):
                    squares = K_d * (columns**2).sum(1)[:, None]
                    yield K_c * (columns @ columns.T) + squares + squares.T
            elif name == "sigma_a2":
                yield kernel.sigma_a2 * (K_c + K_d + K_d.T)
            else:
                yield getattr(kernel, name) * by_name[name]


@_fields()
class Tanh(LimitKernel):
    """`widegp.kernels.Tanh`, eq. (LCov1)."""

    form = closed.Tanh


@_fields()
class Sigmoid(LimitKernel):
    """`widegp.kernels.Sigmoid`, eq. (LCov2)."""

    form = closed.Sigmoid


@_fields()
class ReLU(LimitKernel):
    """`widegp.kernels.ReLU`, eq. (LCov3)."""

    form = closed.ReLU


@_fields()
class LeakyReLU(LimitKernel):
    """`widegp.kernels.LeakyReLU`, eq. (LCov4), with slope ``alpha`` in (0, 1)."""

    alpha: float = 0.1
    alpha_bounds: Bounds = FRACTION_BOUNDS

    form = closed.LeakyReLU


@_fields()
class Mixed(LimitKernel):
    """`widegp.kernels.Mixed`, K_mix of eq. (k_mix_reduced), with ``alpha`` and ``w`` in (0, 1)."""

    alpha: float = 0.5
    w: float = 0.5
    alpha_bounds: Bounds = FRACTION_BOUNDS
    w_bounds: Bounds = FRACTION_BOUNDS

    form = closed.Mixed


def _columns(kernel: closed.ClosedForm, X: np.ndarray) -> list[np.ndarray]:
    """sqrt(sigma_u2) X in the groups of inputs that share an entry of sigma_u2: all, or one each."""
    scaled = X * np.sqrt(kernel.sigma_u2)
    return [scaled] if np.ndim(kernel.sigma_u2) == 0 else np.split(scaled, X.shape[1], axis=1)


# The class is a static argument of its own: JAX tells classes registered as dataclasses with the same fields
# apart by their hash alone, and may take the compiled function of one for another's.
@partial(jax.jit, static_argnums=0)
def _slopes(form: type[closed.ClosedForm], values: dict[str, Any], X: Any) -> tuple[Any, Any, dict[str, Any]]:
    """K_c, K_d (n, n), and dK/dname (n, n) for the parameters that c, d and e do not depend on."""
    kernel = form(**values)
    c = kernel.sigma_a2 + (X * kernel.sigma_u2) @ X.T
    d = kernel.preactivation_variance(X)[:, None]
    e = d.T

    def entry(c: Any, d: Any, **changed: Any) -> Any:
        k = kernel.replace(**changed)
        return k.sigma_b2 + k.sigma_v2 * k.moment(c, d, e)

    def slope(of: Any, at: Any) -> Any:
        return jax.jvp(of, (at,), (jnp.ones_like(at),))[1]

    outer = [name for name in form.free if name not in ("sigma_a2", "sigma_u2")]
    by_name = {n: slope(lambda v, n=n: entry(c, d, **{n: v}), values[n]) for n in outer}
    return slope(lambda c: entry(c, d), c), slope(lambda d: entry(c, d), d), by_name


__all__ = ["LeakyReLU", "Mixed", "ReLU", "Sigmoid", "Tanh"]
