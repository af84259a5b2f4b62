"""Everything a report shows, as a plain dict that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

from widegp.approximations.registry import approximation
from widegp.estimator import WideGPRegressor
from widegp.explain import WEIGHT, balance, input_names, kernel_shape
from widegp.held_out import HeldOut
from widegp.inference.parameters import declared_parameters
from widegp.report.calibration import IntervalCalibration, coverage, normal_scores
from widegp.report.formatting import clean, plain
from widegp.report.notices import Told, Tried, in_words
from widegp.report.parameters import describe_parameters
from widegp.report.verdict import Verdict, notices_of, open_directions
from widegp.yardstick import Yardstick

SHOWN_ROWS = 5000
LEVELS = (0.50, 0.80, 0.90, 0.95, 0.99)
BINS = 10
TREND_BINS = 12
QUANTILES = 300


def summarise(
    model: WideGPRegressor,
    held_out: HeldOut,
    columns: Sequence[Mapping[str, Any]] = (),
    provenance: Mapping[str, Any] | None = None,
    *,
    explanation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The parts of a report: verdict, scores, held-out rows, parameters, fit, inputs, data, provenance.

    columns : one mapping per column of the table (name, kind, missing, levels, min, max, note).
    provenance : what made the model. ``target`` names the target, ``rows`` counts the training rows,
        ``peak_memory`` is in bytes, ``warnings`` is a list of sentences, ``yardstick`` has the fields of
        `widegp.yardstick.Yardstick`; ``remarks`` and ``details`` are sentences for those who want to know
        more; all else is shown as it stands (command, date, seed, versions, ...).
    explanation : the result of `widegp.explain.explain`; by default `own_explanation`.
    """
    given = dict(provenance or {})
    scores, result = held_out.scores(), model.result_
    beside, counted = given.pop("yardstick", None), given.pop("rootogram", None)
    deviance = given.pop("deviance", None)
    yardstick = None if beside is None else Yardstick(**beside)
    judged = Verdict.of(held_out, scores, str(given.get("target", "the target")), yardstick)
    sizes = {name: int(np.size(value)) for name, value in model.params_.items()}
    # The fit warns of what its result keeps as a note: how it went, which is for those who ask.
    warned = [text for text in given.pop("warnings", ()) if text not in result.notes]
    noticed = notices_of(held_out, judged, result) + [Told(str(text)) for text in dict.fromkeys(warned)]
    return plain(
        {
            "target": clean(given.get("target", "the target")),
            "verdict": judged.to_dict(),
            "notices": in_words(noticed, tried_by(model)),
            "notes": [*map(str, result.notes), *given.pop("remarks", ()), *given.pop("details", ())],
            "yardstick": yardstick and yardstick.to_dict() | {"better": yardstick.is_much_better},
            "scores": scores,
            "rmse_error": rmse_error(held_out),
            "held_out": _held_out(held_out) | {"rootogram": counted, "deviance": deviance},
            "model": _model(model, given),
            "fit": _fit(model, given),
            "parameters": describe_parameters(model),
            "undetermined": open_directions(result.undetermined, sizes, declared_parameters(model.kernel_)),
            "explanation": explanation or own_explanation(model),
            "columns": list(columns),
            "provenance": given,
        }
    )


def rmse_error(held_out: HeldOut) -> float | None:
    """Standard error of the RMSE over draws of held-out rows, sd(e^2) / (2 RMSE sqrt q)."""
    squared = (held_out.y - held_out.mean) ** 2
    if len(squared) < 2 or not squared.any():
        return None
    return float(np.std(squared, ddof=1) / (2 * np.sqrt(squared.mean() * len(squared))))


def tried_by(model: WideGPRegressor) -> Tried:
    """What was asked for, and what "auto" tries by itself where no budget keeps it from it."""
    hurried = model.budget is not None and model.metric == "auto"
    # Counts and heavy tails take neither a warp nor a calibration.
    other = model.likelihood != "gaussian"
    warp = other or model.target_transform not in (None, *(("auto",) if hurried else ()))
    ard = bool(model.ard) or (model.metric != "iso" and not hurried)
    return Tried(warp=warp, ard=ard, conformal=other or bool(model.conformal), hurried=hurried)


