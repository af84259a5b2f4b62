"""What each part of the default model is worth: one part taken away or replaced at a time, table by table.

Kernels: K_mix against its two parts (tanh and leaky ReLU), the other activations, RBF and Matern. Then the
metric, the ranks of inputs, the noise that varies with the tails, the warp, and the averages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.league.records import Job

TABLES = (
    "servo", "machine", "yacht", "autompg", "stock", "energy", "solar", "airfoil", "skillcraft",
    "pumadyn32nm", "yearpredictionmsd_8162", "elevators",
)  # fmt: skip
# What is changed, by the name that the page has for it.
VARIANTS: dict[str, dict[str, Any]] = {
    "the default": {},
    "metric: one variance for all directions": {"metric": "iso"},
    "metric: one variance for each input": {"metric": "ard"},
    "inputs: standardised, never by rank": {"scale_inputs": "standard"},
    "noise: constant, Gaussian tails": {"noise": "constant"},
    "no warp": {"target_transform": None},
    "no averages": {"posterior": "map"},
    "kernel: tanh alone": {"kernel": "tanh"},
    "kernel: leaky ReLU alone": {"kernel": "leaky_relu"},
    "kernel: ReLU": {"kernel": "relu"},
    "kernel: sigmoid": {"kernel": "sigmoid"},
    "kernel: Matern 5/2": {"kernel": "matern52"},
    "kernel: Matern 3/2": {"kernel": "matern32"},
    "kernel: RBF": {"kernel": "rbf"},
    "nothing chosen: plain()": {"metric": "iso", "noise": "constant", "posterior": "map",
                                "scale_inputs": "standard", "target_transform": None},
}  # fmt: skip


def jobs(folds: int = 2) -> Iterator[Job]:
    for fold in range(folds):
        for table in TABLES:
            folded = table not in ("yearpredictionmsd_8162", "elevators")
            place = {"fold": fold} if folded else {"seed": fold}
            for setting in VARIANTS.values():
                yield Job.of(table, "widegp", setting, study="ablation", **place)
