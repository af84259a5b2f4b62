"""How much of the paper is run: at its own sizes, or small enough for a few minutes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ANCHOR_RULES = ("first", "kmeans")
TEST_SHARE = 10
"""One row in ten is held out."""


@dataclass(frozen=True)
class Plan:
    """Sizes of a run. The defaults are the paper's sizes; `quick_plan` has small ones.

    seed : of inputs, draws, splits, anchors and fits.
    rows : of every scenario; None for the paper's 10,000 to 50,000.
    draws : of the target per scenario under the paper's protocol, whose scores are then averaged: one
        published draw is one of many.
    splits : of every real table under the paper's protocol, averaged likewise.
    replications : of C1.
    rank, neighbors, predict_neighbors : the dials of the sound default.
    sound_rows : training rows of the sound default on real tables; None for all.
    ranks : of the published grid on YearPredictionMSD that are run.
    whole_rows, whole_inputs : of the simulated table that stands in for the whole of YearPredictionMSD when
        times are measured; ``whole_width`` hidden units draw its target.
    sound_sizes : rows of that table at which the sound default is timed, each for at most ``sound_budget`` s.
    cost_ranks, cost_neighbors : the dials of the figure of cost against accuracy.
    widths, network_draws : of the networks that become Gaussian.
    profile_rows, spectrum_rows : rows behind the profiles and the information.
    data, year_file : the folder of the real tables, and the whole UCI file of YearPredictionMSD.
    """

    seed: int = 0
    rows: int | None = None
    draws: int = 5
    splits: int = 5
    replications: int = 20
    rank: int = 200
    neighbors: int = 30
    predict_neighbors: int = 400
    sound_rows: int | None = None
    ranks: tuple[int, ...] = (1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000)
    whole_rows: int = 515_345
    whole_inputs: int = 90
    whole_width: int = 4096
    sound_sizes: tuple[int, ...] = (10_000, 20_000, 50_000, 515_345)
    sound_budget: float = 1800.0
    cost_ranks: tuple[int, ...] = (50, 100, 200, 400)
    cost_neighbors: tuple[int, ...] = (0, 10, 30, 60)
    widths: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
    network_draws: int = 400
    profile_rows: int = 600
    spectrum_rows: int = 1500
    data: Path | None = None
    year_file: Path | None = None
    quick: bool = False

    def simulated_rows(self, published: int) -> int:
        """Rows of a scenario that the paper runs with ``published``."""
        return published if self.rows is None else min(self.rows, published)


def quick_plan(seed: int = 0, data: Path | None = None, year_file: Path | None = None) -> Plan:
    """A run of a few minutes on two cores, for a first look; its scores are those of small tables."""
    return Plan(
        seed=seed, rows=2000, draws=2, splits=4, replications=3, rank=100, neighbors=20,
        predict_neighbors=100, sound_rows=2000, ranks=(1000,), whole_rows=20_000, whole_width=1024,
        sound_sizes=(), cost_ranks=(50, 100), cost_neighbors=(0, 10, 30),
        widths=(4, 8, 16, 32, 64, 128), network_draws=200, profile_rows=250, spectrum_rows=400,
        data=data, year_file=year_file, quick=True,
    )  # fmt: skip
