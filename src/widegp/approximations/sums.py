"""The four sums over rows that every member of the family is made of, and their pullback.

    A = sum phi~ phi~'/d,   b = sum phi~ y~/d,   q = sum y~^2/d,   l = sum log d

`Rule.residual` members (fitc, vecchia, full-scale) condition each row on its neighbours under
R = K - Phi Phi'. The others (dtc, vfe) drop R, so d is the noise: their sums are made of raw
k(Z, x) / sqrt(spread) and weighted by W and the noise afterwards, which spares a product per row. W'SW loses
digits where W is large; `Rule.whitened` makes their sums of features, as those of the others are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from widegp.approximations.whitening import Whitener
from widegp.compute.backend import Backend, Block, Cotangent, RowBars, RowCotangents
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
    """dF/d(kernel, log noise) through one block, and W_bar'W with W_bar = dF/dW."""

    kernel: Any
    log_noise: Array
    inner: Array


def block_sums(backend: Backend, rule: Rule, model: Model, block: Block) -> Sums:
    """One block's share of the sums; raw (no noise, and no W unless whitened) when the residual is dropped.

    This and the other block functions may run in another process, so each enters the backend's scope itself.
    """
    with backend.scope():
        if rule.residual:
            return _residual_sums(backend, model, block)
        return _sums(backend, rule, model, block, _features(backend, rule, model, block))


def block_sums_kept(backend: Backend, rule: Rule, model: Model, block: Block) -> tuple[Sums, Array]:
    """`block_sums` of a rule without residual, and the rows F (B, r) that they were made of."""
    with backend.scope():
        F = _features(backend, rule, model, block)
        return _sums(backend, rule, model, block, F), F


def block_pullback(
    backend: Backend, rule: Rule, model: Model, bar: Sums, block: Block, kept: Array | None = None
) -> BlockGradient:
    """dF/d(kernel, log noise) and W_bar'W given dF/dsums as `weigh_pullback` has them; ``kept`` are the rows
    that `block_sums_kept` left.
    """
    with backend.scope():
        if rule.residual:
            return _residual_pullback(backend, model, bar, block, by_row=False)[0]
        F = _features(backend, rule, model, block) if kept is None else kept
        return _pullback(backend, rule, model, bar, block, F)


def block_pullback_by_row(
    backend: Backend, rule: Rule, model: Model, bar: Sums, block: Block, kept: Array | None = None
) -> tuple[BlockGradient, RowBars]:
    """`block_pullback`, and dF/d(y, spread) of the block's rows."""
    with backend.scope():
        if rule.residual:
            return _residual_pullback(backend, model, bar, block, by_row=True)
        F = _features(backend, rule, model, block) if kept is None else kept
        return _pullback(backend, rule, model, bar, block, F), _row_bars(backend, rule, model, bar, block, F)


def block_rows_alone(
    backend: Backend, rule: Rule, model: Model, bar: Sums, block: Block, kept: Array | None = None
) -> tuple[float, RowBars]:
    """dF/d(y, spread) of the block's rows, and nothing that has to be added up."""
    with backend.scope():
        if not rule.residual:
            F = _features(backend, rule, model, block) if kept is None else kept
            return 0.0, _row_bars(backend, rule, model, bar, block, F)
        cotangents = RowCotangents(bar.A, bar.b, bar.q, bar.log_d)
        features = _whitened(backend, model, block)
        return 0.0, backend.row_pullback(model.kernel, model.noise, block, features, cotangents)


def _residual_sums(backend: Backend, model: Model, block: Block) -> Sums:
    xp = backend.xp
    rows = backend.condition(model.kernel, model.noise, block, _whitened(backend, model, block))
    scaled = rows.features * (block.weight / rows.d)[:, None]
    return Sums(
        backend.inner(rows.features, scaled), rows.y @ scaled, xp.sum(block.weight * rows.y**2 / rows.d),
        xp.sum(block.weight * xp.log(rows.d)), 0.0, xp.sum(block.weight), rows.failed,
    )  # fmt: skip


def _sums(backend: Backend, rule: Rule, model: Model, block: Block, F: Array) -> Sums:
    xp, scale = backend.xp, _scale(backend, block)
    trace = xp.sum(scale**2 * backend.diagonal(model.kernel, block.X)) if rule.trace else 0.0
    y = scale * block.y
    log_spread = xp.sum(block.weight * xp.log(block.spread))
    return Sums(backend.inner(F, F), backend.inner(F, y), y @ y, log_spread, trace, xp.sum(block.weight), 0)


