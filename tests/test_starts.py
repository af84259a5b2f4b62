"""Starts that find the optimum of a function that varies fast, and keep what a special case has found."""

import numpy as np
import pytest

from widegp import WideGPRegressor
from widegp.approximations.build import Builder, Dials
from widegp.compute.backend import choose_backend
from widegp.identifiability import Computation, map_objective
from widegp.inference.objective import Problem, start_values
from widegp.inference.optimizers import Task, lbfgs
from widegp.inference.parameters import ParameterSpace
from widegp.inference.priors import resolve_priors
from widegp.inference.run import OptimizerSettings, Run
from widegp.inference.starts import RIVAL_NATS, optima
from widegp.kernels import Mixed
from widegp.warps import make_warp


def wave(frequency: float, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (n, 1) uniform on [-3, 3], sin(frequency x) with noise of sd 0.1, and the same without."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    f = np.sin(frequency * X[:, 0])
    return X, f + 0.1 * rng.standard_normal(n), f


def standardised(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(0)) / x.std(0)


def parts(X: np.ndarray, y: np.ndarray) -> tuple[Builder, Problem, dict, ParameterSpace]:
    kernel = Mixed(sigma_u2=1 / X.shape[1])
    builder = Builder(X, Dials("exact", 1, 1, "kmeans", "random", None), choose_backend(kernel, "native"), 0)
    priors = resolve_priors("default", kernel, X.shape[1], False)
    problem = Problem(kernel, y, make_warp("none"), priors)
    start = start_values(kernel, 0.04, np.zeros(0), None)
    return builder, problem, start, ParameterSpace.of(kernel, start)


RUN = Run(OptimizerSettings("lbfgs", 100))


@pytest.mark.parametrize("frequency", [6, 8])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_fast_wave_is_not_taken_for_noise(frequency, seed):
    X, y, f = wave(frequency, 150, seed)
    model = WideGPRegressor.plain(approximation="exact", random_state=seed).fit(X, y)
    assert model.result_.converged
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.1
    assert model.params_["sigma_eps2"] < 0.1


FUNCTIONS = {
    "sin": lambda X: np.sin(6 * X[:, 0]),
    "product": lambda X: X[:, 0] * X[:, 1],
    "step": lambda X: np.sign(X[:, 0]),
    "noise": lambda X: 0 * X[:, 0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_random_start_ends_lower(name):
    """The oracle: ten descents from starts drawn over many decades."""
    rng = np.random.default_rng(3)
    X = standardised(rng.uniform(-3, 3, (80, 1 if name in ("sin", "step") else 2)))
    y = standardised(FUNCTIONS[name](X) + 0.1 * rng.standard_normal(len(X)))
    builder, problem, start, space = parts(X, y)
    with builder.backend.scope():
        found = optima(RUN, builder, problem, start, space)
        objective, _ = map_objective(Mixed(), 0.04, X, y, computation=Computation(backend="native"))
        ends = []
        for _ in range(10):
            powers = {"sigma_a2": 3, "sigma_u2": 4, "sigma_b2": 1, "sigma_v2": 2, "sigma_eps2": 0}
            drawn = {k: np.asarray(10 ** rng.uniform(-2, high)) for k, high in powers.items()}
            drawn |= {k: np.asarray(rng.uniform(0.05, 0.95)) for k in ("alpha", "w")}
            task = Task(objective, space.bounds(), len(X), 200)
            ends.append(lbfgs(task, objective.space.pack(drawn)).value)
    assert found[0].loss < min(ends) + 0.1


def test_rivals_are_distinct_and_close():
    rng = np.random.default_rng(3)
    X = standardised(rng.uniform(-3, 3, (120, 2)))
    y = standardised(X[:, 0] * X[:, 1] + 0.06 * rng.standard_normal(120))
    builder, problem, start, space = parts(X, y)
    with builder.backend.scope():
        found = optima(RUN, builder, problem, start, space)
    losses = [one.loss for one in found]
    assert losses == sorted(losses) and losses[-1] <= losses[0] + RIVAL_NATS


@pytest.mark.parametrize("frequency", [2, 6])
def test_a_row_far_out_does_not_hide_the_others(frequency):
    X, y, f = wave(frequency, 150, 0)
    X[0] = 1e4
    model = WideGPRegressor.plain(approximation="exact", random_state=0).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X[1:]) - f[1:]) ** 2)) < 0.1


@pytest.mark.parametrize("ard", [True, False], ids=["asked for", "chosen"])
def test_a_fast_wave_along_one_of_two_inputs(ard):
    """To one variance for all inputs it is noise, and no gradient leads on from there."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (100, 2))
    f = np.sin(20 * X[:, 0]) + X[:, 1]
    y = f + 0.1 * rng.standard_normal(100)
    settings = {"ard": True} if ard else {"metric": "auto"}
    model = WideGPRegressor.plain(approximation="exact", random_state=0, **settings).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 0.2
