"""How alike the limit kernels of the four activations are as functions of rho, Table (corr-kernels)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from widegp.kernels.closed import ClosedForm, LeakyReLU, ReLU, Sigmoid, Tanh

# The paper's pairs and what it prints for them.
PUBLISHED = {
    ("tanh", "sigmoid"): 0.9999,
    ("relu", "leaky_relu(0.1)"): 0.9983,
    ("relu", "leaky_relu(0.3)"): 0.9919,
}
# 201 points give 0.9918 for the third pair and 401 or more 0.9919, the limit of a fine grid.
GRID_POINTS = 1001


@dataclass(frozen=True)
class ShapeCorrelations:
    """Pearson correlations of the curves rho -> E[h(Z) h(Z')] at sigma_z = sigma_z' = 1.

    ``rho`` (g,), ``curves`` (k, g) one row per name, ``matrix`` (k, k).
    """

    names: tuple[str, ...]
    rho: np.ndarray
    curves: np.ndarray
    matrix: np.ndarray

    def between(self, first: str, second: str) -> float:
        """The correlation of two curves by name."""
        for name in (first, second):
            if name not in self.names:
                raise ValueError(f"There is no curve {name!r}; choose from {', '.join(self.names)}.")
        return float(self.matrix[self.names.index(first), self.names.index(second)])

    def table(self) -> list[dict[str, Any]]:
        """The rows of Table (corr-kernels): pair, correlation, and the published value."""
        return [
            {"pair": f"{a} x {b}", "correlation": self.between(a, b), "published": value}
            for (a, b), value in PUBLISHED.items()
        ]


def shape_correlations(grid: ArrayLike | None = None, sigma_z2: float = 1.0) -> ShapeCorrelations:
    """corr_rho(E[h(Z) h(Z')], E[h'(Z) h'(Z')]) over an even grid of rho in [-1, 1], Table (corr-kernels).

    grid : rho (g,), by default 1,001 even points; sigma_z2 : Var Z = Var Z', 1 in the paper.
    A correlation ignores level and scale, which sigma_b2 and sigma_v2 could absorb.
    """
    rho = np.linspace(-1.0, 1.0, GRID_POINTS) if grid is None else np.asarray(grid, float)
    if rho.ndim != 1 or rho.size < 3 or np.any(np.abs(rho) > 1):
        raise ValueError("grid must hold at least three correlations rho between -1 and 1.")
    if not sigma_z2 > 0:
        raise ValueError(f"sigma_z2 is a variance and must be positive; got {sigma_z2}.")
    kernels: dict[str, ClosedForm] = {
        "tanh": Tanh(),
        "sigmoid": Sigmoid(),
        "relu": ReLU(),
        "leaky_relu(0.1)": LeakyReLU().replace(alpha=0.1),
        "leaky_relu(0.3)": LeakyReLU().replace(alpha=0.3),
    }
    curves = np.array([curve(kernel, rho, sigma_z2) for kernel in kernels.values()])
    return ShapeCorrelations(tuple(kernels), rho, curves, np.corrcoef(curves))


def curve(kernel: ClosedForm, rho: np.ndarray, sigma_z2: float = 1.0) -> np.ndarray:
    """E[h(Z) h(Z')] at Cov(Z, Z') = rho sigma_z2, Var Z = Var Z' = sigma_z2: rho (g,) -> (g,)."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        d = jnp.full(rho.shape, sigma_z2)
        return np.array(kernel.moment(jnp.asarray(rho) * sigma_z2, d, d))
