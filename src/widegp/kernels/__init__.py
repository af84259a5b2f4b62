"""Limit kernels of shallow Bayesian networks."""

from widegp.kernels.base import Kernel
from widegp.kernels.closed import LeakyReLU, Mixed, Mixture, ReLU, Sigmoid, Tanh
from widegp.kernels.composite import Product, Sum
from widegp.kernels.moment import MomentKernel
from widegp.kernels.parameters import Parameter
from widegp.kernels.quadrature import FromActivation, exact_sigmoid, exact_tanh
from widegp.kernels.registry import NAMES, named
from widegp.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic, StationaryKernel

__all__ = [
    "NAMES",
    "RBF",
    "FromActivation",
    "Kernel",
    "LeakyReLU",
    "Matern12",
    "Matern32",
    "Matern52",
    "Mixed",
    "Mixture",
    "MomentKernel",
    "Parameter",
    "Product",
    "RationalQuadratic",
    "ReLU",
    "Sigmoid",
    "StationaryKernel",
    "Sum",
    "Tanh",
    "exact_sigmoid",
    "exact_tanh",
    "named",
]