def _held_out(held_out: HeldOut) -> dict[str, Any]:
    judged = IntervalCalibration.of(held_out)
    shown = held_out.thinned(SHOWN_ROWS)
    points = {name: getattr(shown, name) for name in ("y", "mean", "lower", "upper", "inside")}
    low, high = stats.binom.interval(0.95, len(held_out), 1 / BINS)
    return {
        "rows": len(held_out),
        "level": held_out.level,
        "inside": float(held_out.inside.mean()),
        "plausible": judged.own.plausible,
        "points": points,
        "coverage": [coverage(held_out, level).to_dict() for level in LEVELS],
        "calibration": [coverage(held_out, float(p)).to_dict() for p in np.linspace(0.01, 0.99, 99)],
        "thirds": [part.to_dict() for part in judged.thirds],
        "by_prediction": [part.to_dict() for part in judged.tenths],
        "pit": {
            "counts": np.histogram(held_out.pit, BINS, range=(0, 1))[0],
            "expected": len(held_out) / BINS,
            "low": low,
            "high": high,
        },
        "quantiles": quantile_plot(held_out.pit),
        "trend": residual_trend(held_out),
    }


def quantile_plot(pit: np.ndarray) -> dict[str, np.ndarray]:
    """Sorted normal scores Phi^-1(PIT) against normal quantiles, with the 95% range of each order statistic.

    Order statistic i of q uniform numbers is Beta(i, q + 1 - i). At most QUANTILES of them, evenly in theory.
    """
    q = len(pit)
    observed = normal_scores(np.sort(pit))
    ends = ndtri(0.5 / q)
    kept = np.unique(np.round(q * ndtr(np.linspace(ends, -ends, QUANTILES)) + 0.5).astype(int).clip(1, q))
    low, high = stats.beta.interval(0.95, kept, q + 1 - kept)
    theory = ndtri((kept - 0.5) / q)
    return {"theory": theory, "observed": observed[kept - 1], "low": ndtri(low), "high": ndtri(high)}


def residual_trend(held_out: HeldOut) -> dict[str, np.ndarray]:
    """Mean residual y - mean and twice its standard error within bins of equally many predictions."""
    residual = held_out.y - held_out.mean
    order = np.argsort(held_out.mean, kind="stable")
    groups = np.array_split(order, max(1, min(TREND_BINS, len(order) // 10)))
    return {
        "x": np.array([held_out.mean[g].mean() for g in groups]),
        "mean": np.array([residual[g].mean() for g in groups]),
        "error": np.array([2 * residual[g].std() / np.sqrt(len(g)) for g in groups]),
    }


def _model(model: WideGPRegressor, given: dict[str, Any]) -> dict[str, Any]:
    kernel = model.kernel_.word if isinstance(model.kernel, str) else type(model.kernel).__name__
    return {
        "kernel": kernel,
        "approximation": model.approximation_,
        "inputs": int(model.n_features_in_),
        "rows": given.get("rows"),
        "anchors": len(model.anchors_) if approximation(model.approximation_).anchors != "none" else 0,
        "warp": model.transform_.name,
        "ard": bool(model.ard),
    }


def _fit(model: WideGPRegressor, given: dict[str, Any]) -> dict[str, Any]:
    result = model.result_
    stages = {name: value for name, value in result.seconds.items() if name != "total"}
    total = result.seconds.get("total", sum(stages.values()))
    stages["everything else"] = max(0.0, total - sum(stages.values()))
    return {
        "reason": str(result.reason),
        "converged": result.converged,
        "iterations": result.n_iter,
        "evaluations": result.n_evaluations,
        "rounds": result.rounds,
        "objective": result.objective,
        "path": result.path,
        "backend": result.backend,
        "jitter": result.jitter,
        "seconds": stages,
        "total_seconds": total,
        "peak_memory": given.get("peak_memory"),
    }


def own_explanation(
    model: WideGPRegressor,
    feature_names: Sequence[str] | None = None,
    ranking: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the model says of itself without a sample of rows: ARD, and the kernel at its own rows.

    There is no partial dependence, and inputs are ranked by ARD alone, beside the ``ranking`` of
    `widegp.importance.rank_columns`, if given.
    """
    rows = model.fitted_.inputs.transform(model.fitted_.rows_held)
    weights = np.asarray(getattr(model, "input_importance_", []), float)
    names = input_names(model, feature_names)
    order = np.argsort(-weights, kind="stable")
    return {
        "inputs": [
            {"name": names[j], "index": int(j), "effect": None, "weight": float(weights[j])} for j in order
        ],
        "ranking": [] if ranking is None else ranking["inputs"],
        "partial_dependence": [],
        "balance": balance(model, rows),
        "kernel_shape": kernel_shape(model.kernel_, rows),
        "words": {"weight": WEIGHT},
    }
