"""Targets of two values and counts on the command line: what is fitted, written and said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from cli.commands import QUICK, run, run_json

from widegp import metrics
from widegp.compare import CLASS_BASELINES
from widegp.table_model import TableModel


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2))
    f = 2 * X[:, 0] + X[:, 1]
    came = np.where(rng.random(160) < 1 / (1 + np.exp(-f)), "yes", "no")
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "came": came, "visits": rng.poisson(np.exp(1 + f / 4))})
    path = tmp_path_factory.mktemp("classes") / "t.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(table):
    out = table.parent / "m.widegp"
    fit = ["fit", table, "--target", "came", "--drop", "visits", "--out", out, "--test-fraction", 0.3, *QUICK]
    result = run(*fit)
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "'came' has two values, no and yes: classes" in said and "Log loss" in said
    return out


def test_the_saved_model_holds_probabilities_and_their_scores(model):
    saved = TableModel.load(model)
    assert saved.classes == ("no", "yes") and saved.regressor.likelihood == "logit"
    y, p = saved.held_out.y, saved.held_out.mean
    assert set(y) == {0.0, 1.0} and np.all((p > 0) & (p < 1))
    assert saved.held_out.scores()["nll"] == pytest.approx(metrics.log_loss(y, p), rel=1e-8)
    assert saved.provenance["beside"]["log_loss_model"] == pytest.approx(metrics.log_loss(y, p), rel=1e-6)


def test_predictions_name_the_class_and_its_probability(table, model):
    out = table.parent / "p.csv"
    assert run("predict", model, table, "--out", out).exit_code == 0
    written, frame = pd.read_csv(out), pd.read_csv(table)
    assert list(written.columns) == [*frame.columns, "class", "probability", "outside"]
    assert ((written["probability"] > 0.5) == (written["class"] == "yes")).all()
    loaded = TableModel.load(model)
    np.testing.assert_allclose(written["probability"], loaded.predict(frame), rtol=1e-12)
    assert loaded.score(frame) == pytest.approx(np.mean(written["class"] == frame["came"]))


def test_the_page_shows_calibration_roc_and_confusion(model):
    page = model.parent / "r.html"
    assert run("report", model, "--out", page).exit_code == 0
    text = page.read_text()
    for words in ("share that came", "true positive rate", "precision", "Log loss", "recognised"):
        assert words in text


def test_compare_has_the_usual_classifiers(table):
    told = run_json("compare", table, "--target", "came", "--drop", "visits", "--test-fraction", 0.3, *QUICK)
    assert [row["model"] for row in told["models"]] == [*CLASS_BASELINES, "widegp"]
    by_name = {row["model"]: row for row in told["models"]}
    assert by_name["share"]["auc"] == 0.5
    assert by_name["widegp"]["log_loss"] < by_name["share"]["log_loss"]


def test_counts_are_hinted_at_and_fitted_when_asked(table):
    out = table.parent / "n.widegp"
    fit = ["fit", table, "--target", "visits", "--drop", "came", "--out", out, "--test-fraction", 0.3, *QUICK]
    assert "--likelihood negative-binomial" in " ".join(run(*fit, "--plain").stdout.split())
    assert run(*fit, "--likelihood", "negative-binomial").exit_code == 0
    saved = TableModel.load(out)
    assert saved.regressor.params_["dispersion"] > 0
    found = saved.provenance["rootogram"]
    assert sum(found["observed"]) == len(saved.held_out)
    assert sum(found["expected"]) == pytest.approx(len(saved.held_out), rel=0.1)
    page = table.parent / "n.html"
    assert run("report", out, "--out", page).exit_code == 0
    assert "square root of rows" in page.read_text()


def test_several_targets_are_refused(table):
    result = run("fit", table, "--target", "a", "--target", "b", "--out", table.parent / "x.widegp")
    assert result.exit_code == 2 and "'a' and 'b' are 2 targets" in " ".join(result.stderr.split())
