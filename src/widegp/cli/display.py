"""Live views of a fit and of a count of steps, on a terminal only."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from widegp.progress import Listener, Progress

REFRESH_PER_SECOND = 4


class FitDisplay:
    """Stage, iteration, objective, parameters, time: `update` is the ``progress`` of a fit.

    The objective is the MAP loss, eq. (map_loss_body), which falls. Nothing is shown where ``console`` is no
    terminal.
    """

    def __init__(self, console: Console, budget: float | None = None) -> None:
        self.console, self.budget = console, budget
        self.began = time.perf_counter()
        self.event: Progress | None = None
        self.values: Mapping[str, Any] = {}
        self.told = self.began
        self._shown = ExitStack()

    @property
    def spent(self) -> float:
        """Seconds since the command began."""
        return time.perf_counter() - self.began

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            from rich.live import Live

            live = Live(
                get_renderable=self.view, console=self.console, transient=True,
                refresh_per_second=REFRESH_PER_SECOND,
            )  # fmt: skip
            self._shown.enter_context(live)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.close()

    def update(self, event: Progress) -> None:
        self.event, self.told = event, time.perf_counter()
        self.values = event.values or self.values

    def view(self) -> Table:
        """Two columns, a row for each thing known so far."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        grid.add_column()
        for name, text in self.facts().items():
            grid.add_row(name, text)
        return grid

    def facts(self) -> dict[str, str]:
        event = self.event
        facts = {"stage": "starting"}
        if event is not None:
            facts["stage"] = f"{event.stage}, {event.rows:,} rows" if event.rows else event.stage
            if event.iteration:
                facts["iteration"] = str(event.iteration)
            if math.isfinite(event.objective):
                facts["objective"] = f"{event.objective:,.3f}"
        if self.values:
            facts["parameters"] = "  ".join(
                f"{k} {_mean(v):.3g}" for k, v in self.values.items() if k != "psi"
            )
        facts["time"] = self._time(time.perf_counter())
        return facts

    def _time(self, now: float) -> str:
        """Time so far; what the fit still takes by its own estimate; what is left of a budget."""
        text = clock(now - self.began)
        left = None if self.event is None else self.event.seconds_left
        if left is not None:
            # Between two iterations time passes too.
            text += f", about {clock(max(0.0, left - (now - self.told)))} left (estimate)"
        if self.budget is not None:
            text += f", {clock(max(0.0, self.budget - (now - self.began)))} left of the budget"
        return text


def clock(seconds: float) -> str:
    """m:ss, or h:mm:ss."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _mean(value: Any) -> float:
    import numpy as np

    return float(np.mean(value))


def bar(screen: Console) -> AbstractContextManager[Listener | None]:
    """A bar for each stage on a terminal, nothing elsewhere: a listener of equal steps."""
    return _BarOfSteps(screen) if screen.is_terminal else nullcontext()


class _BarOfSteps:
    def __init__(self, screen: Console) -> None:
        from rich import progress

        self.bar = progress.Progress(
            progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(), console=screen, transient=True,
        )  # fmt: skip
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> Listener:
        self.bar.start()
        return self.tell

    def tell(self, event: Progress) -> None:
        if event.stage not in self.tasks:
            self.tasks[event.stage] = self.bar.add_task(event.stage, total=event.total)
        self.bar.update(self.tasks[event.stage], completed=event.iteration)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
