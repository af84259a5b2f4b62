"""Which classes a model file may hold: each is found by its name, and by no other way.

A class opens itself to `widegp.persist` where it is defined:

    @saveable
    @dataclass(frozen=True)
    class Tanh(ClosedForm): ...

The fields of the dataclass, but for those that begin with an underscore, are what is written and what it is
built from again. Reading a file builds the classes recorded here and runs nothing else.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TypeVar

C = TypeVar("C", bound=type)

_CLASSES: dict[str, type] = {}


def saveable(cls: C) -> C:
    """Record the dataclass ``cls`` under its name; recording it again changes nothing."""
    if not is_dataclass(cls):
        raise TypeError(f"{cls.__name__} is not a dataclass, whose fields a file would hold; make it one.")
    if _CLASSES.setdefault(cls.__name__, cls) is not cls:
        raise ValueError(f"A class named {cls.__name__} can already be saved; choose another name.")
    return cls


def saved_class(name: str) -> type:
    """The class that ``saveable`` recorded as ``name``; KeyError where there is none."""
    return _CLASSES[name]


def is_saveable(value: object) -> bool:
    """Whether the very class of ``value``, not one of the same name or above it, is recorded."""
    return _CLASSES.get(type(value).__name__) is type(value)
