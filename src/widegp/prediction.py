"""From a posterior to means, variances and joint draws at new rows, wherever the fit was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from widegp.caches import FILE_BYTES, KEPT_BYTES, Cache, FileCache
from widegp.compute.backend import Backend, Block, choose_backend
from widegp.conditioning import Group, TrainingRows
from widegp.engines.base import Engine
from widegp.engines.blocks import BlockedRows
from widegp.engines.local import LocalEngine
from widegp.kernels.base import Kernel
from widegp.stacks import PREDICT_BYTES, Stacks, in_parts
from widegp.threads import in_threads

# Bytes kept for means alone: some kilobytes for each cell.
WEIGHT_BYTES = 64 * 2**20
# Of the memory for factors, where a device cannot read them from a file.
LITTLE = 0.1
# Blocks given to an engine at a time, for each that it works on at once.
BLOCKS_AHEAD = 2


class Moments(NamedTuple):
    """Mean and variance of f at new rows, (q,) each, without the noise of a new observation."""

    mean: np.ndarray
    variance: np.ndarray


def pooled(several: Sequence[Moments], weights: np.ndarray) -> Moments:
    """sum_k w_k f_k for weights w (k,), its parts taken to err alike: mean sum_k w_k m_k, sd sum_k w_k s_k.

    They are posteriors of one function given the same rows, so that what one does not know the others hardly
    know better.
    """
    means, variances = (np.stack(parts) for parts in zip(*several, strict=True))
    mean, sd = (np.tensordot(weights, part, axes=1) for part in (means, np.sqrt(variances)))
    return Moments(mean, sd**2)


def pooled_jointly(
    several: Sequence[tuple[np.ndarray, np.ndarray]], weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same at q rows jointly, from means (q,) and covariances (q, q): correlations are averaged."""
    moments = pooled([Moments(mean, np.diagonal(C)) for mean, C in several], weights)
    sds = [np.sqrt(np.maximum(np.diagonal(C), 1e-300)) for _, C in several]
    parts = zip(weights, several, sds, strict=True)
    correlation = sum(w * C / np.outer(sd, sd) for w, (_, C), sd in parts) / weights.sum()
    sd = np.sqrt(moments.variance)
    return moments.mean, correlation * np.outer(sd, sd)


class Posterior(Protocol):
    """What an approximation leaves to predict with: arrays, and the formulas that make moments of them.

    Where predictions condition on training rows, ``mean`` and ``moments`` take these rows too, and what
    ``given`` made of them: it returns what ``moments`` needs, and the little that ``mean`` needs.
    """

    kernel: Kernel
    noise: float

    def numbers(self) -> Any:
        """The kernel, the points that it sets beside new rows, and the other arrays that ``mean`` and
        ``moments`` take between backend and rows, by name.
        """

    def bytes_per_row(self, neighbors: int) -> int: ...

    def mean(self, backend: Backend, numbers: Any, *rows: Any) -> Any: ...

    def moments(self, backend: Backend, numbers: Any, *rows: Any) -> tuple[Any, Any]: ...

    def joint(self, backend: Backend, X: np.ndarray, near: Any) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass
