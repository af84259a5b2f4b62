"""Which kernel does a table prefer, and how sure is that?

    p(kernel | y) = p(y | kernel) / sum p(y | other)
    p(y | kernel) = int p(y | theta, kernel) p(theta) dtheta

Every kernel is as likely as the others before the data are seen. The evidence p(y | kernel) rewards a kernel
whose functions, drawn under its priors, look like the data, and charges it for all the others that it could
have drawn: a mixture that contains another kernel wins only if it needs to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from widegp.estimator import WideGPRegressor
from widegp.progress import Listener

KERNELS = ("mixed", "tanh", "sigmoid", "relu", "leaky_relu")
# Rows, drawn at random, beyond which the evidence takes minutes.
MOST_ROWS = 200
# Nats between two kernels, and what such a difference is called (Kass and Raftery).
WORDS = ((1.0, "hardly worth a mention"), (3.0, "positive"), (5.0, "strong"), (math.inf, "very strong"))


@dataclass(frozen=True)
class KernelEvidence:
    """log p(y | kernel) in nats, and what came with it.

    error : its standard error by importance sampling.    pareto_k : below 0.7 it can be relied on.
    behind : nats that it lies behind the best kernel.    probability : p(kernel | y) among those compared.
    """

    kernel: str
    log_evidence: float
    error: float
    pareto_k: float
    reliable: bool
    behind: float = 0.0
    probability: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare_kernels(
    X: np.ndarray, y: np.ndarray, kernels: Sequence[str] = KERNELS, seed: int = 0,
    progress: Listener | None = None,
) -> list[KernelEvidence]:  # fmt: skip
    """The evidence of each kernel on rows X (n, I), y (n,), best first; on MOST_ROWS of them at most.

    Inputs are standardised, the target too, and one sigma_u2 serves all inputs.
    """
    rows = np.random.default_rng(seed).permutation(len(X))[:MOST_ROWS]
    found = [_evidence(X[rows], y[rows], kernel, seed, progress) for kernel in kernels]
    logs = np.array([one.log_evidence for one in found])
    shares = softmax(logs)
    ranked = [
        KernelEvidence(**{**asdict(one), "behind": float(logs.max() - log), "probability": float(share)})
        for one, log, share in zip(found, logs, shares, strict=True)
    ]
    return sorted(ranked, key=lambda one: one.behind)


def _evidence(
    X: np.ndarray, y: np.ndarray, kernel: str, seed: int, progress: Listener | None
) -> KernelEvidence:
    settings = {"approximation": "exact", "posterior": "laplace", "random_state": seed}
    model = WideGPRegressor.plain(kernel=kernel, **settings).fit(X, y, progress=progress)
    if model.posterior_ is None:
        raise ArithmeticError(f"The posterior of {kernel} has no curvature at its mode; leave it out.")
    told = model.posterior_.evidence
    error, k = (np.nan if part is None else part for part in (told.error, told.pareto_k))
    return KernelEvidence(kernel, told.log_evidence, error, k, told.reliable)


def in_words(found: Sequence[KernelEvidence]) -> list[str]:
    """What the numbers say, and what they do not."""
    best = found[0]
    lines = [f"Of these kernels the table prefers {best.kernel}, with probability {best.probability:.2f}."]
    if len(found) > 1:
        second = found[1]
        error = math.hypot(best.error, second.error)
        called = next(words for limit, words in WORDS if second.behind < limit)
        lines.append(
            f"It is {second.behind:.2f} ± {error:.2f} nats ahead of {second.kernel}: {called}."
            + (" Sampling error could turn their order." if second.behind < 2 * error else "")
        )
    doubtful = [one.kernel for one in found if not one.reliable]
    if doubtful:
        lines.append(
            f"Pareto k is 0.7 or more for {', '.join(doubtful)}: sampling could not check Laplace's"
            " approximation there, and the value may be off by a nat or more."
        )
    lines.append(
        "Evidence is of kernel and priors together, around one mode of the parameters; it is not the error of"
        " predictions, for which there are held-out rows (widegp compare without --kernels)."
    )
    return lines
