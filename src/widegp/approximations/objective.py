"""From the four sums to the likelihood, its cotangents, and the weights of the features."""

from __future__ import annotations

from typing import Any, NamedTuple

from widegp.approximations.evaluation import LOG_2PI
from widegp.approximations.sums import Rule, Sums
from widegp.compute.backend import Backend

Array = Any


class Weights(NamedTuple):
    """Posterior of the feature weights: N(beta, B^-1), B = I + A = L_B L_B'; beta (r,), L_B (r, r)."""

    beta: Array
    L_B: Array


def feature_weights(backend: Backend, sums: Sums) -> Weights:
    """beta = B^-1 b with B = I + A."""
    L_B = backend.cholesky(sums.A + backend.xp.eye(sums.A.shape[0]))
    half = backend.solve_lower(L_B, sums.b)
    return Weights(backend.solve_lower(L_B, half, transposed=True), L_B)


def negative_log_likelihood(backend: Backend, rule: Rule, sums: Sums) -> tuple[Array, Sums]:
    """-log N(y~; 0, Phi~ Phi~' + D) and its derivatives by the sums.

    F = (l + logdet B + q - b'B^-1 b + n log 2 pi) / 2, eq. (gp_mll) by Woodbury, plus
    (trace - tr A) / 2 for vfe, so  F_A = (B^-1 + beta beta')/2 [- I/2],  F_b = -beta,  F_q = F_l = 1/2.
    """
    xp = backend.xp
    beta, L_B = feature_weights(backend, sums)
    inverse_half = backend.invert_lower(L_B)
    value = 2 * xp.sum(xp.log(xp.diagonal(L_B))) + sums.log_d + sums.q - sums.b @ beta + sums.count * LOG_2PI
    A_bar = (backend.inner(inverse_half, inverse_half) + beta[:, None] * beta[None, :]) / 2
    if rule.trace:
        value = value + sums.trace - xp.trace(sums.A)
        A_bar = A_bar - xp.eye(L_B.shape[0]) / 2
    trace_bar = 0.5 if rule.trace else 0.0
    return value / 2, Sums(A_bar, -beta, 0.5, 0.5, trace_bar, 0.0, 0)