class Predictor:
    """Moments and draws of a posterior; ``rows`` where it conditions on training rows.

    On this machine what is made of the rows of a cell is kept between calls, up to a bound (`Cache`):
    ``factors``, and ``weights`` for means alone, which are a hundred times as small; ``share`` is that of the
    bound which is its own. Other engines are sent the rows of each cell with every call.
    """

    posterior: Posterior
    backend: Backend
    rows: TrainingRows | None = None
    engine: Engine = field(default_factory=LocalEngine)
    share: float = 1.0
    factors: Cache | FileCache = field(init=False)
    weights: Cache = field(init=False)

    def __post_init__(self) -> None:
        self.factors = Cache(int(self.share * KEPT_BYTES))
        self.weights = Cache(int(self.share * WEIGHT_BYTES))

    def keep_in_file(self) -> None:
        """Leave the memory to others: what is made of cells goes to a file, or little of it is kept."""
        if self.rows is None or not self.rows.cells:
            return
        if self.backend.pads:
            self.factors = Cache(int(LITTLE * self.factors.limit))
        else:
            self.factors = FileCache(int(self.share * FILE_BYTES))

    @property
    def noise(self) -> float:
        """sigma_eps2, the noise variance of a row of spread 1."""
        return self.posterior.noise

    def predict(self, X: np.ndarray) -> Moments:
        """At the rows of X (q, I). What is said of a row does not depend on the others."""
        mean, variance = self._run("moments", X, 2)
        return Moments(mean, np.maximum(variance, 0.0))

    def mean(self, X: np.ndarray) -> np.ndarray:
        """The means of `predict` alone, (q,), which take a fraction of the time where rows share sets."""
        if self.rows is not None and not self.rows.cells:
            return self.predict(X).mean
        return self._run("mean", X, 1)[0]

    def _run(self, formula: str, X: np.ndarray, width: int) -> np.ndarray:
        """The results of the posterior's ``formula`` at the rows of X, (width, q)."""
        out = np.empty((width, len(X)))
        with self.backend.scope():
            if self.rows is None or not self.rows.cells:
                self._by_blocks(formula, X, out)
            elif self._place.name == "local":
                (self.stacks.run if self.backend.pads else self._by_cells)(formula, X, out)
            else:
                self._by_engine(formula, X, out)
        return out

    @property
    def _place(self) -> Engine:
        """The engine, or this machine where that is no more."""
        return self.engine if self.engine.available else LocalEngine()

    def _by_blocks(self, formula: str, X: np.ndarray, out: np.ndarray) -> None:
        """Streamed in blocks whose work fits PREDICT_BYTES or an accelerator; rows share no neighbours."""
        size, kind = self._block_rows(len(X)), type(self.posterior)
        bound: tuple[Any, ...] = (getattr(kind, formula), self.backend, self._resident)
        if self.rows is not None:
            each: Any = kind
            bound = (each.each, *bound[1:], self.noise)
        fn = partial(_at_block, self.rows is None, *bound)
        engine = self._place
        step = size * BLOCKS_AHEAD * engine.parallel_blocks
        for start in range(0, len(X), step):
            part = X[start : start + step]
            for k, made in enumerate(engine.map_rows(fn, self._blocks(part, size))):
                rows = slice(start + k * size, min(start + (k + 1) * size, start + len(part)))
                _fill(out, rows, made, rows.stop - rows.start)

    def _blocks(self, X: np.ndarray, size: int) -> BlockedRows:
        if self.rows is not None:
            return self.rows.blocks(X, size, self.backend.pads)
        return BlockedRows.cut(X, np.zeros(len(X)), np.zeros((len(X), 0), np.int32), size, self.backend.pads)

    def _by_cells(self, formula: str, X: np.ndarray, out: np.ndarray) -> None:
        """Cell by cell, each by a thread; first those whose rows are at hand, which must not make way."""
        assert self.rows is not None
        fn = self.backend.compiled(getattr(type(self.posterior), formula), self.backend)
        size = self._block_rows(len(X))
        kept = self.weights if formula == "mean" else self.factors

        def work(group: Group) -> None:
            near, made_before = self.given(group, kept)
            for part in in_parts(group.rows, size):
                made = fn(self._resident, X[part], near, made_before)
                _fill(out, part, made, len(part))

        in_threads(work, sorted(self.rows.groups(X), key=lambda group: group.cell not in kept))

    @cached_property
    def stacks(self) -> Stacks:
        """What was made of the cells where programs take many of them at once."""
        assert self.rows is not None
        return Stacks(self.posterior, self.backend, self.rows, self._resident, self.factors.limit)

    def given(self, group: Group, kept: Cache | FileCache) -> tuple[np.ndarray, Any]:
        """The training rows (m, I) of a group, and what ``kept`` keeps of them, or is made of them now."""
        assert self.rows is not None
        found = kept.get(group.cell)
        if found is not None:
            return self.rows.X[group.near], found
        rows = self.rows.taken(group.near, self.noise)
        posterior: Any = self.posterior
        make = self.backend.compiled(type(posterior).given, self.backend)
        factor, weights = make(self._resident, *rows)
        self.rows.check(factor.e)
        self.factors.put(group.cell, factor)
        self.weights.put(group.cell, weights)
        return rows[0], weights if kept is self.weights else factor

    def _by_engine(self, formula: str, X: np.ndarray, out: np.ndarray) -> None:
        """A block for each cell, with its training rows for a halo, where the engine has its devices."""
        assert self.rows is not None
        size, m = self._block_rows(len(X)), self.rows.set_size
        parts = [(part, group.near) for group in self.rows.groups(X) for part in in_parts(group.rows, size)]
        fn = partial(_at_cell, (type(self.posterior), formula), self.backend, m, self.noise, self._resident)
        engine = self._place
        step = BLOCKS_AHEAD * engine.parallel_blocks
        for start in range(0, len(parts), step):
            few = parts[start : start + step]
            made = engine.map_rows(fn, self.rows.cell_blocks(X, few, self.backend.pads))
            for (part, _), values in zip(few, made, strict=True):
                _fill(out, part, values, len(part))

    def _block_rows(self, n_rows: int) -> int:
        """Rows of a block; a power of two where blocks are padded, so that few shapes are compiled."""
        backend = self.backend
        room = max(PREDICT_BYTES, backend.block_bytes // 4) if backend.keeps_shapes else PREDICT_BYTES
        own = self.rows.set_size if self.rows is not None and not self.rows.cells else 0
        bytes_per_row = self.posterior.bytes_per_row(own)
        size = max(16, int(room // max(bytes_per_row, 1)))
        if not backend.pads:
            return size
        return min(1 << (size.bit_length() - 1), 1 << max(n_rows - 1, 0).bit_length())

    @cached_property
    def _resident(self) -> Any:
        """The posterior's numbers where the backend computes: a device is sent them once."""
        with self.backend.scope():
            numbers = self.posterior.numbers()
            kernel, *arrays = numbers
            points, *others = (self.backend.xp.asarray(part) for part in arrays)
            return type(numbers)(kernel, self.backend.fixed(kernel, points), *others)

    def _factor(self, group: Group) -> Any:
        return self.given(group, self.factors)[1].V

    def joint(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (q,) and covariance (q, q) of f at new rows; its diagonal is that of `predict`."""
        with self.backend.scope():
            near = None if self.rows is None else partial(self.rows.explain, self._factor)
            return self.posterior.joint(self.backend, X, near)

    def sample(
        self, X: np.ndarray, n_samples: int, rng: np.random.Generator, spread: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """mean + chol(cov f + noise spread) z: joint draws of y at the rows of X, (q, n_samples)."""
        mean, covariance = self.joint(X)
        covariance = covariance + np.diag(np.broadcast_to(self.noise * spread, len(X)))
        return mean[:, None] + np.linalg.cholesky(covariance) @ rng.normal(size=(len(X), n_samples))


def make_predictor(
    posterior: Posterior, rows: TrainingRows | None, backend: str = "auto", engine: Engine | None = None,
    share: float = 1.0,
) -> Predictor:  # fmt: skip
    """The predictor of a posterior; ``rows`` where it conditions on neighbours, ``share`` of the memory that
    predictors may keep between calls, one of several.

    An engine that works on one block at a time is no faster than this machine, which can keep its work.
    """
    chosen = engine if engine is not None and engine.parallel_blocks > 1 else LocalEngine()
    return Predictor(posterior, choose_backend(posterior.kernel, backend), rows, chosen, share)


def _fill(out: np.ndarray, rows: slice | np.ndarray, made: Any, count: int) -> None:
    """Results of a formula, one array or two, for the first ``count`` rows of a block, into out (k, q)."""
    for own, values in zip(out, made if isinstance(made, tuple) else (made,), strict=True):
        own[rows] = np.asarray(values)[:count]


def _at_block(alone: bool, formula: Any, backend: Backend, *rest: Any) -> Any:
    """``formula`` as a block function, which may run in another process; ``alone`` without neighbours, and
    otherwise with the noise among what it is bound to."""
    *bound, block = rest
    with backend.scope():
        return formula(backend, *bound, block.X if alone else block)


def _at_cell(
    formula: tuple[Any, str], backend: Backend, m: int, noise: float, numbers: Any, block: Block
) -> Any:
    """A formula of a posterior at the own rows of a block, given the m rows that follow them."""
    kind, name = formula
    own = slice(block.n_own, block.n_own + m)
    with backend.scope():
        near = block.X[own]
        given, weights = kind.given(backend, numbers, near, block.y[own], noise * block.spread[own])
        made = weights if name == "mean" else given
        return getattr(kind, name)(backend, numbers, block.X[: block.n_own], near, made)
