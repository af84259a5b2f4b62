"""The GPyTorch kernels against the package's own values, JAX's gradients and GPyTorch's conformance suite."""

from __future__ import annotations

import unittest

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from widegp import kernels

torch = pytest.importorskip("torch")
gpytorch = pytest.importorskip("gpytorch")
suite = pytest.importorskip("gpytorch.test.base_kernel_test_case")

from widegp import gpytorch_kernels  # noqa: E402
from widegp.gpytorch_kernels import Angular, LeakyReLU, Mixed, ReLU, Sigmoid, Tanh  # noqa: E402

FAMILIES = (Tanh, Sigmoid, ReLU, LeakyReLU, Mixed)
VALUES = {
    "sigma_a2": 0.8, "sigma_u2": [0.7, 1.3, 0.4], "sigma_b2": 0.6, "sigma_v2": 1.7, "alpha": 0.3, "w": 0.4,
}  # fmt: skip

one_of_each = pytest.mark.parametrize("family", FAMILIES)


def at(family, **changes):
    """The kernel in double precision at VALUES, and the same kernel of `widegp.kernels`."""
    values = {n: v for n, v in (VALUES | changes).items() if n in family.form.free}
    ard = len(values["sigma_u2"]) if np.ndim(values["sigma_u2"]) else None
    kernel = family(ard_num_dims=ard).double()
    kernel.initialize(**{name: torch.tensor(v, dtype=torch.float64) for name, v in values.items()})
    arrays = {name: np.asarray(v) if np.ndim(v) else v for name, v in values.items()}
    return kernel, getattr(kernels, family.__name__)(**arrays)


