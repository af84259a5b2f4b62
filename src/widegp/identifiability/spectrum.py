"""What an information matrix says: standard errors, spectrum, and the directions it leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from widegp.identifiability.coordinates import Coordinates

# Eigenvalues below this share of the largest, of a matrix with unit diagonal, are rounding.
ROUNDING = 1e-13
# Loadings below this are not worth a word.
SMALL_LOADING = 0.2
# Names in a sentence; the largest loadings come first.
NAMED = 4


@dataclass(frozen=True)
class WeakDirection:
    """A unit direction of zeta (logs of variances, logits of fractions) and the information along it.

    ``loadings`` by name; ``eigenvalue`` of the information of zeta; ``sd`` = eigenvalue^-1/2; ``start`` and
    ``end`` the parameters here and one ``sd`` along the direction, at most a factor of e^3 away.
    """

    loadings: dict[str, float]
    eigenvalue: float
    sd: float
    start: dict[str, float]
    end: dict[str, float]
    step: float

    def __str__(self) -> str:
        named = sorted(self.loadings.items(), key=lambda item: -abs(item[1]))
        worth = [(name, value) for name, value in named if abs(value) > SMALL_LOADING]
        named, rest = worth[:NAMED], len(worth) - NAMED
        rising = [name for name, value in named if value > 0]
        falling = [name for name, value in named if value < 0]
        parts = [f"{_listed(rising)} up"] if rising else []
        parts += [f"{_listed(falling)} down"] if falling else []
        moves = ", ".join(f"{n} {self.start[n]:.3g} -> {self.end[n]:.3g}" for n, _ in named)
        parts += [f"{rest} more"] if rest > 0 else []
        how = "one standard deviation" if self.step == self.sd else f"a step of {self.step:.2g}"
        return f"{' with '.join(parts)} (sd {self.sd:.2g} on the log scale; {how}: {moves})"


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues, ascending: of the information of zeta, and of theta scaled to unit diagonal."""

    log: np.ndarray
    scaled: np.ndarray


@dataclass(frozen=True)
class Information:
    """The information ``matrix`` (p, p) of theta at ``coordinates``, from ``n_rows`` rows.

    ``approximation`` says how it was made. Standard errors and spectra are those of the expected
    information; a parameter that it does not determine has standard error inf, never NaN.
    """

    matrix: np.ndarray
    coordinates: Coordinates
    n_rows: int
    approximation: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.coordinates.names

    @property
    def log_matrix(self) -> np.ndarray:
        """T' I T, the information of zeta, T = d theta / d zeta."""
        T = self.coordinates.slopes()
        return T.T @ self.matrix @ T

    @property
    def scaled_matrix(self) -> np.ndarray:
        """I_jk / sqrt(I_jj I_kk): free of units, unit diagonal."""
        return _unit_diagonal(self.matrix)[0]

    @property
    def spectrum(self) -> Spectrum:
        return Spectrum(np.linalg.eigvalsh(self.log_matrix), np.linalg.eigvalsh(self.scaled_matrix))

    @property
    def condition_number(self) -> float:
        """Largest over smallest eigenvalue of the information of zeta; inf where the smallest is rounding."""
        return _condition(self.spectrum.log)

    @property
    def scaled_condition_number(self) -> float:
        """The same of the matrix with unit diagonal: how far parameters can stand in for each other."""
        return _condition(self.spectrum.scaled)

    @property
    def smallest_eigenvalue(self) -> float:
        """Of the information of zeta, 0 where it is rounding."""
        values = self.spectrum.log
        return float(values[0]) if values[0] > ROUNDING * values[-1] else 0.0

    def standard_errors(self) -> dict[str, float]:
        """sqrt((I^-1)_jj) of theta, the least that an unbiased estimate can have."""
        return self._named(_standard_errors(self.matrix))

    def log_standard_errors(self) -> dict[str, float]:
        """The same of zeta: 0.1 is about 10% of a variance."""
        return self._named(_standard_errors(self.log_matrix))

    def weakest(self, k: int = 1) -> list[WeakDirection]:
        """The k directions of zeta nearest to unidentifiable, weakest first."""
        values, vectors = np.linalg.eigh(self.log_matrix)
        return [self._direction(values[j], vectors[:, j], values[-1]) for j in range(min(k, len(values)))]

    def along(self, vector: np.ndarray) -> WeakDirection:
        """What is known along a unit direction of zeta (p,)."""
        matrix = self.log_matrix
        return self._direction(float(vector @ matrix @ vector), vector, float(np.linalg.eigvalsh(matrix)[-1]))

    def holding(self, *names: str) -> Information:
        """The information about the other parameters when these are known."""
        rest = self.coordinates.without(*names)
        keep = [self.names.index(name) for name in rest.names]
        note = f"{self.approximation}, {', '.join(names)} known"
        return Information(self.matrix[np.ix_(keep, keep)], rest, self.n_rows, note)

    def with_prior(self, curvature: np.ndarray) -> Information:
        """The information plus that of a prior, whose curvature (p,) is in zeta."""
        inverse = np.linalg.inv(self.coordinates.slopes())
        matrix = self.matrix + inverse.T @ np.diag(curvature) @ inverse
        return Information(matrix, self.coordinates, self.n_rows, f"{self.approximation}, with priors")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "names": list(self.names),
            "values": self.coordinates.theta.tolist(),
            "matrix": self.matrix.tolist(),
            "n_rows": self.n_rows,
            "approximation": self.approximation,
            "standard_errors": self.standard_errors(),
            "log_standard_errors": self.log_standard_errors(),
            "eigenvalues": self.spectrum.log.tolist(),
            "scaled_eigenvalues": self.spectrum.scaled.tolist(),
            "condition_number": self.condition_number,
            "scaled_condition_number": self.scaled_condition_number,
            "weakest": [str(d) for d in self.weakest(2)],
        }

    def _direction(self, value: float, vector: np.ndarray, largest: float) -> WeakDirection:
        vector = vector * np.sign(vector[np.argmax(np.abs(vector))])
        sd = float(value**-0.5) if value > ROUNDING * largest else np.inf
        step = min(sd, 3.0)
        at = self.coordinates
        return WeakDirection(
            self._named(vector), max(float(value), 0.0), sd, self._named(at.theta),
            self._named(at.moved(step * vector)), step,
        )  # fmt: skip

    def _named(self, values: np.ndarray) -> dict[str, float]:
        return dict(zip(self.names, (float(v) for v in values), strict=True))


def _unit_diagonal(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R with matrix = D R D and the diagonal of D; a parameter without information keeps a zero row."""
    scale = np.sqrt(np.diagonal(matrix))
    safe = np.where(scale > 0, scale, 1.0)
    return matrix / np.outer(safe, safe), scale


def _standard_errors(matrix: np.ndarray) -> np.ndarray:
    """sqrt(diag(matrix^-1)), inf for entries that a null direction of the matrix moves."""
    R, scale = _unit_diagonal(matrix)
    values, vectors = np.linalg.eigh(R)
    known = values > ROUNDING * values[-1]
    variances = (vectors[:, known] ** 2 / values[known]).sum(1)
    open_ones = (vectors[:, ~known] ** 2).sum(1) > 1e-8
    safe = np.where(scale > 0, scale, 1.0)
    return np.where(open_ones | (scale == 0), np.inf, np.sqrt(variances) / safe)


def _condition(values: np.ndarray) -> float:
    return float(values[-1] / values[0]) if values[0] > ROUNDING * values[-1] else float("inf")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
