"""The kernels that have a name in settings and on the command line, and those that a model file may hold.

This is the one list that a new kernel is added to.
"""

from __future__ import annotations

from widegp.kernels.base import Kernel
from widegp.kernels.closed import CLOSED_FORMS, Mixture
from widegp.kernels.composite import Product, Sum
from widegp.kernels.stationary import STATIONARY
from widegp.registry import saveable

NAMES: dict[str, type[Kernel]] = {cls.word: cls for cls in (*CLOSED_FORMS, *STATIONARY)}
"""Kernels by the name that `WideGPRegressor` and ``widegp fit --kernel`` know them by."""

USUAL = "mixed"
"""The kernel of fits that name none."""

SAVEABLE: tuple[type[Kernel], ...] = (*NAMES.values(), Mixture, Sum, Product)
"""Kernels that a model file may hold."""

for _kernel in SAVEABLE:
    saveable(_kernel)


def named(name: str) -> Kernel:
    """The kernel called ``name``, at its default parameters; the usual one where that is ``"auto"``."""
    name = USUAL if name == "auto" else name
    if name not in NAMES:
        raise ValueError(
            f"Unknown kernel {name!r}; choose one of {', '.join(NAMES)}, or pass a kernel object."
        )
    return NAMES[name]()
