"""What a parameter is: its range, its map to the whole line, its default prior, and what it means.

    variance  x = exp(z), or softplus(z) under Adam      sigma_a2, sigma_u2, sigma_b2, sigma_v2
    fraction  x = 1 / (1 + exp(-z))                      alpha, w, weights
    noise     x = exp(2 z)                               sigma_eps2; z = log sigma_eps, the paper's nugget
    free      x = z                                      psi, the parameters of a target warp

A kernel declares its parameters as a tuple of `Parameter`, of these kinds or of its own; whoever fits, saves,
reports or explains a kernel reads them there. The numbers of the default priors are those of this file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from widegp.data.arrays import Floats
from widegp.kernels.priors import Beta, InverseGamma, LogNormal, Prior, Relative

Elementwise = Callable[[Any], Any]


class Map(NamedTuple):
    """x = forward(z), z = inverse(x), dx/dz = slope(z), d log(dx/dz) / dz = bend(z): smooth, elementwise."""

    forward: Elementwise
    inverse: Elementwise
    slope: Elementwise
    bend: Elementwise


EXP = Map(np.exp, np.log, np.exp, np.ones_like)
SOFTPLUS = Map(
    lambda z: np.logaddexp(0.0, z), lambda x: x + np.log(-np.expm1(-x)), expit, lambda z: expit(-z)
)
LOGISTIC = Map(
    expit, lambda x: np.log(x) - np.log1p(-x), lambda z: expit(z) * expit(-z), lambda z: 1 - 2 * expit(z)
)
SQUARED_EXP = Map(
    lambda z: np.exp(2 * z), lambda x: 0.5 * np.log(x), lambda z: 2 * np.exp(2 * z),
    lambda z: 2 * np.ones_like(z),
)  # fmt: skip
IDENTITY = Map(lambda z: z, lambda x: x, np.ones_like, np.zeros_like)


KINDS: dict[str, Kind] = {}
"""All kinds by name, as files of averaged models know them; a kind enters when it is made."""


@dataclass(frozen=True)
class Kind:
    """Range within which a fit may move a parameter, its map to the whole line, and the priors it may have.

    Flat directions end at ``lower`` and ``upper``, not at infinity. ``adam`` is the map in which the paper's
    steps are taken: softplus for variances, which is linear for large ones and so takes L-BFGS, which uses
    ``map``, a hundred times as far from 10 to 1,000 as from 0.1 to 10.
    """

    name: str
    map: Map
    adam: Map
    lower: float
    upper: float
    priors: tuple[type, ...] = ()

    def __post_init__(self) -> None:
        if self.name in KINDS:
            raise ValueError(f"A kind of parameter {self.name!r} exists already; name this one otherwise.")
        KINDS[self.name] = self

    def inside(self, x: Any) -> Floats:
        """x, pulled to the nearest value of the range."""
        return np.clip(np.asarray(x, np.float64), self.lower, self.upper)


VARIANCE = Kind("variance", EXP, SOFTPLUS, 1e-9, 1e6, (InverseGamma, LogNormal, Relative))
FRACTION = Kind("fraction", LOGISTIC, LOGISTIC, 1e-8, 1 - 1e-8, (Beta,))
NOISE = Kind("noise", SQUARED_EXP, SQUARED_EXP, 1e-7, 1e3, (InverseGamma, LogNormal))
FREE = Kind("free", IDENTITY, IDENTITY, -np.inf, np.inf)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel or of the model around it.

    prior : the default one, on the scale of a standardised target and standardised inputs.
    title, meaning : what it is in two words, and what it does in a sentence.
    each : set where the parameter may have one entry per input (ARD), and then the prior of all. Such
        a parameter is shared out among the inputs: its start and the scales of both priors are divided by
        their number.
    reading : a sentence about an estimate x, in which {share} and {rest} stand for x and 1 - x in per cent.
    """

    name: str
    kind: Kind
    prior: Prior | None
    title: str
    meaning: str
    each: Relative | None = None
    reading: Callable[[float], str] | None = None

    @property
    def per_input(self) -> bool:
        return self.each is not None

    def default_prior(self, n_inputs: int, ard: bool) -> Prior | None:
        """The prior of the parameter for so many inputs, or of its entries with ``ard``."""
        if self.each is None:
            return self.prior
        shared: Any = self.each if ard else self.prior
        scaled: Prior = shared.scaled(1.0 / n_inputs)
        return scaled

    def of_part(self, part: str) -> Parameter:
        """The same as a parameter of a sum or product, in which its kernel is called ``part``."""
        return dataclasses.replace(self, name=f"{part}.{self.name}", title=f"{part}: {self.title}")


def _kink(alpha: float) -> str:
    shape = "almost straight" if alpha > 0.8 else "a sharp kink" if alpha < 0.2 else "a soft kink"
    return f"Here {{share}} of the slope is left: {shape}."


# The priors say little where the data speak and keep the flat directions finite where they do not (sigma_a2,
# sigma_u2 and sigma_v2 trade off as w nears 1). A spread of 2 is a factor of e^4 = 55 either way with 95%.
# What they say about a target is drawn by benchmarks/prior_predictive.py. Variances by input lie further
# apart, so that an input which explains nothing can be all but left out: with a spread of 2 the evidence of
# simulated tables with five such inputs of ten is lower by 0.1 nats at 60 rows and by 2 at 120.
SIGMA_A2 = Parameter(
    "sigma_a2", VARIANCE, LogNormal(1.0, 2.0), "hidden biases",
    "How far from the centre of the data the function bends (variance of the hidden biases).",
)  # fmt: skip
SIGMA_U2 = Parameter(
    "sigma_u2", VARIANCE, LogNormal(1.0, 2.0), "hidden weights",
    "How quickly the function changes along the inputs (variance of the hidden weights).",
    each=Relative(LogNormal(1.0, 2.0), 3.0),
)  # fmt: skip
SIGMA_B2 = Parameter(
    "sigma_b2", VARIANCE, LogNormal(0.25, 2.0), "output bias",
    "How far the overall level may lie from the mean of the target.",
)  # fmt: skip
SIGMA_V2 = Parameter(
    "sigma_v2", VARIANCE, LogNormal(1.0, 2.0), "output weights",
    "How large the function may grow (variance of the output weights).",
)  # fmt: skip
ALPHA = Parameter(
    "alpha", FRACTION, Beta(1.5, 1.5), "leaky slope",
    "What is left of the slope beyond a kink: 0 is a sharp kink, 1 a straight line.", reading=_kink,
)  # fmt: skip
W = Parameter(
    "w", FRACTION, Beta(1.5, 1.5), "smooth share",
    "Balance of the two parts: 1 is all smooth (tanh), 0 all angular (leaky ReLU).",
    reading=lambda w: "Here {share} smooth, {rest} angular.",
)  # fmt: skip
WEIGHTS = Parameter("weights", FRACTION, Beta(1.5, 1.5), "mixing weights", "Balance of the activations.")

VARIANCES = (SIGMA_A2, SIGMA_U2, SIGMA_B2, SIGMA_V2)
