"""Laplace's approximation for any likelihood, through any Gaussian problem with noise per row.

At f, with d1 and W > 0 the slope and curvature of log p(y_i | f_i), the pseudo-targets z = f + N d1 with
noise N = 1/W make a Newton step a Gaussian problem: with C = K + N and F_G(z, N) = -log N(z; 0, C),

    alpha = dF_G/dz = C^-1 z,        E[f | z] = K alpha = z - N alpha,

so one evaluation and its derivative by the targets give the next f, whatever approximation stands behind F_G.
At the mode alpha = d1, and the evidence is (Rasmussen and Williams, eq. 3.32, written with z)

    F = -log q(y) = F_G(z, N) - sum_i [ log p(y_i | f_i) - log N(z_i; f_i, N_i) ].

Derivatives go through the mode too. F depends on f by s = dF/df = (dN/df) (dF_G/dN - W/2 + d1^2/2) alone, and
the mode moves so that h = alpha(z(f), N(f)) - d1(f) stays 0. With lambda solving (dh/df)' lambda = s,

    dF/dtheta = dF_G/dtheta - D dF_G/dtheta,     D X = derivative of X(z) along lambda.

All of dF_G/d(theta, N) are quadratic in z, so D is exact from two more evaluations, at z - lambda/2 and
z + lambda. If noise simply adds to K, lambda = N s. With neighbours it does not quite (a row's weights depend
on the noise of others), and a few fixed-point steps correct lambda; these need no derivative by theta, and
neither do Newton's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from widegp.likelihoods import Likelihood, Terms

MAX_STEPS = 100
NOT_FOUND = f"the mode of f was not found in {MAX_STEPS} Newton steps"
TOLERANCE = 1e-7  # of the slopes at the mode, beside their own sd sqrt(W)
LEAST_W = 1e-10  # below it z = f + d1 / W would lose its digits, and the row says nothing
# A step is shortened if the objective falls by more than this share. With neighbours K depends a little on
# the noise, hence on f, and the objective may fall on the way to the fixed point; a step too long costs more.
SLACK = 0.01
SHORTEST = 1e-4  # share of a step below which it is taken as it is
# Relative change of lambda at which it is good enough: so many times the tolerance of the mode, at most.
REFINED, COARSEST = 1000.0, 0.01
MAX_REFINEMENTS = 8
SHORT = 1e-5  # share of lambda in a difference: what is quadratic in it adds as much, rounding less


class Solved(NamedTuple):
    """F_G = -log N(z; 0, C), dF_G/dz = C^-1 z (n,), dF_G/dN (n,), and dF_G/dtheta by name where asked for.

    A numerical failure is named by ``problem``.
    """

    value: float
    by_target: np.ndarray
    by_noise: np.ndarray
    gradient: dict[str, np.ndarray] | None = None
    problem: str | None = None


class GaussianProblem(Protocol):
    """F_G at fixed theta, as a function of targets z (n,) and noise variances N (n,)."""

    def __call__(self, z: np.ndarray, noise: np.ndarray, gradient: bool = False) -> Solved: ...


@dataclass(frozen=True)
class Response:
    """What was seen: y (n,), known offsets of f (n,), such as log exposures, and weights (n,).

    A row of weight w counts as w rows at the same place: log p is multiplied by w.
    """

    likelihood: Likelihood
    y: np.ndarray
    offset: np.ndarray | float = 0.0
    weight: np.ndarray | float = 1.0

    def terms(self, f: np.ndarray) -> Terms:
        """log p(y_i | f_i + offset_i), its derivatives and W, times the weights."""
        terms = self.likelihood.terms(self.y, f + self.offset)
        return Terms(*(np.asarray(self.weight * part) for part in terms))

    def with_z(self, z: np.ndarray) -> Response:
        """The same at other coordinates of the likelihood's parameters."""
        return replace(self, likelihood=self.likelihood.with_z(z))

    def of(self, rows: np.ndarray) -> Response:
        """The same of some rows."""
        offset, weight = (np.broadcast_to(part, self.y.shape)[rows] for part in (self.offset, self.weight))
        return Response(self.likelihood, self.y[rows], offset, weight)

    def start(self) -> np.ndarray:
        """f (n,) to begin with."""
        return self.likelihood.start(self.y) - self.offset

    def pseudo_targets(self) -> np.ndarray:
        """z (n,) with which Newton's method begins: inputs and metric are chosen by regression on them."""
        f = self.start()
        terms = self.terms(f)
        return Pseudo.at(terms, f, terms.step).z