def rows(n=5, seed=0):
    """Ordinary rows, then a duplicate, an opposite and a zero row: rho = 1 and near -1."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return np.vstack([X, X[0], -X[1], np.zeros(3)])


@one_of_each
@pytest.mark.parametrize("sigma_u2", [0.9, [0.7, 1.3, 0.4]], ids=["one sigma_u2", "ard"])
def test_values_agree_with_the_package(family, sigma_u2):
    X, Y = rows(), rows(seed=1)
    theirs, ours = at(family, sigma_u2=sigma_u2)
    left, right = torch.tensor(X), torch.tensor(Y)
    np.testing.assert_allclose(theirs(left).to_dense().detach(), ours(X), rtol=1e-12)
    np.testing.assert_allclose(theirs(left, right).to_dense().detach(), ours(X, Y), rtol=1e-12)
    np.testing.assert_allclose(theirs(left, diag=True).detach(), ours.diag(X), rtol=1e-12)
    np.testing.assert_allclose(theirs(left, right, diag=True).detach(), np.diag(ours(X, Y)), rtol=1e-12)


@one_of_each
@pytest.mark.parametrize("sigma_a2", [0.8, 1e-9], ids=["bias", "hardly a bias"])
def test_gradients_agree_with_jax_by_parameters_and_rows(family, sigma_a2):
    X = rows()
    theirs, ours = at(family, sigma_a2=sigma_a2)
    weight = np.random.default_rng(2).normal(size=(len(X), len(X)))
    with jax.enable_x64(True):

        def total(kernel, X):
            return jnp.sum(weight * kernel(X))

        by_kernel, by_rows = jax.grad(total, (0, 1))(jax.tree.map(jnp.asarray, ours), jnp.asarray(X))
    inputs = torch.tensor(X, requires_grad=True)
    values = {name: getattr(theirs, name) for name in family.form.free}
    loss = (torch.tensor(weight) * theirs(inputs).to_dense()).sum()
    # By the parameters themselves: the constraints' own slopes are GPyTorch's business.
    raw = [getattr(theirs, f"raw_{name}") for name in values]
    slopes = torch.autograd.grad(loss, [inputs, *raw])
    np.testing.assert_allclose(slopes[0], by_rows, rtol=1e-8, atol=1e-8)
    for name, raw_slope, parameter in zip(values, slopes[1:], raw, strict=True):
        (chain,) = torch.autograd.grad(values[name].sum(), parameter)
        got = (raw_slope / chain).reshape(np.shape(getattr(by_kernel, name)))
        np.testing.assert_allclose(got, getattr(by_kernel, name), rtol=1e-8, atol=1e-8, err_msg=name)


@one_of_each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_gradients_are_finite_on_coinciding_and_collinear_rows(family, dtype, scale):
    kernel = family().to(dtype)
    X = scale * np.vstack([rows(), 2.5 * rows()])
    inputs = torch.tensor(X, dtype=dtype, requires_grad=True)
    kernel(inputs).to_dense().sum().backward()
    assert torch.isfinite(inputs.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in kernel.parameters())


def test_derivatives_of_the_angular_moment_agree_with_differences_away_from_the_ends():
    rho = torch.tensor([-0.99, -0.3, 0.0, 0.4, 0.999], dtype=torch.float64)
    d = torch.tensor([0.5, 1.0, 2.0, 3.0, 0.1], dtype=torch.float64)
    e = d.flip(0)
    inputs = tuple(v.clone().requires_grad_() for v in (rho * (d * e).sqrt(), d, e))
    assert torch.autograd.gradcheck(Angular.apply, inputs, eps=1e-7, atol=1e-6)


@pytest.mark.parametrize(("sign", "by_c"), [(1.0, 0.5), (-1.0, 0.0)])
def test_derivatives_at_the_ends_are_the_limits(sign, by_c):
    d = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    c = torch.tensor([sign * 2.0], dtype=torch.float64, requires_grad=True)
    value = Angular.apply(c, d, d.detach())
    slopes = torch.autograd.grad(value, (c, d))
    np.testing.assert_allclose([s.item() for s in slopes], [by_c, 0.0], atol=1e-15)
    np.testing.assert_allclose(value.item(), 1.0 if sign > 0 else 0.0, atol=1e-15)


@pytest.mark.parametrize("frozen", [True, False], ids=["by rows", "by rows and parameters"])
def test_second_derivatives_are_refused_rather_than_nan_or_left_out(frozen):
    kernel, X = Mixed().double(), torch.tensor(rows(), requires_grad=True)
    kernel.requires_grad_(not frozen)
    (slope,) = torch.autograd.grad(kernel(X).to_dense().sum(), X, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives where rows are collinear"):
        slope.sum().backward()


@one_of_each
def test_a_batch_of_kernels_is_as_many_kernels(family):
    kernel = family(ard_num_dims=3, batch_shape=torch.Size([2])).double()
    kernel.sigma_u2 = torch.tensor([[[0.2, 0.3, 0.4]], [[1.0, 2.0, 3.0]]])
    kernel.sigma_a2 = torch.tensor([[[0.5]], [[0.1]]])
    X = torch.tensor(np.stack([rows(), rows(seed=3)]))
    whole = kernel(X).to_dense().detach()
    assert whole.shape == (2, 8, 8) and kernel(X, diag=True).shape == (2, 8)
    for b in range(2):
        values = {name: getattr(kernel, name)[b, 0].tolist() for name in family.form.free}
        _, ours = at(family, **{name: v if name == "sigma_u2" else v[0] for name, v in values.items()})
        np.testing.assert_allclose(whole[b], ours(X[b].numpy()), rtol=1e-12)


class TestConstraints:
    def test_parameters_start_at_the_packages_defaults(self):
        for family in FAMILIES:
            for name, value in family.form().parameters().items():
                assert getattr(family(), name).item() == pytest.approx(value, rel=1e-6)

    def test_variances_are_positive_and_fractions_inside_the_unit_interval(self):
        kernel = Mixed()
        for parameter in kernel.parameters():
            torch.nn.init.constant_(parameter, -4.0)
        assert all(0 < getattr(kernel, name).item() < 0.1 for name in Mixed.form.free)
        for parameter in kernel.parameters():
            torch.nn.init.constant_(parameter, 5.0)
        assert all((getattr(kernel, name).item() < 1) is (name in ("alpha", "w")) for name in Mixed.form.free)

    def test_a_constraint_of_ones_own_and_its_start(self):
        narrow = gpytorch.constraints.Interval(0.2, 0.4, initial_value=0.25)
        kernel = Mixed(constraints={"w": narrow, "alpha": gpytorch.constraints.Interval(0.6, 0.8)})
        assert kernel.w.item() == pytest.approx(0.25)
        assert 0.6 < kernel.alpha.item() < 0.8

    def test_unknown_names_are_named(self):
        with pytest.raises(ValueError, match=r"constraints names \['omega'\]; ReLU has sigma_a2"):
            ReLU(constraints={"omega": gpytorch.constraints.Positive()})

    def test_a_prior_by_the_parameters_name(self):
        kernel = Mixed()
        kernel.register_prior("sigma_a2_prior", gpytorch.priors.GammaPrior(2.0, 2.0), "sigma_a2")
        ((_, _, prior, closure, _),) = kernel.named_priors()
        np.testing.assert_allclose(prior.log_prob(closure(kernel)).item(), np.log(4.0) - 2.0, rtol=1e-6)


def test_inputs_have_no_values_of_their_own():
    X = torch.tensor(rows())
    with pytest.raises(NotImplementedError, match="active_dims instead"):
        ReLU().double().forward(X, X, last_dim_is_batch=True)


class Regression(gpytorch.models.ExactGP):
    def __init__(self, X, y, likelihood, kernel):
        super().__init__(X, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_an_exact_gp_trains_and_predicts_like_a_dense_solve():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(1.5 * X[:, 0]) + 0.1 * rng.normal(size=60)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    kernel = Mixed(ard_num_dims=3).double().initialize(sigma_u2=1 / 3)
    model = Regression(torch.tensor(X), torch.tensor(y), likelihood, kernel).train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    path = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = -objective(model(torch.tensor(X)), torch.tensor(y))
        loss.backward()
        optimizer.step()
        path.append(loss.item())
    assert np.all(np.isfinite(path)) and path[-1] < path[0] - 0.3
    X_new = rng.normal(size=(10, 3))
    model.eval()
    with torch.no_grad():
        mean = model(torch.tensor(X_new)).mean.numpy()
    values = {n: getattr(kernel, n).detach().numpy().squeeze() for n in Mixed.form.free}
    ours = kernels.Mixed(**{n: v if v.ndim else float(v) for n, v in values.items()})
    expected = ours(X_new, X) @ np.linalg.solve(ours(X) + likelihood.noise.item() * np.eye(60), y)
    np.testing.assert_allclose(mean, expected, rtol=1e-6, atol=1e-8)


class Conformance(suite.BaseKernelTestCase):
    """GPyTorch's own suite: active_dims, batches, indexing, pickling, precision."""

    family: type

    def create_kernel_no_ard(self, **kwargs):
        return self.family(**kwargs)

    def create_kernel_ard(self, num_dims, **kwargs):
        return self.family(ard_num_dims=num_dims, **kwargs)


for _family in FAMILIES:
    _name = f"Test{_family.__name__}Conformance"
    globals()[_name] = type(_name, (Conformance, unittest.TestCase), {"family": _family, "seed": 0})


def test_public_names_are_those_of_the_package():
    assert set(gpytorch_kernels.__all__) == {family.__name__ for family in FAMILIES}
