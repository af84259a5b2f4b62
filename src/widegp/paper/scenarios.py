"""The simulation scenarios: draws, fits under both protocols, and the replications of C1."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from widegp.inference.protocol import RANK
from widegp.paper.plan import ANCHOR_RULES, Plan
from widegp.paper.protocol import Split, held_out, paper_fit, record, sound_fit
from widegp.paper.store import Store
from widegp.progress import Listener
from widegp.simulate import Scenario, Simulation, mean_variance, scenario, simulate

NAMES = tuple(f"C{k}" for k in range(1, 9))
REPLICATED = "C1"

Record = dict[str, Any]


def sized(name: str, rows: int | None) -> Scenario:
    """The scenario with another number of rows."""
    chosen = scenario(name)
    return chosen if rows is None else replace(chosen, n_rows=rows)


def draw(
    chosen: Scenario,
    seed: int = 0,
    n_draws: int | None = None,
    progress: Listener | None = None,
    **settings: Any,
) -> Simulation:
    """The scenario's rows and draws of its target; at the paper's size those of `draw_scenario`."""
    rng = np.random.default_rng(seed).spawn(2)[1]
    return simulate(
        chosen.kernel(), chosen.inputs(seed), noise_fraction=chosen.noise_fraction, rng=rng, n_draws=n_draws,
        progress=progress, **settings,
    )  # fmt: skip


def seed_of(name: str, plan: Plan) -> int:
    """C1 has the seed of the plan, C2 the next, ...: scenarios of one size would else be one table."""
    return plan.seed + NAMES.index(name)


def inputs(name: str, plan: Plan, store: Store) -> Record:
    """K-bar and the noise at the paper's own number of rows: they need the inputs alone."""

    seed = seed_of(name, plan)

    def compute() -> Record:
        chosen = scenario(name)
        kbar = mean_variance(chosen.kernel(), chosen.inputs(seed))
        noise = chosen.noise_fraction * kbar
        return {"kbar": kbar, "sigma_eps2": noise, "noise_sd": noise**0.5, "published_rows": chosen.n_rows}

    return store.result(f"{name}/inputs", {"name": name, "seed": seed}, compute)


def drawn(name: str, plan: Plan, store: Store) -> tuple[Callable[[int], Split], dict[str, np.ndarray]]:
    """Draw k of the target, split; and the arrays: y (n, draws), noise, seconds of drawing.

    All draws of a scenario share inputs, neighbours and conditioning weights, so they cost little more
    than one.
    """
    chosen = sized(name, plan.simulated_rows(scenario(name).n_rows))
    count = max(plan.draws, plan.replications if name == REPLICATED else 1)
    seed = seed_of(name, plan)

    def compute() -> dict[str, np.ndarray]:
        began = time.perf_counter()
        made = draw(chosen, seed, count)
        seconds = time.perf_counter() - began
        return {"y": made.y, "noise": np.array(made.noise), "seconds": np.array(seconds)}

    settings = {"name": name, "rows": chosen.n_rows, "seed": seed, "draws": count}
    arrays = store.arrays(f"{name}/draws", settings, compute)
    X = chosen.inputs(seed)
    return lambda k: held_out(X, arrays["y"][:, k], seed), arrays


def design(name: str, plan: Plan, store: Store) -> Record:
    """K-bar and noise at the published rows, and the seconds that drawing took at the rows drawn."""
    _, arrays = drawn(name, plan, store)
    rows, draws = arrays["y"].shape
    seconds = float(arrays["seconds"])
    about = {"rows": rows, "draws": draws, "seconds": seconds, "seed": seed_of(name, plan)}
    return {**inputs(name, plan, store), **about}


def paper_record(
    name: str, k: int, anchors: str, split: Callable[[int], Split], plan: Plan, store: Store
) -> Record:
    seed = seed_of(name, plan)
    settings = {"case": name, "draw": k, "anchors": anchors, "seed": seed, "rank": RANK}

    def compute() -> Record:
        part = split(k)
        return record(paper_fit(part, anchors, seed=seed), part, **settings)

    return store.result(f"{name}/paper-{anchors}-{k}", {**settings, "rows": plan.rows}, compute)


def sound_record(name: str, k: int, split: Callable[[int], Split], plan: Plan, store: Store) -> Record:
    seed = seed_of(name, plan)
    settings = {"case": name, "draw": k, "seed": seed, **sound_dials(plan)}

    def compute() -> Record:
        part = split(k)
        return record(sound_fit(part, seed, **sound_dials(plan)), part, **settings)

    return store.result(f"{name}/sound-{k}", {**settings, "rows": plan.rows}, compute)


def sound_dials(plan: Plan) -> dict[str, Any]:
    return {"rank": plan.rank, "neighbors": plan.neighbors, "predict_neighbors": plan.predict_neighbors}


def scenario_records(name: str, plan: Plan, store: Store) -> Record:
    """{"design", "paper": {rule: records}, "sound": record of the first draw}."""
    split, _ = drawn(name, plan, store)
    paper = {
        anchors: [paper_record(name, k, anchors, split, plan, store) for k in range(plan.draws)]
        for anchors in ANCHOR_RULES
    }
    sound = sound_record(name, 0, split, plan, store)
    return {"design": design(name, plan, store), "paper": paper, "sound": sound}


def replication_records(plan: Plan, store: Store) -> dict[str, list[Record]]:
    """C1 with its inputs fixed: the paper's protocol (k-means anchors) and the sound default, per draw."""
    split, _ = drawn(REPLICATED, plan, store)
    draws = range(plan.replications)
    return {
        "paper": [paper_record(REPLICATED, k, "kmeans", split, plan, store) for k in draws],
        "sound": [sound_record(REPLICATED, k, split, plan, store) for k in draws],
    }
