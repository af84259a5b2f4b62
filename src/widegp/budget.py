"""The paper's choice of a dial under a time budget, for the rank or any other dial."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Growth assumed after a single try: n r^2, what anchors cost on a table of many rows.
FIRST_EXPONENT = 2.0
# Tries that set the exponent: it grows along the dial, so that early ones would promise too little.
RECENT = 3


@dataclass(frozen=True)
class Try:
    """One value of the dial, its cost and, where known, its error."""

    value: float
    seconds: float
    error: float | None


@dataclass(frozen=True)
class BudgetChoice:
    """``value`` is r_best(T) where errors are known and r_max(T) elsewhere, with its cost and error.

    ``largest`` is r_max(T), ``best`` r_best(T) or None; ``tried`` lists every try in order.
    """

    value: float
    seconds: float
    error: float | None
    tried: tuple[Try, ...]
    largest: float
    best: float | None


def largest_within(costs: Mapping[float, float], budget: float) -> float:
    """r_max(T) = max {r : time(r) <= T}; ``costs`` maps each value of the dial to its seconds."""
    return max(_affordable(costs, budget))


def best_within(costs: Mapping[float, float], errors: Mapping[float, float], budget: float) -> float:
    """r_best(T) = argmin {error(r) : time(r) <= T}; the smaller value where errors are equal."""
    affordable = _affordable(costs, budget)
    missing = [value for value in affordable if value not in errors]
    if missing:
        raise ValueError(f"There is no error for {missing}; give one for every value within the budget.")
    known = [value for value in affordable if not np.isnan(errors[value])]
    if not known:
        raise ValueError("Every error within the budget is NaN; check how the errors are computed.")
    return min(known, key=lambda value: (errors[value], value))


def _affordable(costs: Mapping[float, float], budget: float) -> list[float]:
    if not costs:
        raise ValueError("There are no costs to choose from; give the seconds of at least one value.")
    affordable = [value for value, seconds in costs.items() if seconds <= budget]
    if not affordable:
        cheapest = min(costs, key=lambda value: costs[value])
        raise ValueError(
            f"Nothing fits a budget of {budget:g} s; the cheapest value, {cheapest:g}, takes "
            f"{costs[cheapest]:.3g} s."
        )
    return affordable


def predicted_time(costs: Mapping[float, float], value: float) -> float:
    """time(v) = time(u) (v / u)^p from the largest value u so far; p by least squares in logarithms.

    p is at least 0 and rests on the three largest values. A single one says nothing about it: p = 2 then.
    """
    if not costs:
        raise ValueError("A prediction needs the seconds of at least one value.")
    recent = sorted(costs)[-RECENT:]
    last = recent[-1]
    exponent = FIRST_EXPONENT
    if len(recent) > 1:
        x = np.log(recent)
        # A clock may read zero for a trifle, and zero has no logarithm.
        t = np.log([max(costs[u], 1e-9) for u in recent])
        x = x - x.mean()
        exponent = max(0.0, float(x @ t / (x @ x)))
    return costs[last] * (value / last) ** exponent


def choose(
    fit: Callable[[float], Any],
    values: Iterable[float],
    budget: float,
    error: Callable[[Any], float] | None = None,
    *,
    total: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> BudgetChoice:
    """Try a dial from its smallest value up, while time(r) <= T, and apply both rules to what was seen.

    Parameters
    ----------
    fit : called with a value of the dial; returns the error, or anything that ``error`` turns into one.
    values : of the dial, positive.
    budget : T, seconds that one try may take, as in the paper: training and, with ``error``, scoring.
    error : of what ``fit`` returned; without it a number returned by ``fit`` is the error.
    total : seconds that all tries together may take; no limit by default.

    A value predicted to overrun is not started (`predicted_time`), and ends the tries as an overrun does.
    """
    costs: dict[float, float] = {}
    errors: dict[float, float] = {}
    for value in _ascending(values):
        predicted = predicted_time(costs, value) if costs else 0.0
        if predicted > budget or (total is not None and sum(costs.values()) + predicted > total):
            break
        began = clock()
        outcome = fit(value)
        found = _error(outcome, error)
        costs[value] = clock() - began
        if found is not None:
            errors[value] = found
        if costs[value] > budget:
            break
    return _choice(costs, errors, budget)


def _choice(costs: dict[float, float], errors: dict[float, float], budget: float) -> BudgetChoice:
    largest = largest_within(costs, budget)
    best = best_within(costs, errors, budget) if errors else None
    value = largest if best is None else best
    tried = tuple(Try(v, seconds, errors.get(v)) for v, seconds in costs.items())
    return BudgetChoice(value, costs[value], errors.get(value), tried, largest, best)


def _ascending(values: Iterable[float]) -> list[float]:
    ascending = sorted(set(values))
    if not ascending:
        raise ValueError("There are no values to try; give at least one.")
    if not ascending[0] > 0:
        raise ValueError(f"A dial's values must be positive for a power law; got {ascending[0]}.")
    return ascending


def _error(outcome: Any, error: Callable[[Any], float] | None) -> float | None:
    if error is not None:
        return float(error(outcome))
    number = isinstance(outcome, int | float | np.number) and not isinstance(outcome, bool)
    return float(outcome) if number else None
