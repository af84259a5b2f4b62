"""Why there is no mode in single precision: ``python benchmarks/gpu_precision.py [--rank 2000]``.

The sums, and with them the objective, stay in float64. The product of the second pass, dF/dK = F G, and the
entries of the kernel with their derivatives are made of fewer bits. Seconds of one objective with gradient
(median of 5), and how far the gradient by the logarithms of the parameters is off, at an early and at a late
point of a fit. The table is that of gpu.py.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gpu import INPUTS, table

from widegp.approximations.build import Builder
from widegp.approximations.evaluation import Observed
from widegp.approximations.layout import Dials
from widegp.compute.backend import Cotangent
from widegp.compute.xla import XlaBackend, _cross_pullback
from widegp.engines.base import make_engine
from widegp.kernels import Mixed

PRODUCTS = (None, "BF16_BF16_F32_X6", "BF16_BF16_F32_X3", "TF32_TF32_F32")
POINTS = {
    "early": (Mixed(sigma_u2=1 / INPUTS), 0.1),
    "late": (Mixed(sigma_a2=0.04, sigma_u2=0.43, sigma_b2=0.2, sigma_v2=0.042, alpha=0.86, w=3e-6), 0.16),
}


@dataclass(frozen=True)
class FewerBits(XlaBackend):
    """`XlaBackend` whose second pass over many rows multiplies as ``product`` says, in float32."""

    product: str = PRODUCTS[1] or ""

    def cross_pullback(self, kernel: Any, X: Any, Z: Any, cotangent: Cotangent) -> Any:
        left, right, column, row = cotangent
        if right is None:
            return super().cross_pullback(kernel, X, Z, cotangent)
        single = [jnp.asarray(part, jnp.float32) for part in (left, right, column, row)]
        K_bar = jax.lax.dot_general(
            *single[:2], (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32,
            precision=getattr(jax.lax.DotAlgorithmPreset, self.product),
        )  # fmt: skip
        K_bar = K_bar + single[2][:, None] * single[3]
        small = jax.tree_util.tree_map(lambda value: jnp.asarray(value, jnp.float32), kernel)
        out = _cross_pullback(small, jnp.asarray(X, jnp.float32), jnp.asarray(Z, jnp.float32), K_bar)
        return jax.tree_util.tree_map(lambda value: value.astype(jnp.float64), out)


def measure(product: str | None, rank: int, X: np.ndarray, y: np.ndarray) -> dict[str, tuple]:
    """Seconds, value and gradient by log parameters at every point."""
    backend = XlaBackend() if product is None else FewerBits(product)
    dials = Dials("vfe", rank, 0, "random", "random", None)
    builder, out = Builder(X, dials, backend, 0, make_engine("auto")), {}
    with backend.scope():
        family = builder.build(POINTS["early"][0])
        for name, (kernel, noise) in POINTS.items():
            seconds = []
            for _ in range(6):
                began = time.perf_counter()
                found = family.evaluate(kernel, Observed(y, noise))
                seconds.append(time.perf_counter() - began)
            slopes = [float(found.gradient[k]) * float(v) for k, v in kernel.parameters().items()]
            out[name] = statistics.median(seconds[1:]), found.value, np.array(slopes)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, default=2000)
    rank = parser.parse_args().rank
    X, y, _, _ = table()
    y = (y - y.mean()) / y.std()
    print("jax", jax.__version__, jax.devices()[0].device_kind, f"n={len(X)} r={rank}", flush=True)
    right = measure(None, rank, X, y)
    for product in PRODUCTS:
        found = right if product is None else measure(product, rank, X, y)
        for name, (seconds, value, gradient) in found.items():
            off = np.max(np.abs(gradient - right[name][2])) / np.max(np.abs(right[name][2]))
            print(
                f"{product or 'float64':17s} {name}: {seconds:.3f} s, {right[name][0] / seconds:.2f} times as"
                f" fast, objective off by {abs(value / right[name][1] - 1):.0e}, gradient by {off:.0e} of its"
                " largest entry",
                flush=True,
            )


if __name__ == "__main__":
    main()
