"""Estimators whose fit fails stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def restored_on_failure(fit: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """``fit``, a method: where it raises, the attributes of its object are those from before the call.

    One more frame lies between it and its caller: warnings of its own have a ``stacklevel`` of 3.
    """

    @wraps(fit)
    def wrapped(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        before = dict(vars(self))
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return wrapped
