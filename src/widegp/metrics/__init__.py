"""Pure scores of predictions: of real targets, classes, counts and several outputs."""

from widegp.metrics.classes import accuracy, auc, brier, ece, ece_by_chance, log_loss
from widegp.metrics.counts import crps_from_cdf, negative_binomial_deviance, poisson_deviance
from widegp.metrics.real import (
    coverage,
    crps,
    crps_from_quantiles,
    crps_from_samples,
    crps_of_map,
    crps_z,
    energy_score,
    interval_score,
    interval_score_z,
    mae,
    mae_z,
    mese,
    mese_z,
    mse,
    mse_z,
    nlpd,
    nlpd_z,
    pit,
    pit_distance,
    rmse,
    rmse_z,
    score_table,
    sdese,
    sdese_z,
    standard_score,
)

__all__ = [
    "accuracy", "auc", "brier", "coverage", "crps", "crps_from_cdf", "crps_from_quantiles",
    "crps_from_samples", "crps_of_map", "crps_z", "ece", "ece_by_chance", "energy_score",
    "interval_score", "interval_score_z", "log_loss", "mae", "mae_z", "mese", "mese_z", "mse", "mse_z",
    "negative_binomial_deviance", "nlpd", "nlpd_z", "pit", "pit_distance", "poisson_deviance", "rmse",
    "rmse_z", "score_table", "sdese", "sdese_z", "standard_score",
]  # fmt: skip
