"""Finite-width Bayesian networks: prior draws, and their convergence to the limit."""

from widegp.networks.convergence import ConvergenceStudy, Slope, convergence_study
from widegp.networks.finite import BlockMixtureBNN, CosineBNN, HiddenMoments, Network, ShallowBNN, network_of

__all__ = [
    "BlockMixtureBNN",
    "ConvergenceStudy",
    "CosineBNN",
    "HiddenMoments",
    "Network",
    "ShallowBNN",
    "Slope",
    "convergence_study",
    "network_of",
]