class Pseudo(NamedTuple):
    """The Gaussian that stands for the likelihood about f: targets z, noise N = 1/W and its terms, (n,)."""

    f: np.ndarray
    z: np.ndarray
    noise: np.ndarray
    terms: Terms

    @classmethod
    def at(cls, terms: Terms, f: np.ndarray, W: np.ndarray) -> Pseudo:
        noise = 1 / np.maximum(W, LEAST_W)
        return cls(f, f + noise * terms.d1, noise, terms)

    @property
    def correction(self) -> float:
        """sum_i [ log p(y_i | f_i) - log N(z_i; f_i, N_i) ]."""
        gap = self.terms.d1**2 * self.noise
        return float(np.sum(self.terms.log_p + 0.5 * (np.log(2 * np.pi * self.noise) + gap)))

    @property
    def d_noise(self) -> np.ndarray:
        """dN/df = -dW / W^2, (n,)."""
        return np.where(self.terms.W > LEAST_W, -self.terms.dW * self.noise**2, 0.0)

@dataclass(frozen=True)
class Mode:
    """Where log p(y | f) + log p(f) is largest, with the last Gaussian problem; ``value`` = -log q(y)."""

    pseudo: Pseudo
    solved: Solved
    steps: int
    problem: str | None = None

    @property
    def f(self) -> np.ndarray:
        return self.pseudo.f

    @property
    def value(self) -> float:
        """F at f and what the next Newton step would add to it, to first order."""
        pseudo, alpha = self.pseudo, self.solved.by_target
        step = pseudo.noise * (pseudo.terms.d1 - alpha)
        by_f = pseudo.d_noise * (self.by_noise + pseudo.terms.d1 * (alpha - pseudo.terms.d1))
        return self.solved.value - pseudo.correction + float(by_f @ step)

    @property
    def by_noise(self) -> np.ndarray:
        """dF/dN = dF_G/dN + d1^2/2 - W/2, (n,)."""
        return self.solved.by_noise + 0.5 * (self.pseudo.terms.d1**2 - 1 / self.pseudo.noise)

    @property
    def variance(self) -> np.ndarray:
        """Var(f_i | y) = N_i - N_i^2 (C^-1)_ii with (C^-1)_ii = 2 dF_G/dN_i + alpha_i^2, (n,)."""
        inverse = 2 * self.solved.by_noise + self.solved.by_target**2
        return self.pseudo.noise - self.pseudo.noise**2 * inverse


@dataclass(frozen=True)
class Evidence:
    """-log q(y), its derivatives by theta and psi (k,), and the mode it was found at."""

    value: float
    gradient: dict[str, np.ndarray] = field(default_factory=dict)
    by_psi: np.ndarray = field(default_factory=lambda: np.zeros(0))
    mode: Mode | None = None
    problem: str | None = None


def find_mode(
    solve: GaussianProblem, response: Response, start: np.ndarray | None = None, tolerance: float = TOLERANCE
) -> Mode:
    """Newton's method, each step one Gaussian problem; ``start`` (n,) is a mode nearby, if one is known."""
    f = response.start() if start is None else start
    alpha, best = None, -np.inf
    for step in range(1, MAX_STEPS + 1):
        terms = response.terms(f)
        pseudo = Pseudo.at(terms, f, terms.step)
        solved = solve(pseudo.z, pseudo.noise)
        if solved.problem is not None:
            return Mode(pseudo, solved, step, solved.problem)
        slack = np.abs(terms.d1 - solved.by_target) * np.sqrt(pseudo.noise)
        if np.max(slack) <= tolerance:
            own = terms.step is terms.W or np.array_equal(terms.step, terms.W)
            return Mode(pseudo, solved, step) if own else _under_fisher(solve, response, f, tolerance)
        target = pseudo.z - pseudo.noise * solved.by_target
        f, alpha, best = stepped(response, (f, alpha, best), target, solved.by_target)
    return Mode(pseudo, solved, MAX_STEPS, NOT_FOUND)


State = tuple[np.ndarray, np.ndarray | None, float]


class HasTerms(Protocol):
    """Responses of one latent function or of several."""

    def terms(self, f: np.ndarray) -> Any: ...


def stepped(response: HasTerms, state: State, f: np.ndarray, alpha: np.ndarray) -> State:
    """From ``state`` (f, alpha = K^-1 f, log p(y | f) - f'alpha/2) to f, or part of the way if that is lower.

    f and alpha move together, so that a shortened step needs no further Gaussian problem. Where a run begins,
    alpha is not known and the step is taken whole.
    """
    old_f, old_alpha, best = state
    share = 1.0
    while True:
        new = f if old_alpha is None else old_f + share * (f - old_f)
        new_alpha = alpha if old_alpha is None else old_alpha + share * (alpha - old_alpha)
        reached = float(np.sum(response.terms(new).log_p) - 0.5 * np.sum(new * new_alpha))
        if reached >= best - SLACK * abs(best) or share < SHORTEST:
            return new, new_alpha, reached
        share /= 2


