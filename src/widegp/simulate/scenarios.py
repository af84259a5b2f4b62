"""The simulation scenarios C1 to C8, table (cenarios_simulacao_kmix)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from widegp.designs import DESIGNS
from widegp.inference.protocol import NOISE_FRACTION
from widegp.kernels import Mixed
from widegp.simulate.draws import Simulation, simulate

REPLICATIONS = 20


@dataclass(frozen=True)
class Scenario:
    """A design of n rows and I inputs; f ~ GP(0, K_mix) with all variances 1 and alpha = w = 1/2."""

    name: str
    design: str
    n_inputs: int
    n_rows: int
    noise_fraction: float = NOISE_FRACTION

    def inputs(self, seed: int = 0) -> np.ndarray:
        """X (n, I); the same for every replication."""
        return DESIGNS[self.design](self.n_rows, self.n_inputs, _streams(seed)[0])

    def kernel(self) -> Mixed:
        """K_mix at the parameters of the simulations."""
        return Mixed(sigma_a2=1.0, sigma_u2=1.0, sigma_b2=1.0, sigma_v2=1.0, alpha=0.5, w=0.5)  # type: ignore[call-arg]


SCENARIOS = {
    s.name: s
    for s in (
        Scenario("C1", "uniform", 20, 10_000),
        Scenario("C2", "uniform", 80, 10_000),
        Scenario("C3", "uniform", 20, 20_000),
        Scenario("C4", "uniform", 80, 20_000),
        Scenario("C5", "uniform", 20, 50_000),
        Scenario("C6", "uniform", 80, 50_000),
        Scenario("C7", "stratified", 20, 50_000),
        Scenario("C8", "stratified", 80, 50_000),
    )
}


def scenario(name: str) -> Scenario:
    """The scenario called ``name``, "C1" to "C8"."""
    if name not in SCENARIOS:
        raise ValueError(f"Unknown scenario {name!r}; choose one of {', '.join(SCENARIOS)}.")
    return SCENARIOS[name]


def draw_scenario(name: str, seed: int = 0, **settings: Any) -> Simulation:
    """X, f, y, kernel and noise of one scenario; ``settings`` as in `simulate`."""
    chosen = scenario(name)
    return simulate(
        chosen.kernel(), chosen.inputs(seed), noise_fraction=chosen.noise_fraction, rng=_streams(seed)[1],
        **settings,
    )  # fmt: skip


def replications(name: str = "C1", count: int = REPLICATIONS, seed: int = 0, **settings: Any) -> Simulation:
    """The scenario with fixed inputs and ``count`` draws of the target: y (n, count).

    The first column is the y of `draw_scenario` with the same seed.
    """
    return draw_scenario(name, seed, n_draws=count, **settings)


def _streams(seed: int) -> list[np.random.Generator]:
    return np.random.default_rng(seed).spawn(2)
