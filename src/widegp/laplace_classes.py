"""Laplace's approximation for several classes: C latent functions under one kernel, coupled by the softmax.

With P (n, C) the probabilities at f (n, C), the curvature of a row is diag(P) - P P', which couples classes:

    mode        K^-1 f_c = Y_c - P_c for every class c
    evidence    -log p(y | f) + sum_c f_c' K^-1 f_c / 2 + log det(I + K W) / 2        (R&W, section 3.5)

A Gaussian problem with noise per row knows of one class alone. The likelihood does not see a shift of all f_c
of a row. On what it sees, the C - 1 contrasts, the vectors u_c = e_c - 1/C are a tight frame,
sum_c u_c u_c' = I - 1 1'/C, and the curvature along u_c / |u_c| is D_c = P_c (1 - P_c) C/(C - 1). As the
logarithm is concave (operator Jensen),

    log det(I + K W)  <=  (C - 1)/C  sum_c log det(I + K D_c),

with equality for two classes, and where all classes are equally likely. The right-hand side is what is used:
a lower bound of Laplace's evidence, and posteriors of f_c with noise N_c = 1/D_c that are right for contrasts
in the same two cases. The mode does not depend on D. With omega = (C - 1)/C the Gaussian problems are

    F_G(z, N) = omega sum_c -log N(z_c / sqrt(omega); 0, K + N_c),     z_c = f_c + N_c d1_c,
    F = F_G(z, N) - sum [ log p + d1^2 N / 2 + omega log(2 pi N) / 2 ].

Newton's steps and lambda, by which derivatives go through the mode (`widegp.laplace`), are each one linear
system. Preconditioned by N and restricted to contrasts, it is the identity for two classes and near it for
more, so that a few steps of GMRES solve it; its matrix needs one Gaussian problem per class to apply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres

from widegp.laplace import (
    COARSEST,
    LEAST_W,
    MAX_STEPS,
    NOT_FOUND,
    REFINED,
    TOLERANCE,
    Evidence,
    GaussianProblem,
    Solved,
    along,
    stepped,
)
from widegp.likelihoods.softmax import Softmax, SoftmaxTerms

# Relative residual of a Newton step: the next one corrects it, so that more would be wasted.
INEXACT = 0.03
MOST_PRODUCTS = 20
# Share of |z| in a difference: what is quadratic in it adds as much, and rounding about as much.
SHORT = 1e-7


@dataclass(frozen=True)
class ClassResponse:
    """Classes y (n,), numbered from 0 on; ``offset`` (C,) is added to f; ``weight`` (n,) or a number.

    A row of weight w counts as w rows at the same place.
    """

    likelihood: Softmax
    y: np.ndarray
    offset: np.ndarray | float = 0.0
    weight: np.ndarray | float = 1.0

    @property
    def weights(self) -> np.ndarray:
        """(n, 1)."""
        return np.broadcast_to(np.asarray(self.weight, float), self.y.shape)[:, None]

    def terms(self, f: np.ndarray) -> SoftmaxTerms:
        """log p and its derivatives at f (n, C), times the weights; P as it is."""
        terms, weight = self.likelihood.terms(self.y, f + self.offset), self.weights
        own = {"log_p": weight[:, 0] * terms.log_p}
        return terms._replace(**own, d1=weight * terms.d1, W=weight * terms.W, dW=weight * terms.dW)

    def of(self, rows: np.ndarray) -> ClassResponse:
        """The same of some rows."""
        return ClassResponse(self.likelihood, self.y[rows], self.offset, self.weights[rows, 0])

    def start(self) -> np.ndarray:
        """f (n, C) to begin with: the offset, which is a level, comes on top."""
        return np.zeros((len(self.y), self.likelihood.n_classes))

    def pseudo_targets(self) -> np.ndarray:
        """The contrast of classes that varies most over the rows, (n,)."""
        d1 = contrast(self.terms(self.start()).d1 / self.weights)
        return np.asarray(np.linalg.svd(d1, full_matrices=False)[0][:, 0] * np.sqrt(len(d1)))


class ClassPseudo(NamedTuple):
    """The Gaussians that stand for the likelihood about f: targets z, noise N = 1/D, all (n, C)."""

    f: np.ndarray
    z: np.ndarray
    noise: np.ndarray
    terms: SoftmaxTerms
    weight: np.ndarray

    @classmethod
    def at(cls, response: ClassResponse, f: np.ndarray) -> ClassPseudo:
        terms = response.terms(f)
        noise = 1 / np.maximum(terms.W / share(f.shape[1]), LEAST_W)
        return cls(f, f + noise * terms.d1, noise, terms, response.weights)

    @property
    def correction(self) -> float:
        """sum [ log p + d1^2 N / 2 + omega log(2 pi N) / 2 ]."""
        logs = share(self.f.shape[1]) * np.log(2 * np.pi * self.noise)
        return float(np.sum(self.terms.log_p) + 0.5 * np.sum(self.terms.d1**2 * self.noise + logs))

    def curved(self, v: np.ndarray) -> np.ndarray:
        """W v = weight (diag(P) - P P') v, row by row: (n, C)."""
        P = self.terms.P
        return self.weight * P * (v - np.sum(P * v, axis=1, keepdims=True))

    def through_noise(self, b: np.ndarray) -> np.ndarray:
        """(dN/df)' b (n, C), with dN_c/df_k = -N_c (1 - 2 P_c)/(1 - P_c) (1{c = k} - P_k)."""
        terms, least = self.terms, LEAST_W * share(self.f.shape[1])
        seen = least < terms.W
        W = np.where(seen, terms.W, 1.0)
        g = np.where(seen, -b * self.noise * terms.dW / W * self.weight * terms.P / W, 0.0)
        return g - terms.P * np.sum(g, axis=1, keepdims=True)


@dataclass(frozen=True)
class ClassMode:
    """Where log p(y | f) + log p(f) is largest, with the last Gaussian problems; ``value`` = F."""

    pseudo: ClassPseudo
    solved: Solved
    steps: int
    problem: str | None = None

    @property
    def f(self) -> np.ndarray:
        return self.pseudo.f

    @property
    def step(self) -> np.ndarray:
        """N (d1 - alpha) as a contrast, (n, C): about what the next Newton step would add to f."""
        return contrast(self.pseudo.noise * (self.pseudo.terms.d1 - self.solved.by_target))

    @property
    def by_f(self) -> np.ndarray:
        """dF/df = (dN/df)' [ dF_G/dN + d1 (alpha - d1/2) - omega D/2 ] + (I - W N)(alpha - d1), (n, C)."""
        pseudo, d1 = self.pseudo, self.pseudo.terms.d1
        left = self.solved.by_target - d1
        own = 0.5 * (d1**2 - share(d1.shape[1]) / pseudo.noise)
        through = pseudo.through_noise(self.solved.by_noise + d1 * left + own)
        return through + left - pseudo.curved(pseudo.noise * left)

    @property
    def value(self) -> float:
        """F at f, which is not quite the mode."""
        return self.solved.value - self.pseudo.correction


def share(n_classes: int) -> float:
    """omega = (C - 1)/C."""
    return (n_classes - 1) / n_classes


def contrast(v: np.ndarray) -> np.ndarray:
    """v (n, C) less the mean of each row."""
    return v - v.mean(axis=1, keepdims=True)


@dataclass(frozen=True)
class ByClass:
    """F_G(z, N) = omega sum_c -log N(z_c / sqrt(omega); 0, K + N_c), z and N (n, C), with its derivatives."""

    each: GaussianProblem

    def __call__(self, z: np.ndarray, noise: np.ndarray, gradient: bool = False) -> Solved:
        omega = share(z.shape[1])
        root, made = np.sqrt(omega), []
        for target, variance in zip(z.T / root, noise.T, strict=True):
            one = self.each(np.ascontiguousarray(target), np.ascontiguousarray(variance), gradient)
            if one.problem is not None:
                return Solved(np.inf, z, noise, None, one.problem)
            made.append(one)
        slopes: dict[str, Any] = {}
        for one in made:
            for name, slope in (one.gradient or {}).items():
                slopes[name] = slopes.get(name, 0.0) + omega * slope
        return Solved(
            omega * sum(m.value for m in made), root * np.stack([m.by_target for m in made], axis=1),
            omega * np.stack([m.by_noise for m in made], axis=1), slopes,
        )  # fmt: skip


def find_class_mode(
    each: GaussianProblem, response: ClassResponse, start: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
) -> ClassMode:  # fmt: skip
    """Newton's method; ``start`` (n, C) is a mode nearby, if one is known."""
    solve = ByClass(each)
    f = response.start() if start is None else start
    alpha, best = None, -np.inf
    for count in range(1, MAX_STEPS + 1):
        pseudo = ClassPseudo.at(response, f)
        solved = solve(pseudo.z, pseudo.noise)
        mode = ClassMode(pseudo, solved, count, solved.problem)
        if mode.problem is not None or np.max(np.abs(mode.step) / np.sqrt(pseudo.noise)) <= tolerance:
            return mode
        step = _newton(solve, mode)
        reached = pseudo.terms.d1 - pseudo.curved(step)
        f, alpha, best = stepped(response, (f, alpha, best), f + step, reached)
    return ClassMode(pseudo, solved, MAX_STEPS, NOT_FOUND)


def class_evidence(
    each: GaussianProblem, response: ClassResponse, start: np.ndarray | None = None,
    tolerance: float = TOLERANCE,
) -> Evidence:  # fmt: skip
    """F and its gradient, implicit part included, from a mode near ``start`` (n, C) if given."""
    mode: Any = find_class_mode(each, response, start, tolerance)
    if mode.problem is not None:
        return Evidence(np.inf, mode=mode, problem=mode.problem)
    solve: Any = ByClass(each)
    direction = _direction(solve, mode, min(REFINED * tolerance, COARSEST))
    # What the next Newton step J^-1 (d1 - alpha) would add to F, to first order, is lambda' (d1 - alpha).
    rest = float(np.sum(direction * (mode.pseudo.terms.d1 - mode.solved.by_target)))
    return Evidence(mode.value + rest, along(solve, mode, direction).gradient, mode=mode)


def _newton(solve: ByClass, mode: ClassMode) -> np.ndarray:
    """delta (n, C) with J delta = d1 - alpha, J = C^-1 (I - N W) + W, preconditioned by N."""
    pseudo = mode.pseudo

    def product(v: np.ndarray) -> np.ndarray:
        Wv = pseudo.curved(v)
        return contrast(pseudo.noise * (solve(v - pseudo.noise * Wv, pseudo.noise).by_target + Wv))

    return _solved(product, mode.step, INEXACT)


def _direction(solve: ByClass, mode: ClassMode, enough: float) -> np.ndarray:
    """lambda = N u (n, C), u a contrast, by which derivatives go through the mode: J' lambda = dF/df.

    The mode is where the contrast of N h is 0, h = alpha - d1. With v = N u and D the derivative along v

        J' v = C^-1 v + W (v - N C^-1 v) + (dN/df)' [ d1 C^-1 v + D dF_G/dN + h u ].

    The bracket is 0 where noise adds to K.
    """
    pseudo, at = mode.pseudo, mode.solved
    left = at.by_target - pseudo.terms.d1
    size = float(np.linalg.norm(pseudo.z))

    def product(u: np.ndarray) -> np.ndarray:
        u = contrast(u)
        v = pseudo.noise * u
        short = SHORT * size / max(float(np.linalg.norm(v)), 1e-300)
        there = solve(pseudo.z + short * v, pseudo.noise)
        alpha = (there.by_target - at.by_target) / short
        bracket = pseudo.terms.d1 * alpha + (there.by_noise - at.by_noise) / short + left * u
        coupled = pseudo.curved(v - pseudo.noise * alpha)
        return contrast(alpha + coupled + pseudo.through_noise(bracket))

    return pseudo.noise * contrast(_solved(product, contrast(mode.by_f), enough))


def _solved(product: Callable[[np.ndarray], np.ndarray], b: np.ndarray, enough: float) -> np.ndarray:
    """x (n, C) with product(x) = b, to a residual of ``enough`` |b| or after MOST_PRODUCTS products."""
    if not np.any(b):
        return b
    matrix = LinearOperator(
        (b.size, b.size), lambda v: product(v.reshape(b.shape)).ravel(), dtype=np.float64
    )
    x, _ = gmres(matrix, b.ravel(), rtol=enough, restart=MOST_PRODUCTS, maxiter=1)
    return np.asarray(x).reshape(b.shape)
