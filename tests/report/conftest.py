"""A small fit with names that no page should trust."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

from widegp import WideGPRegressor
from widegp.explain import explain
from widegp.held_out import HeldOut
from widegp.report import render_html, summarise

HOSTILE = (
    "<script>alert('x')</script>",
    '"><img src=https://example.org/x.png onerror=alert(1)>',
    r"$\frac{1}{ <b>&amp;</b>",
    "[red]not markup[/red]",
    "\u202edesrever\x00" + "very long " * 30 + "end",
)


def draw(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(HOSTILE)))
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.5 * X[:, 2] + 0.3 * rng.normal(size=n)


def forecaster(n, factor=1.0, seed=0, noise=1.0):
    """Predicts N(mean, factor^2 noise^2) where the truth is N(mean, noise^2); mean has sd 3.

    ``noise`` may be a function of the mean, which the forecaster does not know: it predicts sd ``factor``.
    """
    rng = np.random.default_rng(seed)
    mean = 3 * rng.normal(size=n)
    y = mean + (noise(mean) if callable(noise) else noise) * rng.normal(size=n)
    sd = np.broadcast_to(factor * (1.0 if callable(noise) else noise), n).copy()
    d = stats.norm(mean, sd)
    lower, upper = d.interval(0.95)
    return HeldOut(
        y=y, mean=mean, sd=sd, lower=lower, upper=upper, pit=d.cdf(y), log_density=d.logpdf(y), level=0.95,
        crps=np.abs(y - mean), train_sd=3.0,
    )  # fmt: skip


@pytest.fixture(scope="session")
def model():
    X, y = draw(150, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"target_transform": "sinh-arcsinh", "max_iter": 15, "random_state": 0}
        return WideGPRegressor.plain(approximation="exact", ard=True, **settings).fit(X, y)


@pytest.fixture(scope="session")
def held_out(model):
    return HeldOut.of(model, *draw(300, 1))


@pytest.fixture(scope="session")
def parts(model, held_out):
    """The arguments of `summarise`."""
    X, _ = draw(60, 2)
    columns = [
        {"name": name, "kind": "numeric", "missing": j, "levels": None, "min": -3.0, "max": 3.0, "note": name}
        for j, name in enumerate(HOSTILE)
    ]
    provenance = {
        "target": HOSTILE[0], "rows": 150, "command": f"widegp fit {HOSTILE[1]}", "seed": 0,
        "sha256": "ab" * 32, "versions": {"widegp": "0.1.0"}, "peak_memory": 3 * 2**20,
        "warnings": [f"3 values of '{HOSTILE[1]}'"],
    }  # fmt: skip
    return (model, held_out, columns, provenance), {"explanation": explain(model, X, HOSTILE, top=3)}


@pytest.fixture(scope="session")
def summary(parts):
    return summarise(*parts[0], **parts[1])


@pytest.fixture(scope="session")
def page(summary):
    return render_html(summary)
