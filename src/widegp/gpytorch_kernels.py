"""The limit kernels for GPyTorch: constraints, batches, and gradients that exist where rows coincide.

    K(x, x') = sigma_b2 + sigma_v2 E[h(Z) h(Z')],  eq. (kernel_general_main), as in `widegp.kernels`

>>> covar_module = Mixed(ard_num_dims=8)
>>> covar_module.initialize(sigma_u2=1 / 8, w=0.7)
>>> covar_module.register_prior("w_prior", gpytorch.priors.UniformPrior(0.0, 1.0), "w")

A kernel is five numbers beside sigma_a2 and sigma_u2 (`widegp.kernels.arc`): the numbers come from there, the
five functions are written here in torch. Kernels start in torch's default precision; call ``.double()`` for
the accuracy of the rest of the package.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

try:
    import torch
    from gpytorch.constraints import Interval, Positive
    from gpytorch.kernels import Kernel as GPyTorchKernel
except ImportError as error:
    raise ImportError("widegp.gpytorch_kernels needs GPyTorch: pip install 'widegp[gpytorch]'.") from error

from widegp.kernels import closed
from widegp.kernels.arc import SIGMOID_SCALE, TANH_SCALE
from widegp.kernels.parameters import FRACTION

Tensor = Any  # torch.Tensor; torch is not there where the types are checked


def _constrained(name: str) -> property:
    """The parameter ``name``, through the constraint of its unconstrained ``raw_name``."""

    def value(self: Any) -> Tensor:
        return getattr(self, f"raw_{name}_constraint").transform(getattr(self, f"raw_{name}"))

    def put(self: Any, value: Any) -> None:
        raw = getattr(self, f"raw_{name}")
        inside = getattr(self, f"raw_{name}_constraint").inverse_transform(torch.as_tensor(value).to(raw))
        self.initialize(**{f"raw_{name}": inside})

    return property(value, put)


class LimitKernel(GPyTorchKernel):
    """What the five kernels share; ``form`` is the kernel of `widegp.kernels` that it follows.

    Parameters
    ----------
    ard_num_dims : number of inputs, for one sigma_u2 each; None for one in all.
    constraints : constraints by parameter name in place of Positive() for the variances and Interval(0, 1)
        for ``alpha`` and ``w``.
    batch_shape, active_dims : as in `gpytorch.kernels.Kernel`.

    sigma_u2 has shape (*batch_shape, 1, I or 1), every other parameter (*batch_shape, 1, 1).
    """

    form: ClassVar[type[closed.ClosedForm]]

    sigma_a2 = _constrained("sigma_a2")
    sigma_u2 = _constrained("sigma_u2")
    sigma_b2 = _constrained("sigma_b2")
    sigma_v2 = _constrained("sigma_v2")

    def __init__(
        self, ard_num_dims: int | None = None, constraints: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(ard_num_dims=ard_num_dims, **kwargs)
        given, declared = dict(constraints or {}), {p.name: p for p in self.form.declared}
        for name, start in self.form().parameters().items():
            size = ard_num_dims if declared[name].per_input and ard_num_dims else 1
            zeros = torch.zeros(*self.batch_shape, 1, size)
            self.register_parameter(name=f"raw_{name}", parameter=torch.nn.Parameter(zeros))
            usual = Interval(0.0, 1.0) if declared[name].kind is FRACTION else Positive()
            constraint = given.pop(name, usual)
            self.register_constraint(f"raw_{name}", constraint)
            # A constraint of the user's may bring its own start, or exclude ours.
            if constraint.initial_value is None and constraint.check(torch.tensor(start)):
                setattr(self, name, start)
        if given:
            raise ValueError(
                f"constraints names {sorted(given)}; {type(self).__name__} has {', '.join(self.form.free)}."
            )

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """K(x1, x2): (..., n, I), (..., p, I) -> (..., n, p), or (..., n) of pairs of rows with ``diag``."""
        if last_dim_is_batch:
            raise NotImplementedError(
                "A limit kernel mixes its inputs before the activation and has no value per input;"
                " add kernels with active_dims instead of last_dim_is_batch."
            )
        weighted = x1 * self.sigma_u2
        d = self.sigma_a2 + (weighted * x1).sum(-1, keepdim=True)
        e = self.sigma_a2 + (x2 * x2 * self.sigma_u2).sum(-1, keepdim=True)
        if diag:
            c = self.sigma_a2 + (weighted * x2).sum(-1, keepdim=True)
            return self._entry(c, d, e).squeeze(-1)
        return self._entry(self.sigma_a2 + weighted @ x2.mT, d, e.mT)

    def _entry(self, c: Tensor, d: Tensor, e: Tensor) -> Tensor:
        """sigma_b2 + sigma_v2 E[h(Z) h(Z')], elementwise."""
        values = {name: getattr(self, name) for name in self.form.free}
        constant, tanh, sigmoid, linear, angle = self.form(**values).terms()
        moment = constant + linear * c
        if _present(tanh):
            moment = moment + tanh * arcsine(c, d, e, TANH_SCALE)
        if _present(sigmoid):
            moment = moment + sigmoid * arcsine(c, d, e, SIGMOID_SCALE)
        if _present(angle):
            moment = moment + angle * Angular.apply(*torch.broadcast_tensors(c, d, e))
        return values["sigma_b2"] + values["sigma_v2"] * moment


def _present(term: Any) -> bool:
    return torch.is_tensor(term) or term != 0


def arcsine(c: Tensor, d: Tensor, e: Tensor, t: float) -> Tensor:
    """arcsin(t c / sqrt((1 + t d)(1 + t e))) = arctan(t c / sqrt(1 + t (d + e) + t^2 (d e - c^2))).

    The arctangent's derivative is bounded: the root is at least 1, also where the sine rounds to 1.
    """
    rest = (d * e - c * c).clamp_min(0)
    return torch.atan2(t * c, torch.sqrt(1 + t * (d + e) + t * t * rest))


class Angular(torch.autograd.Function):
    """J(c, d, e) = (1/2 pi) [sqrt(d e - c^2) + c (pi - arccos rho)], eq. (LCov3), for equal shapes.

    The derivatives that autograd would form are 0/0 at rho = +-1; the true ones, `AngularSlopes`, are
    smooth there.
    """

    @staticmethod
    def forward(ctx: Any, c: Tensor, d: Tensor, e: Tensor) -> Tensor:
        ctx.save_for_backward(c, d, e)
        root, angle = _root_and_angle(c, d, e)
        return (root + c * angle) / (2 * math.pi)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, ...]:
        return tuple(cotangent * slope for slope in AngularSlopes.apply(*ctx.saved_tensors))


class AngularSlopes(torch.autograd.Function):
    """dJ/dc = (pi - arccos rho) / 2 pi,  dJ/dd = sqrt(d e - c^2) / (4 pi d), and dJ/de likewise."""

    @staticmethod
    def forward(ctx: Any, c: Tensor, d: Tensor, e: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        root, angle = _root_and_angle(c, d, e)
        # d = 0 (a zero row with sigma_a2 = 0) has root = 0: its one-sided derivative is taken as 0.
        by_d, by_e = (root / (4 * math.pi * torch.where(v > 0, v, 1)) for v in (d, e))
        return angle / (2 * math.pi), by_d, by_e

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> None:
        raise RuntimeError(
            "The ReLU part of a limit kernel has no second derivatives where rows are collinear, as every"
            " row is with itself; use Tanh or Sigmoid where a Hessian is needed."
        )


def _root_and_angle(c: Tensor, d: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    """sqrt(d e - c^2) and pi - arccos(rho), both from one rho clipped to [-1, 1], as in `kernels.arc`."""
    scale = d.sqrt() * e.sqrt()
    rho = (c / torch.where(scale > 0, scale, 1)).clamp(-1, 1)
    # c, d and e are rounded sums: rho = +-1 comes out some eps inside, and the angle sqrt(eps) off.
    gap = 1 - rho.abs()
    gap = torch.where(gap < 16 * torch.finfo(gap.dtype).eps, 0, gap)
    half = 2 * torch.arcsin(torch.sqrt(gap / 2))
    return scale * torch.sqrt(gap * (2 - gap)), torch.where(rho > 0, math.pi - half, half)


class Tanh(LimitKernel):
    """`widegp.kernels.Tanh`, eq. (LCov1)."""

    form = closed.Tanh


class Sigmoid(LimitKernel):
    """`widegp.kernels.Sigmoid`, eq. (LCov2)."""

    form = closed.Sigmoid


class ReLU(LimitKernel):
    """`widegp.kernels.ReLU`, eq. (LCov3)."""

    form = closed.ReLU


class LeakyReLU(LimitKernel):
    """`widegp.kernels.LeakyReLU`, eq. (LCov4), with slope ``alpha`` in (0, 1)."""

    form = closed.LeakyReLU
    alpha = _constrained("alpha")


class Mixed(LimitKernel):
    """`widegp.kernels.Mixed`, K_mix of eq. (k_mix_reduced), with ``alpha`` and ``w`` in (0, 1)."""

    form = closed.Mixed
    alpha = _constrained("alpha")
    w = _constrained("w")


__all__ = ["LeakyReLU", "Mixed", "ReLU", "Sigmoid", "Tanh"]
