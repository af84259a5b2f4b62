"""Reports of classes and several outputs: numbers against scikit-learn and loops, pages that load nothing."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from sklearn import metrics as sk

from widegp.held_out import HeldOut, HeldOutClasses
from widegp.report import headline, render_html, render_terminal, summarise_classes, summarise_outputs
from widegp.report.classes import confusion, roc, sets
from widegp.report.outputs import error_correlation

from .browser import Browser, find_chromium
from .conftest import HOSTILE, forecaster
from .test_html import Document

RESULT = SimpleNamespace(reason="converged", converged=True, n_iter=7, backend="native", notes=("a note",))
CURVE = {
    "name": HOSTILE[1], "kind": "number", "x": [0.0, 1.0, 2.0], "labels": None, "discrete": False, "mean": [],
}  # fmt: skip


def classes(n=300, C=3, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.arange(1, C + 1) / 2, n)
    return HeldOutClasses(np.array([rng.choice(C, p=row) for row in p]), p)


def explanation(names):
    part = {key: [0.1, 0.3, 0.5] for key in ("mean", "lower", "upper", "rows_lower", "rows_upper")}
    outputs = [part | {"output": name} for name in names]
    inputs = [{"name": HOSTILE[1], "importance": 0.4, "importance_se": 0.1, "effect": 0.5, "weight": None}]
    words = {"importance": "i", "effect": "e", "weight": "w", "band": "b"}
    curve = CURVE | outputs[0] | {"outputs": outputs}
    return {"inputs": inputs, "together": [], "partial_dependence": [curve], "words": words}


def class_summary(C=3, names=HOSTILE):
    told = {
        "target": HOSTILE[0],
        "classes": list(names[:C]),
        "rows": 600,
        "date": "2026-01-01",
        "seconds": 3.0,
    }
    told |= {"beside": {"log_loss": 0.5, "auc": 0.8, "brier": 0.2, "accuracy": 0.7}, "warnings": [HOSTILE[2]]}
    return summarise_classes(classes(C=C), told, [RESULT] * C, (), explanation(names[2 - (C == 2) : C]))


def test_curves_are_scikit_learns():
    held = classes(C=2)
    p = held.p[:, 1].round(1)  # with ties
    found = roc(held.y == 1, p)
    false, true, _ = sk.roc_curve(held.y, p, drop_intermediate=False)
    np.testing.assert_allclose(found["false"], false)
    np.testing.assert_allclose(found["true"], true)
    precision, recall, _ = sk.precision_recall_curve(held.y, p)
    np.testing.assert_allclose(found["precision"][::-1], precision[:-1])
    np.testing.assert_allclose(found["recall"][::-1], recall[:-1])


@pytest.mark.parametrize("C", [2, 3, 5])
def test_confusion_and_scores_by_class_are_scikit_learns(C):
    held = classes(C=C)
    said = held.p.argmax(axis=1)
    found = confusion(held.y, held.p)
    np.testing.assert_array_equal(found["likeliest"], sk.confusion_matrix(held.y, said))
    one = class_summary(C)["by_class"]
    precision, recall, _, rows = sk.precision_recall_fscore_support(held.y, said)
    np.testing.assert_allclose([c["precision"] for c in one], precision)
    np.testing.assert_allclose([c["recall"] for c in one], recall)
    assert [c["rows"] for c in one] == list(rows)
    if C == 2:
        best = max(
            sk.balanced_accuracy_score(held.y, held.p[:, 1] > t)
            for t in np.quantile(held.p[:, 1], np.linspace(0.01, 0.99, 99))
        )
        at = held.p[:, 1] > found["threshold"]
        assert sk.balanced_accuracy_score(held.y, at) == pytest.approx(best)
        np.testing.assert_array_equal(found["best"], sk.confusion_matrix(held.y, at))


def test_sets_hold_what_they_promise_and_their_range_of_chance_is_the_law_of_halves():
    shares, inside = [], 0
    for seed in range(40):
        one = next(row for row in sets(classes(n=200, seed=seed)) if row["promised"] == 0.9)
        shares.append(one["held"])
        inside += one["low"] <= one["held"] <= one["high"]
    # k / (c + 1) with c = 100; sets that would be empty hold one class more.
    assert np.mean(shares) >= 91 / 101 - 3 * np.std(shares) / np.sqrt(40)
    assert stats.binom.cdf(inside, 40, 0.95) > 1e-3
    assert [row["promised"] for row in sets(classes(n=30))] == [0.8, 0.9]  # too few for 95%


@pytest.mark.parametrize("C", [2, 3, 5])
def test_a_page_of_classes_is_safe_and_says_it_all(C):
    summary = class_summary(C)
    page = render_html(summary)
    document = Document(page)
    assert "script" not in {tag for tag, _ in document.tags} and "<script>alert" not in page
    text = " ".join(document.text)
    assert headline(summary) in text and ("AUC against the rest" in text)
    screen = Console(file=StringIO(), width=110)
    render_terminal(summary, screen)
    said = screen.file.getvalue()
    assert "Log loss" in said and "sets promise" in said
    assert ("[red]" in said) == (C == 5)


def output_summary():
    told = {"targets": list(HOSTILE[:2]), "rows": 600, "seconds": 3.0, "energy_score": 0.5, "warnings": []}
    held = (forecaster(200), forecaster(200, 0.5, seed=1))
    return summarise_outputs(held, told, [RESULT] * 2, (), explanation(HOSTILE[:2]))


def test_a_page_of_outputs_is_safe_and_names_what_is_off():
    summary = output_summary()
    assert summary["outputs"][0]["scores"]["rmse"] == pytest.approx(forecaster(200).scores()["rmse"])
    page = render_html(summary)
    document = Document(page)
    assert "script" not in {tag for tag, _ in document.tags}
    text = " ".join(document.text)
    assert "but for" in text and "Energy score" in text and "Correlation of the standardised errors" in text
    screen = Console(file=StringIO(), width=110)
    render_terminal(summary, screen)
    assert "range of chance" in screen.file.getvalue()


def test_correlation_of_errors_is_that_of_the_draws():
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], 400)
    zeros, ones = np.zeros(400), np.ones(400)
    held = [
        HeldOut(y=one, mean=zeros, sd=ones, lower=-ones, upper=ones, pit=stats.norm.cdf(one),
                log_density=zeros, level=0.95, crps=zeros, train_sd=1.0)
        for one in z.T
    ]  # fmt: skip
    np.testing.assert_allclose(error_correlation(held), np.corrcoef(z.T), atol=1e-9)


@pytest.mark.skipif(find_chromium() is None, reason="there is no chromium executable on the path")
def test_a_browser_shows_both_without_error_request_or_overflow(tmp_path):
    with Browser(find_chromium(), tmp_path / "profile") as browser:
        for name, summary in (("classes", class_summary(5)), ("outputs", output_summary())):
            path = tmp_path / f"{name}.html"
            path.write_text(render_html(summary), encoding="utf-8")
            for width in (1400, 375):
                browser.open(path, width)
                assert browser.messages() == []
                assert [u for u in browser.requests() if not u.startswith("data:")] == [path.as_uri()]
                assert browser.evaluate("document.documentElement.scrollWidth") <= width
