"""Limit kernels of shallow Bayesian networks."""

from widegp.kernels.base import Kernel
from widegp.kernels.closed import LeakyReLU, Mixed, Mixture, ReLU, Sigmoid, Tanh
from widegp.kernels.quadrature import FromActivation, exact_sigmoid, exact_tanh

__all__ = [
    "FromActivation",
    "Kernel",
    "LeakyReLU",
    "Mixed",
    "Mixture",
    "ReLU",
    "Sigmoid",
    "Tanh",
    "exact_sigmoid",
    "exact_tanh",
]