def _under_fisher(solve: GaussianProblem, response: Response, f: np.ndarray, tolerance: float) -> Mode:
    """From a mode found with steps of other curvature, N_s = 1/step, to that of the problem with N = 1/W.

    Both are one where noise adds to K. With neighbours alpha - d1 = r is left, and a Newton step for it is
    f - N_s r - N_s C_s^-1 (N - N_s) r, with C_s = K + N_s.
    """
    for step in range(1, MAX_STEPS + 1):
        terms = response.terms(f)
        pseudo = Pseudo.at(terms, f, terms.W)
        solved = solve(pseudo.z, pseudo.noise)
        left = solved.by_target - terms.d1
        if solved.problem is not None or np.max(np.abs(left) * np.sqrt(pseudo.noise)) <= tolerance:
            return Mode(pseudo, solved, step, solved.problem)
        noise = Pseudo.at(terms, f, terms.step).noise
        f = f - noise * (left + solve((pseudo.noise - noise) * left, noise).by_target)
    return Mode(pseudo, solved, MAX_STEPS, NOT_FOUND)


def evidence(
    solve: GaussianProblem, response: Response, start: np.ndarray | None = None, tolerance: float = TOLERANCE
) -> Evidence:
    """-log q(y) and its gradient, implicit part included, from a mode near ``start`` (n,) if given."""
    mode = find_mode(solve, response, start, tolerance)
    if mode.problem is not None:
        return Evidence(np.inf, mode=mode, problem=mode.problem)
    s = mode.pseudo.d_noise * mode.by_noise
    if not np.any(s):
        whole = solve(mode.pseudo.z, mode.pseudo.noise, gradient=True)
        there = Along(np.zeros_like(s), np.zeros_like(s), np.zeros_like(s), whole.gradient or {})
    else:
        there = along(solve, mode, _direction(solve, mode, s, min(REFINED * tolerance, COARSEST)))
    return Evidence(mode.value, there.gradient, _by_psi(response, mode, there), mode)


class Along(NamedTuple):
    """lambda (n,), D alpha (n,), D dF_G/dN (n,), and dF/dtheta = dF_G/dtheta - D dF_G/dtheta."""

    direction: np.ndarray
    alpha: np.ndarray
    by_noise: np.ndarray
    gradient: dict[str, np.ndarray]


def along(solve: GaussianProblem, mode: Mode, direction: np.ndarray) -> Along:
    """For X(z + c lambda) = X + c D + c^2 Q:  X - D = (4 X(-1/2) - X(1))/3."""
    z, noise = mode.pseudo.z, mode.pseudo.noise
    back = solve(z - 0.5 * direction, noise, gradient=True)
    forth = solve(z + direction, noise, gradient=True)
    alpha = (forth.by_target - back.by_target) / 1.5
    by_noise = mode.solved.by_noise - (4 * back.by_noise - forth.by_noise) / 3
    backwards, forwards = back.gradient or {}, forth.gradient or {}
    total = {name: (4 * slope - forwards[name]) / 3 for name, slope in backwards.items()}
    return Along(direction, alpha, by_noise, total)


def _direction(solve: GaussianProblem, mode: Mode, s: np.ndarray, enough: float) -> np.ndarray:
    """lambda = N (s - (dN/df) [ d1 D alpha + D dF_G/dN ]) (n,), from lambda = N s on, each D by a short step.

    The bracket is 0 where noise adds to K: there dF_G/dN = ((C^-1)_ii - alpha^2)/2 and alpha = d1.
    """
    pseudo, solved = mode.pseudo, mode.solved
    direction = pseudo.noise * s
    for _ in range(MAX_REFINEMENTS):
        there = solve(pseudo.z + SHORT * direction, pseudo.noise)
        change = pseudo.terms.d1 * (there.by_target - solved.by_target) + there.by_noise - solved.by_noise
        new = pseudo.noise * (s - pseudo.d_noise * change / SHORT)
        if np.linalg.norm(new - direction) <= enough * np.linalg.norm(new):
            return new
        direction = new
    return direction


def _by_psi(response: Response, mode: Mode, along: Along) -> np.ndarray:
    """dF/dpsi = -d log p/dpsi + (dN/dpsi)' dF/dN - lambda' dh/dpsi, (k,).

    With N_psi = -W_psi / W^2 and z_psi = N_psi d1 + N d1_psi:
    lambda' dh/dpsi = z_psi' D alpha + N_psi' D dF_G/dN - lambda' d1_psi.
    """
    pseudo = mode.pseudo
    terms = response.likelihood.psi_terms(response.y, mode.f + response.offset)
    weight = np.broadcast_to(response.weight, mode.f.shape)[:, None]
    log_p, d1, W = (weight * part for part in terms)
    noise = np.where(pseudo.terms.W > LEAST_W, -(pseudo.noise**2), 0.0)[:, None] * W
    z = noise * pseudo.terms.d1[:, None] + pseudo.noise[:, None] * d1
    through_mode = along.alpha @ z + along.by_noise @ noise - along.direction @ d1
    return -log_p.sum(axis=0) + mode.by_noise @ noise - through_mode