def _residual_pullback(
    backend: Backend, model: Model, bar: Sums, block: Block, by_row: bool
) -> tuple[BlockGradient, Any]:
    features = _whitened(backend, model, block)
    cotangents = RowCotangents(bar.A, bar.b, bar.q, bar.log_d)
    by_features, by_noise, kernel_bar, row_bars = backend.condition_pullback(
        model.kernel, model.noise, block, features, cotangents, by_row
    )
    if model.Z.shape[0] > 0:
        K_bar = Cotangent(by_features, model.white.W.T)
        kernel_bar = add_trees(kernel_bar, backend.cross_pullback(model.kernel, block.X, model.Z, K_bar))
    # W_bar = K'Phi_bar, so W_bar'W = Phi_bar'Phi: K need not be kept.
    return BlockGradient(kernel_bar, by_noise, backend.inner(by_features, features)), row_bars


def _whitened(backend: Backend, model: Model, block: Block) -> Array:
    """Phi = K(X, Z) W of a block's rows and halo."""
    return backend.features(model.kernel, block.X, model.Z, model.white.W)


def _pullback(backend: Backend, rule: Rule, model: Model, bar: Sums, block: Block, F: Array) -> BlockGradient:
    """K_bar = (2 F bar.A + y bar.b') / sqrt(spread), with the W that lies between K and F in bar already
    (`weigh_pullback`).

    Blank rows, which pad a block, have scale 0.
    """
    scale = _scale(backend, block)
    K_bar = Cotangent(backend.scale_rows(F, scale), 2 * bar.A, scale**2 * block.y, bar.b)
    kernel_bar = backend.cross_pullback(model.kernel, block.X, model.Z, K_bar)
    if rule.trace:
        by_diagonal = bar.trace * scale**2
        kernel_bar = add_trees(kernel_bar, backend.diagonal_pullback(model.kernel, block.X, by_diagonal))
    return BlockGradient(kernel_bar, 0.0, 0.0)


def _row_bars(backend: Backend, rule: Rule, model: Model, bar: Sums, block: Block, F: Array) -> RowBars:
    """dF/dy = scale (F b_bar + 2 q_bar y~) and, with y~ = scale y,
    spread dF/dspread = l_bar - F A_bar F' - F b_bar y~ - q_bar y~^2 - trace_bar K(x, x) scale^2, row by row;
    bar has W, which whitened F have already.
    """
    scale = _scale(backend, block)
    y = scale * block.y
    A, b = bar.A, bar.b
    if rule.whitened:
        A, b = backend.matmul(A, model.white.L), model.white.L.T @ b
    along = F @ b
    taken = (backend.matmul(F, A) * F).sum(1) + along * y + bar.q * y**2
    if rule.trace:
        taken = taken + bar.trace * scale**2 * backend.diagonal(model.kernel, block.X)
    return RowBars(scale * (along + 2 * bar.q * y), block.weight * (bar.log_d - taken))


def _features(backend: Backend, rule: Rule, model: Model, block: Block) -> Array:
    """F = K(X, Z) / sqrt(spread), or K W / sqrt(spread) where whitened: (B, r)."""
    K = backend.scale_rows(backend.cross(model.kernel, block.X, model.Z), _scale(backend, block))
    return backend.matmul(K, model.white.W) if rule.whitened else K


def _scale(backend: Backend, block: Block) -> Array:
    """1 / sqrt(spread), and 0 for rows that pad the block."""
    return block.weight / backend.xp.sqrt(block.spread)


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
        raw.count * backend.xp.log(noise) + raw.log_d, raw.trace / noise, raw.count, 0,
    )  # fmt: skip


def weigh_pullback(
    backend: Backend, rule: Rule, model: Model, raw: Sums, weighted: Sums, bar: Sums
) -> tuple[Sums, Array, Array]:
    """dF/d(raw sums), W_bar'W and dF/dlog noise given dF/d(weighted sums).

    The sums are of F = K or of F = K W; what is returned as dF/dA and dF/db takes F to K_bar in either case:
    W A_bar W' or A_bar W', and W b_bar. W_bar = (2 S W A_bar + s b_bar')/noise for the sums S, s of K, so
    W_bar'W = 2 A_bar A + b_bar b' needs no pass over the rows.
    """
    W, noise = model.white.W, model.noise
    if rule.residual:
        return bar, W * 0.0, 0.0
    A_bar = backend.matmul(bar.A, W.T)
    A_bar = A_bar if rule.whitened else backend.matmul(W, A_bar)
    inner = backend.matmul(2 * bar.A, weighted.A) + bar.b[:, None] * weighted.b
    raw_bar = bar._replace(A=A_bar / noise, b=W @ bar.b / noise, q=bar.q / noise, trace=bar.trace / noise)
    scaled = (bar.A * weighted.A).sum() + bar.b @ weighted.b + bar.q * weighted.q + bar.trace * weighted.trace
    return raw_bar, inner, bar.log_d * raw.count - scaled
