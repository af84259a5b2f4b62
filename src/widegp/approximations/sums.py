"""The four sums over rows that every member of the family is made of, and their pullback.

    A = sum phi~ phi~'/d,   b = sum phi~ y~/d,   q = sum y~^2/d,   l = sum log d

`Rule.residual` members (fitc, vecchia, full-scale) condition each row on its neighbours under
R = K - Phi Phi'. The others (dtc, vfe) drop R, so d is the noise: their sums are made of raw k(Z, x) and
weighted by W and the noise afterwards, which spares a product per row. W'SW loses digits where W is large;
`Rule.whitened` makes their sums of features, as those of the others are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from widegp.approximations.whitening import Whitener
from widegp.compute.backend import Backend, Block, RowCotangents
from widegp.engines.blocks import add_trees
from widegp.kernels.base import Kernel

Array = Any


class Rule(NamedTuple):
    """Which member of the family: does a row keep its residual, is the trace term added? And, where no
    residual is kept: are the sums made of features phi = W'k(Z, x), or of k(Z, x) itself?
    """

    residual: bool
    trace: bool = False
    whitened: bool = False


RULES = {
    "dtc": Rule(residual=False),
    "vfe": Rule(residual=False, trace=True),
    "fitc": Rule(residual=True),
    "vecchia": Rule(residual=True),
    "full-scale": Rule(residual=True),
}


class Sums(NamedTuple):
    """A (r, r), b (r,), q, l, trace = sum K(x, x) (vfe only), rows counted, rows that failed."""

    A: Array
    b: Array
    q: Array
    log_d: Array
    trace: Array
    count: Array
    failed: Array


class Model(NamedTuple):
    """Everything a block function needs beside the block."""

    kernel: Kernel
    noise: Array
    Z: Array
    white: Whitener


class BlockGradient(NamedTuple):
    """dF/d(kernel, noise, W, psi) through one block."""

    kernel: Any
    noise: Array
    W: Array
    psi: Array


def block_sums(backend: Backend, rule: Rule, model: Model, block: Block) -> Sums:
    """One block's share of the sums; raw (no noise, and no W unless whitened) when the residual is dropped.

    This and `block_pullback` may run in another process, so each enters the backend's scope itself.
    """
    with backend.scope():
        return _block_sums(backend, rule, model, block)


def block_pullback(backend: Backend, rule: Rule, model: Model, bar: Sums, block: Block) -> BlockGradient:
    """dF/d(kernel, noise, W, psi) given dF/dsums."""
    with backend.scope():
        return _block_pullback(backend, rule, model, bar, block)


def _block_sums(backend: Backend, rule: Rule, model: Model, block: Block) -> Sums:
    xp = backend.xp
    K = backend.cross(model.kernel, block.X, model.Z)
    if rule.residual:
        rows = backend.condition(model.kernel, model.noise, block, backend.matmul(K, model.white.W))
        scaled = rows.features * (block.weight / rows.d)[:, None]
        return Sums(
            backend.inner(rows.features, scaled), rows.y @ scaled, xp.sum(block.weight * rows.y**2 / rows.d),
            xp.sum(block.weight * xp.log(rows.d)), 0.0, xp.sum(block.weight), rows.failed,
        )  # fmt: skip
    F = _features(backend, rule, model, K)
    F = F * block.weight[:, None] if backend.pads else F
    trace = xp.sum(block.weight * backend.diagonal(model.kernel, block.X)) if rule.trace else 0.0
    return Sums(
        backend.inner(F, F),
        block.y @ F,
        xp.sum(block.weight * block.y**2),
        0.0,
        trace,
        xp.sum(block.weight),
        0,
    )


def _block_pullback(backend: Backend, rule: Rule, model: Model, bar: Sums, block: Block) -> BlockGradient:
    xp = backend.xp
    K = backend.cross(model.kernel, block.X, model.Z)
    if rule.residual:
        cotangents = RowCotangents(bar.A, bar.b, bar.q, bar.log_d)
        by_features, by_y, by_noise, kernel_bar = backend.condition_pullback(
            model.kernel, model.noise, block, backend.matmul(K, model.white.W), cotangents
        )
        if model.Z.shape[0] > 0:
            K_bar = backend.matmul(by_features, model.white.W.T)
            kernel_bar = add_trees(kernel_bar, backend.cross_pullback(model.kernel, block.X, model.Z, K_bar))
        return BlockGradient(kernel_bar, by_noise, backend.inner(K, by_features), by_y @ block.dy)
    F = _features(backend, rule, model, K)
    F_bar = backend.matmul_plus(F, 2 * bar.A, block.y, bar.b)
    F_bar = F_bar * block.weight[:, None] if backend.pads else F_bar
    K_bar = backend.matmul(F_bar, model.white.W.T) if rule.whitened else F_bar
    W_bar = backend.inner(K, F_bar) if rule.whitened else 0.0
    kernel_bar = backend.cross_pullback(model.kernel, block.X, model.Z, K_bar)
    if rule.trace:
        by_diagonal = bar.trace * block.weight
        kernel_bar = add_trees(kernel_bar, backend.diagonal_pullback(model.kernel, block.X, by_diagonal))
    by_psi = xp.zeros(0)
    if block.dy.shape[1]:
        by_psi = ((F @ bar.b + 2 * bar.q * block.y) * block.weight) @ block.dy
    return BlockGradient(kernel_bar, 0.0, W_bar, by_psi)


def _features(backend: Backend, rule: Rule, model: Model, K: Array) -> Array:
    return backend.matmul(K, model.white.W) if rule.whitened else K


def weigh(backend: Backend, rule: Rule, model: Model, raw: Sums) -> Sums:
    """A = W'SW/noise, b = W's/noise, ... for raw sums; the identity where rows were weighted already."""
    if rule.residual:
        return raw
    W, noise = model.white.W, model.noise
    A, b = raw.A, raw.b
    if not rule.whitened:
        A, b = backend.matmul(W.T, backend.matmul(raw.A, W)), raw.b @ W
    return Sums(
        A / noise, b / noise, raw.q / noise,
        raw.count * backend.xp.log(noise), raw.trace / noise, raw.count, 0,
    )  # fmt: skip


def weigh_pullback(
    backend: Backend, rule: Rule, model: Model, raw: Sums, weighted: Sums, bar: Sums
) -> tuple[Sums, Array, Array]:
    """dF/d(raw sums), W_bar'W and dF/dnoise given dF/d(weighted sums).

    W_bar = (2 S W A_bar + s b_bar')/noise, so W_bar'W = 2 A_bar A + b_bar b' needs neither S nor s. Sums of
    features get their W_bar from the blocks.
    """
    W, noise = model.white.W, model.noise
    if rule.residual:
        return bar, W * 0.0, 0.0
    if rule.whitened:
        A_bar, b_bar, inner = bar.A, bar.b, W * 0.0
    else:
        A_bar, b_bar = backend.matmul(W, backend.matmul(bar.A, W.T)), W @ bar.b
        inner = backend.matmul_plus(2 * bar.A, weighted.A, bar.b, weighted.b)
    raw_bar = bar._replace(A=A_bar / noise, b=b_bar / noise, q=bar.q / noise, trace=bar.trace / noise)
    scaled = (bar.A * weighted.A).sum() + bar.b @ weighted.b + bar.q * weighted.q + bar.trace * weighted.trace
    return raw_bar, inner, (bar.log_d * raw.count - scaled) / noise
