"""Draws of a Gaussian process at large n, and the simulation scenarios of the paper."""

from widegp.simulate.draws import METHODS, Simulation, default_width, mean_variance, simulate
from widegp.simulate.scenarios import SCENARIOS, Scenario, draw_scenario, replications, scenario

__all__ = [
    "METHODS",
    "SCENARIOS",
    "Scenario",
    "Simulation",
    "default_width",
    "draw_scenario",
    "mean_variance",
    "replications",
    "scenario",
    "simulate",
]
