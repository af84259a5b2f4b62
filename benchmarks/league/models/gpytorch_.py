"""GPyTorch: SGPR (Titsias 2009) and SVGP (Hensman et al. 2013), trained for a number of seconds."""

from __future__ import annotations

import time
from typing import Any

import gpytorch
import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from benchmarks.league.distributions import Gaussian
from benchmarks.league.models import Limits, Predict
from benchmarks.league.tables import Task

INDUCING, STEPS, EPOCHS, BATCH = 500, 300, 200, 1_024
PREDICTED_AT_ONCE = 2_000


def _kernel(inputs: int) -> Any:
    return gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5, ard_num_dims=inputs))


class Titsias(gpytorch.models.ExactGP):
    def __init__(self, X: torch.Tensor, y: torch.Tensor, Z: torch.Tensor) -> None:
        super().__init__(X, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.InducingPointKernel(_kernel(X.shape[1]), Z, self.likelihood)

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self, Z: torch.Tensor) -> None:
        law = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        super().__init__(gpytorch.variational.VariationalStrategy(self, Z, law))
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), _kernel(Z.shape[1])

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Rows:
    """Standardised inputs as tensors, and inducing rows drawn from them."""

    def __init__(self, task: Task, limits: Limits) -> None:
        torch.set_num_threads(limits.threads)
        torch.manual_seed(limits.seed)
        X, X_test = task.numbers
        scaler = StandardScaler().fit(X)
        self.X, self.X_test = (torch.from_numpy(scaler.transform(part)) for part in (X, X_test))
        drawn = np.random.default_rng(limits.seed).permutation(len(X))[: min(INDUCING, len(X) // 2)]
        self.Z = self.X[torch.from_numpy(drawn)].clone()


def _descend(loss: Any, parameters: list[Any], rate: float, steps: int, seconds: float) -> None:
    """Adam, until the steps are done or the seconds are over."""
    began, optimizer = time.perf_counter(), torch.optim.Adam(parameters, lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        if time.perf_counter() - began > seconds:
            break


def _variational(rows: Rows, y: torch.Tensor, likelihood: Any, limits: Limits) -> Any:
    model = Variational(rows.Z).double()
    likelihood = likelihood.double()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    order = torch.Generator().manual_seed(limits.seed)

    def loss() -> torch.Tensor:
        batch = torch.randint(len(y), (min(BATCH, len(y)),), generator=order)
        return -bound(model(rows.X[batch]), y[batch])

    steps = EPOCHS * max(1, len(y) // BATCH)
    _descend(loss, [*model.parameters(), *likelihood.parameters()], 0.02, max(steps, STEPS), limits.seconds)
    model.eval()
    likelihood.eval()
    return model, likelihood


def _titsias(rows: Rows, y: torch.Tensor, limits: Limits) -> Any:
    model = Titsias(rows.X, y, rows.Z).double()
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    _descend(lambda: -bound(model(rows.X), y), list(model.parameters()), 0.1, STEPS, limits.seconds)
    model.eval()
    return model, model.likelihood


def _predicted(model: Any, likelihood: Any, X: torch.Tensor) -> list[Any]:
    with torch.no_grad():
        return [likelihood(model(part)) for part in X.split(PREDICTED_AT_ONCE)]


def numbers(task: Task, limits: Limits, variational: bool) -> Predict:
    rows, centre, scale = Rows(task, limits), float(np.mean(task.y)), float(np.std(task.y))
    y = torch.from_numpy((task.y - centre) / scale)
    if variational:
        model = _variational(rows, y, gpytorch.likelihoods.GaussianLikelihood(), limits)
    else:
        model = _titsias(rows, y, limits)

    def predict() -> Gaussian:
        found = _predicted(*model, rows.X_test)
        mean = torch.cat([part.mean for part in found]).numpy()
        return Gaussian(centre + scale * mean, scale * torch.cat([part.stddev for part in found]).numpy())

    return predict


def classes(task: Task, limits: Limits, variational: bool) -> Predict:
    rows, y = Rows(task, limits), torch.from_numpy(task.y)
    model = _variational(rows, y, gpytorch.likelihoods.BernoulliLikelihood(), limits)
    return lambda: torch.cat([part.mean for part in _predicted(*model, rows.X_test)]).numpy()
