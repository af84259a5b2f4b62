"""What the figures show, computed: shapes, networks, cost against accuracy, profiles, information."""

from __future__ import annotations

import time
import warnings
from typing import Any

from widegp import designs, metrics
from widegp.identifiability import (
    Computation,
    fisher_information,
    map_objective,
    profile,
    shape_correlations,
)
from widegp.kernels.closed import Mixed
from widegp.networks import convergence_study, network_of
from widegp.paper.plan import Plan
from widegp.paper.scenarios import REPLICATED, Record, drawn, sound_record
from widegp.paper.store import Store

PROFILED = ("w", "alpha", "sigma_u2", "sigma_a2", "sigma_b2", "sigma_eps2")
NETWORK_ROWS, NETWORK_INPUTS = 20, 5
SPECTRUM_INPUTS = (20, 80)
THINNED = 10


def shapes(plan: Plan, store: Store) -> Record:
    """Correlations by pair, as in Table (corr-kernels)."""

    def compute() -> Record:
        found = shape_correlations()
        return {row["pair"]: row["correlation"] for row in found.table()}

    return store.result("kernels", {}, compute)


def shape_curves(plan: Plan, store: Store) -> Record:
    """The curves over rho, each centred and scaled to unit standard deviation."""

    def compute() -> Record:
        found = shape_correlations()
        rho, curves = found.rho[::THINNED], found.curves[:, ::THINNED]
        centred = (curves - found.curves.mean(1, keepdims=True)) / found.curves.std(1, keepdims=True)
        return {"rho": rho, "curves": dict(zip(found.names, centred, strict=True))}

    return store.result("figures/kernels", {}, compute)


def networks(plan: Plan, store: Store) -> Record:
    """How far networks of K_mix are from their limit, by width."""

    def compute() -> Record:
        X = designs.uniform(NETWORK_ROWS, NETWORK_INPUTS, plan.seed)
        study = convergence_study(
            lambda width: network_of(Mixed(), width), plan.widths, X, plan.network_draws, plan.seed
        )
        names = ("widths", "covariance_error", "excess_kurtosis", "ks_distance", "energy_distance")
        slopes = {name: study.slope(name).value for name in ("covariance_error", "excess_kurtosis")}
        return {name: getattr(study, name) for name in names} | {
            "energy_floor": study.energy_floor, "slopes": slopes, "draws": plan.network_draws
        }  # fmt: skip

    settings = {"widths": plan.widths, "draws": plan.network_draws, "seed": plan.seed}
    return store.result("figures/networks", settings, compute)


def cost(plan: Plan, store: Store) -> Record:
    """Seconds and RMSE over rank and neighbours on the first draw of C1, at the sound default's estimates.

    A fit without iterations evaluates the likelihood, its curvature and the posterior: what each iteration
    costs, times a constant.
    """
    split, _ = drawn(REPLICATED, plan, store)
    start = sound_record(REPLICATED, 0, split, plan, store)["fit_params"]
    points = []
    for neighbors in plan.cost_neighbors:
        for rank in plan.cost_ranks:
            settings = {"rank": rank, "neighbors": neighbors, "seed": plan.seed, "rows": plan.rows,
                        "start": start}  # fmt: skip

            def compute(rank: int = rank, neighbors: int = neighbors) -> Record:
                return _point(split(0), start, rank, neighbors, plan)

            points.append(store.result(f"figures/cost-{rank}-{neighbors}", settings, compute))
    return {"points": points, "rows": len(split(0).y)}


def _point(split: Any, start: dict[str, float], rank: int, neighbors: int, plan: Plan) -> Record:
    from widegp.estimator import WideGPRegressor

    began = time.perf_counter()
    model = WideGPRegressor.plain(
        approximation="full-scale" if neighbors else "fitc", rank=rank, neighbors=neighbors,
        predict_neighbors=neighbors, start=start, max_iter=0, random_state=plan.seed,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(split.X, split.y)
    mean, sd = model.predict(split.X_test, return_std=True)
    seconds = time.perf_counter() - began
    scores = {"rmse": metrics.rmse(split.y_test, mean), "nlpd": metrics.nlpd(split.y_test, mean, sd)}
    return {"rank": rank, "neighbors": neighbors, "seconds": seconds, **scores}


def profiles(plan: Plan, store: Store) -> Record:
    """Profile posteriors of K_mix's parameters from rows of the first draw of C1, exact likelihood."""
    split, arrays = drawn(REPLICATED, plan, store)
    part = split(0)
    rows = min(plan.profile_rows, len(part.y))
    out: Record = {"rows": rows, "profiles": {}}
    for name in PROFILED:

        def compute(name: str = name) -> Record:
            by = Computation(seed=plan.seed)
            objective, start = map_objective(
                Mixed(), float(arrays["noise"]), part.X[:rows], part.y[:rows], computation=by
            )
            return profile(objective, start, name).to_dict()

        settings = {"name": name, "rows": rows, "of": plan.rows, "seed": plan.seed}
        out["profiles"][name] = store.result(f"figures/profile-{name}", settings, compute)
    return out


def spectra(plan: Plan, store: Store) -> Record:
    """Eigenvalues of the information on the log scale under the uniform and the stratified design."""
    out: Record = {"rows": plan.spectrum_rows, "designs": {}}
    for n_inputs in SPECTRUM_INPUTS:
        for name in ("uniform", "stratified"):

            def compute(name: str = name, n_inputs: int = n_inputs) -> Record:
                X = designs.DESIGNS[name](plan.spectrum_rows, n_inputs, plan.seed)
                found = fisher_information(Mixed(), None, X, "exact")
                spread = designs.design_statistics(X)
                return {
                    "values": found.spectrum.log[::-1], "condition": found.condition_number,
                    "log_errors": found.log_standard_errors(), "norm_sd": spread.norm_sd,
                    "angle_sd": spread.angle_sd, "cosine_sd": spread.cosine_sd,
                }  # fmt: skip

            settings = {"design": name, "inputs": n_inputs, "rows": plan.spectrum_rows, "seed": plan.seed}
            out["designs"][f"{name}, {n_inputs} inputs"] = store.result(
                f"figures/spectrum-{name}-{n_inputs}", settings, compute
            )
    return out
