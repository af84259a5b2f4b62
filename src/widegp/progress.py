"""A line per iteration for those who ask, and a call for those who show it their own way."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np


class Progress:
    """Prints stage, iteration, objective and seconds to stderr when ``verbose`` is at least 1."""

    def __init__(self, verbose: int, report: Callable[[str, int, float, dict], None] | None = None) -> None:
        self.verbose, self.report = verbose, report
        self.began = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def update(self, stage: str, iteration: int, value: float, values: dict[str, np.ndarray]) -> None:
        if self.report is not None:
            self.report(stage, iteration, value, values)
        if not self.verbose:
            return
        shown = "  ".join(f"{k} {float(np.mean(v)):.4g}" for k, v in values.items() if k != "psi")
        elapsed = time.perf_counter() - self.began
        print(f"{stage} {iteration:4d}  objective {value:14.4f}  {elapsed:7.1f} s  {shown}", file=sys.stderr)
