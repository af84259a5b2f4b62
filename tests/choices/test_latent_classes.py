"""Choices under the softmax: metrics are learned from all classes and judged by rows held out."""

from __future__ import annotations

import numpy as np

from widegp.approximations.build import Builder
from widegp.approximations.layout import Dials
from widegp.choices.latent import LatentFit
from widegp.choices.trials import Form
from widegp.compute.backend import choose_backend
from widegp.inference.classes import ClassProblem
from widegp.inference.objective import start_values
from widegp.inference.priors import default_priors
from widegp.inference.run import OptimizerSettings, Run
from widegp.kernels.registry import named
from widegp.laplace_classes import ClassResponse
from widegp.likelihoods.softmax import Softmax


def test_the_metric_of_all_classes_finds_the_inputs_that_matter():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(240, 10))
    f = 3 * np.column_stack([X[:, 0], -X[:, 0], np.sin(2 * X[:, 1])])
    likelihood = Softmax(3)
    y = likelihood.sample(f, rng)
    kernel = named("mixed").at_start(10)
    problem = ClassProblem(kernel, ClassResponse(likelihood, y, likelihood.level(y)), {})
    dials = Dials("full-scale", 20, 10, "kmeans", "random", None)
    builder = Builder(X, dials, choose_backend(kernel, "native"), 0)
    start = start_values(kernel, 1.0, np.zeros(0), None)
    del start["sigma_eps2"]
    run = Run(OptimizerSettings("lbfgs", 5))
    fit = LatentFit(builder, problem, default_priors(kernel, 10, True), start, run)
    values = start | {"sigma_v2": np.asarray(6.0)}
    plain = fit._sampled({"standard": X}, Form("standard"), values, None)
    M = plain.moment(100)
    assert M.shape == (10, 10) and min(M[0, 0], M[1, 1]) > 3 * np.diagonal(M)[2:].max()
    best = fit._refined({"standard": X}, Form("standard"), values, True, plain.settled.mode.f)
    assert best.form.linear is not None and best.log_score.shape == (48,)
    assert best.log_score.mean() > plain.log_score.mean()
    assert problem.response.pseudo_targets().shape == (240,)
