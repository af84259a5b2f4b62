"""K_mix in GPyTorch: `InducingPointKernel` with fixed anchors, its objective with gradient, and L-BFGS.

The kernel is written as in peers_gpflow.py, with row quantities as vectors and the derivative of G given: for
many rows that is half as fast again as `widegp.gpytorch_kernels.Mixed`, which guards more corners.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import scipy.optimize
import torch
from peers_shared import KERNEL, Task, Trace, Values, penalty

from widegp import gpytorch_kernels

PACKAGES = ("gpytorch", "torch")
T = math.pi / 2


def use_threads(count: int) -> None:
    torch.set_num_threads(count)


class _Angular(torch.autograd.Function):
    """G(rho) = sqrt(1 - rho^2) + rho (pi - arccos rho),  G' = pi - arccos rho."""

    @staticmethod
    def forward(ctx: Any, rho: torch.Tensor) -> torch.Tensor:
        rho = rho.clamp(-1, 1)
        angle = math.pi - torch.arccos(rho)
        ctx.save_for_backward(angle)
        return torch.sqrt(1 - rho * rho) + rho * angle

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> torch.Tensor:
        return upstream * ctx.saved_tensors[0]


class Mixed(gpytorch_kernels.Mixed):
    def forward(
        self, x1: torch.Tensor, x2: torch.Tensor, diag: bool = False, **params: Any
    ) -> torch.Tensor:
        d = self.sigma_a2 + (self.sigma_u2 * x1 * x1).sum(-1, keepdim=True)
        if diag:
            return self._mixed(torch.asin(T * d / (1 + T * d)), d, math.pi * d).squeeze(-1)
        e = (self.sigma_a2 + (self.sigma_u2 * x2 * x2).sum(-1, keepdim=True)).mT
        c = self.sigma_a2 + (self.sigma_u2 * x1) @ x2.mT
        smooth = torch.asin(c * torch.sqrt(T / (1 + T * d)) * torch.sqrt(T / (1 + T * e)))
        root_d, root_e = torch.sqrt(d), torch.sqrt(e)
        return self._mixed(smooth, c, _Angular.apply(c * (1 / root_d) * (1 / root_e)) * root_d * root_e)

    def _mixed(self, smooth: torch.Tensor, c: torch.Tensor, bent: torch.Tensor) -> torch.Tensor:
        by_smooth = self.sigma_v2 * self.w * (2 / math.pi)
        by_c = self.sigma_v2 * (1 - self.w) * self.alpha
        by_bent = self.sigma_v2 * (1 - self.w) * (1 - self.alpha) ** 2 / (2 * math.pi)
        return self.sigma_b2 + by_smooth * smooth + by_c * c + by_bent * bent


class _Regression(gpytorch.models.ExactGP):
    def __init__(self, task: Task, likelihood: gpytorch.likelihoods.GaussianLikelihood) -> None:
        X, y, Z = (torch.from_numpy(a) for a in task)
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.InducingPointKernel(Mixed().double(), Z.clone(), likelihood)
        self.covar_module.inducing_points.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Model:
    """-log of the bound of Titsias (2009), as a sum over rows, at the given parameters."""

    def __init__(self, task: Task, values: Values) -> None:
        self.n_rows = len(task.y)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        self.model = _Regression(task, likelihood)
        self.kernel = self.model.covar_module.base_kernel
        self.put(values)
        self.model.train()
        self.mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, self.model)
        self.raw = {name: getattr(self.kernel, f"raw_{name}") for name in KERNEL}
        self.raw["sigma_eps2"] = likelihood.noise_covar.raw_noise
        self.x, self.y = self.model.train_inputs[0], self.model.train_targets

    def put(self, values: Values) -> None:
        self.kernel.initialize(**{name: values[name] for name in KERNEL})
        self.model.likelihood.noise = values["sigma_eps2"]

    def values(self) -> dict[str, torch.Tensor]:
        return {name: getattr(self.kernel, name).squeeze() for name in KERNEL} | {
            "sigma_eps2": self.model.likelihood.noise.squeeze()
        }

    def loss(self) -> torch.Tensor:
        return -self.n_rows * self.mll(self.model(self.x), self.y)

    def map_loss(self) -> torch.Tensor:
        return self.loss() + penalty(self.values(), torch.log)

    def evaluate(self) -> tuple[float, Values]:
        """The objective and its gradient by the parameters themselves."""
        self.model.zero_grad()
        loss = self.loss()
        loss.backward()
        slopes = torch.autograd.grad(sum(self.values().values()), list(self.raw.values()))
        pairs = zip(self.raw.items(), slopes, strict=True)
        return loss.item(), {name: (raw.grad / slope).item() for (name, raw), slope in pairs}

    def minimise(self, trace: Trace) -> None:
        """SciPy's L-BFGS-B over the unconstrained parameters."""
        raw = list(self.raw.values())

        def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
            with torch.no_grad():
                for parameter, number in zip(raw, z, strict=True):
                    parameter.fill_(number)
            self.model.zero_grad()
            loss = self.map_loss()
            loss.backward()
            return loss.item(), np.array([parameter.grad.item() for parameter in raw])

        z = np.array([parameter.item() for parameter in raw])
        trace.minimise(
            partial(scipy.optimize.minimize, value_and_gradient, z, jac=True, method="L-BFGS-B")
        )

    def map_value(self, values: Values) -> float:
        self.put(values)
        with torch.no_grad():
            return self.map_loss().item()
