"""Input designs against each other: what their rows can tell about the parameters as inputs are added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from widegp.identifiability.information import Blocks, fisher_information
from widegp.identifiability.spectrum import Information
from widegp.kernels.base import Kernel
from widegp.kernels.closed import Mixed

Design = Callable[[int, int, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class DesignResult:
    """One design at one number of inputs.

    ``norm_sd`` is the standard deviation of |x|^2 over its mean, ``cosine_sd`` that of x.x' / (|x| |x'|):
    the radial and the angular spread of section (stratification_ident).
    """

    design: str
    n_inputs: int
    information: Information
    norm_sd: float
    cosine_sd: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "design": self.design,
            "n_inputs": self.n_inputs,
            "n_rows": self.information.n_rows,
            "condition_number": self.information.condition_number,
            "smallest_eigenvalue": self.information.smallest_eigenvalue,
            "norm_sd": self.norm_sd,
            "cosine_sd": self.cosine_sd,
            "log_standard_errors": self.information.log_standard_errors(),
        }


@dataclass(frozen=True)
class DesignStudy:
    """All designs at all numbers of inputs, in the order asked for."""

    results: tuple[DesignResult, ...]

    def to_dict(self) -> list[dict[str, Any]]:
        """One plain row per result."""
        return [result.to_dict() for result in self.results]

    def __str__(self) -> str:
        head = f"{'design':<18}{'inputs':>7}{'condition':>12}{'smallest':>11}{'sd |x|^2':>10}{'sd cos':>11}"
        lines = [
            f"{r.design:<18}{r.n_inputs:>7}{r.information.condition_number:>12.3g}"
            f"{r.information.smallest_eigenvalue:>11.3g}{r.norm_sd:>10.3f}{r.cosine_sd:>11.3f}"
            for r in self.results
        ]
        return "\n".join([head, *lines])


def design_study(
    n: int,
    inputs: Sequence[int] = (5, 20, 80),
    designs: Mapping[str, Design] | None = None,
    *,
    kernel: Kernel | None = None,
    approximation: str = "auto",
    seed: int = 0,
) -> DesignStudy:
    """Information about the parameters under each design, section (stratification_ident).

    Parameters
    ----------
    n : rows of a design.
    inputs : the numbers of inputs I.
    designs : name -> f(n, I, rng), which gives rows (n, I) centred at 0, in [-0.5, 0.5]^I as in the paper; by
        default the three of `widegp.designs`.
    kernel : the parameters at which information is taken, by default the scenarios' (all variances 1,
        alpha = w = 1/2); the noise is 4% of the mean of K(x, x), eq. (nugget_frac).
    approximation : as in `fisher_information`.
    """
    designs = _default_designs() if designs is None else designs
    out = []
    for n_inputs in inputs:
        for name, design in designs.items():
            X = _checked(design(n, n_inputs, np.random.default_rng(seed)), name, n, n_inputs)
            information = fisher_information(kernel or Mixed(), None, X, approximation, Blocks(seed=seed))
            out.append(DesignResult(name, n_inputs, information, *spread(X, seed)))
    return DesignStudy(tuple(out))


def spread(X: np.ndarray, seed: int = 0, max_rows: int = 2000) -> tuple[float, float]:
    """sd(|x|^2) / mean(|x|^2) and sd of the cosines of pairs, from at most ``max_rows`` rows of X (n, I)."""
    if len(X) > max_rows:
        X = X[np.random.default_rng(seed).choice(len(X), max_rows, replace=False)]
    squares = np.einsum("ij,ij->i", X, X)
    units = X / np.sqrt(np.where(squares > 0, squares, 1.0))[:, None]
    cosines = (units @ units.T)[np.triu_indices(len(X), 1)]
    return float(np.std(squares) / np.mean(squares)), float(np.std(cosines))


def _default_designs() -> dict[str, Design]:
    from widegp import designs

    return {
        "uniform": designs.uniform,
        "latin hypercube": designs.latin_hypercube,
        "stratified": designs.stratified,
    }


def _checked(X: np.ndarray, name: str, n: int, n_inputs: int) -> np.ndarray:
    X = np.asarray(X, float)
    if X.shape != (n, n_inputs):
        raise ValueError(f"Design {name!r} gave shape {X.shape}; it must give ({n}, {n_inputs}).")
    return X
