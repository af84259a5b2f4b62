"""One published number beside ours, with the bound it should keep to."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

PASS, MISS = "pass", "miss"
VARIANCES = ("sigma_b2", "sigma_v2", "sigma_u2", "sigma_a2", "sigma_eps2")
EASY, HARD = ("C1", "C3", "C5", "C7"), ("C2", "C4", "C6", "C8")
"""Scenarios with 20 inputs, and with 80, in which one draw differs more from another."""


@dataclass(frozen=True)
class Bound:
    """|ours - published| <= size, relative to the published value or not."""

    size: float
    relative: bool = True

    def kept(self, ours: float, published: float) -> bool:
        gap = abs(ours - published)
        return gap <= self.size * (abs(published) if self.relative else 1.0)

    def __str__(self) -> str:
        return f"{100 * self.size:g}%" if self.relative else f"{self.size:g}"


@dataclass(frozen=True)
class Comparison:
    """A cell of a published table, ours under the paper's protocol, and ours under the sound default.

    published : as printed, or "" where the paper has no such number.
    paper, paper_sd : mean over the draws and their standard deviation; None where not run.
    difference : (paper - published) / published.
    bound, mark : what ``paper`` should keep to, and whether it does; "" where nothing is asked.
    sound_bound, sound_mark : the same for ``sound``.
    seeds : of the draws behind ``paper``; seconds are those of one fit with its prediction.
    """

    table: str
    row: str
    quantity: str
    published: str = ""
    paper: float | None = None
    paper_sd: float | None = None
    difference: float | None = None
    bound: str = ""
    mark: str = ""
    sound: float | None = None
    sound_bound: str = ""
    sound_mark: str = ""
    seeds: str = ""
    paper_seconds: float | None = None
    sound_seconds: float | None = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


COLUMNS = tuple(field.name for field in fields(Comparison))


def compared(
    table: str, row: str, quantity: str, published: str, paper: float | None, *, bound: Bound | None = None,
    **rest: Any,
) -> Comparison:  # fmt: skip
    """A comparison with its difference and its mark."""
    number = _number(published)
    difference = None
    mark = ""
    if paper is not None and number is not None:
        difference = (paper - number) / number if number else None
        if bound is not None:
            mark = PASS if bound.kept(paper, number) else MISS
    return Comparison(
        table, row, quantity, published, paper, difference=difference, mark=mark,
        bound="" if bound is None else str(bound), **rest,
    )  # fmt: skip


def estimate_bound(name: str) -> Bound | None:
    """alpha and w within 0.01, variances within 3%."""
    if name in ("alpha", "w"):
        return Bound(0.01, relative=False)
    return Bound(0.03) if name in VARIANCES else None


def score_bound(case: str, name: str) -> Bound | None:
    """RMSE and MESE of the scenarios: within 5%, or 15% in 80 inputs."""
    if name not in ("rmse", "mese"):
        return None
    return Bound(0.05) if case in EASY else Bound(0.15) if case in HARD else None


def noise_bound(case: str) -> Bound:
    """K-bar and what is made of it: C1 to C6 within 0.2%, C7 and C8, whose design is ours, within 0.3%."""
    return Bound(0.003) if case in ("C7", "C8") else Bound(0.002)


def mark(kept: bool) -> str:
    return PASS if kept else MISS


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
