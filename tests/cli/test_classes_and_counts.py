"""Classes, counts and several outputs on the command line: what is fitted, written and said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from cli.commands import QUICK, run, run_json
from rich.console import Console
from scipy import stats
from sklearn import metrics as sk

import widegp
from widegp.cli.output import summary_of
from widegp.compare_targets import CLASS_BASELINES, COUNT_BASELINES
from widegp.report import render_terminal
from widegp.table_model import TableModel

HELD = ("--test-fraction", 0.3, "--plain", *QUICK)


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


def test_the_saved_model_is_a_classifier_with_its_scores(model):
    saved = TableModel.load(model)
    assert saved.classes == ("no", "yes") and list(widegp.load(model).classes_) == ["no", "yes"]
    y, p = saved.held_out.y, saved.held_out.p
    assert set(y) == {0, 1} and np.all((p > 0) & (p < 1))
    assert saved.held_out.scores()["log_loss"] == pytest.approx(sk.log_loss(y, p))
    assert saved.provenance["beside"]["log_loss_model"] == pytest.approx(sk.log_loss(y, p))
    with pytest.raises(ValueError, match="predict_proba"):
        saved.predict_distribution(pd.DataFrame({"a": [0.0], "b": [0.0]}))


def test_predictions_name_the_class_all_probabilities_and_a_set(table, model):
    out = table.parent / "p.csv"
    assert run("predict", model, table, "--out", out, "--level", 0.8).exit_code == 0
    written, frame = pd.read_csv(out), pd.read_csv(table)
    new = ["class", "probability_no", "probability_yes", "set", "outside"]
    assert list(written.columns) == [*frame.columns, *new]
    assert ((written["probability_yes"] > 0.5) == (written["class"] == "yes")).all()
    loaded = TableModel.load(model)
    np.testing.assert_allclose(written[new[1:3]], loaded.predict_proba(frame), rtol=1e-12)
    assert loaded.score(frame) == pytest.approx(np.mean(written["class"] == frame["came"]))
    # k = ceil(49 x 0.8) of the 48 held-out scores 1 - p decides.
    scores = np.sort(1 - loaded.held_out.p[np.arange(48), loaded.held_out.y])
    both = np.all(1 - loaded.predict_proba(frame) <= scores[39], axis=1)
    assert ((written["set"] == "no|yes") == both).all()


def test_the_page_shows_calibration_roc_confusion_sets_and_effects(model):
    page = model.parent / "r.html"
    assert run("report", model, "--out", page).exit_code == 0
    text = page.read_text()
    for words in (
        "share that came", "true positive rate", "precision", "Log loss", "recognised", "sets promise",
        "What drives the prediction", "Mean probability of yes along a", "predicted from a probability",
    ):  # fmt: skip
        assert words in text


def test_explain_speaks_of_probabilities(model):
    told = run_json("explain", model)
    assert told["inputs"][0]["name"] == "a" and "log loss" in told["words"]["importance"]
    curve = told["partial_dependence"][0]
    assert curve["output"] == "yes" and 0 <= curve["mean"][0] < curve["mean"][-1] <= 1
    entropy = np.mean(told["inputs"][0]["log_loss_rise"]) / told["inputs"][0]["importance"]
    assert 0.5 < entropy <= np.log(2)
    said = " ".join(run("explain", model).stdout.split())
    assert "What drives came" in said and "yes" in said


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
    # Randomised, the probabilities of counts are uniform where the model is right.
    assert stats.kstest(saved.held_out.pit, "uniform").pvalue > 0.01
    told = run_json("explain", out)
    assert told["partial_dependence"][0]["mean"][-1] > told["partial_dependence"][0]["mean"][0] > 0
    written = table.parent / "n.csv"
    assert run("predict", out, table, "--out", written).exit_code == 0
    rows = pd.read_csv(written)
    assert (rows["lower"] == rows["lower"].round()).all() and (rows["upper"] >= rows["mean"]).all()


def test_compare_of_counts_has_poisson_models(table):
    fixed = ["--target", "visits", "--drop", "came", "--likelihood", "poisson", *HELD]
    told = run_json("compare", table, *fixed)
    assert [row["model"] for row in told["models"]] == [*COUNT_BASELINES, "widegp"]
    by_name = {row["model"]: row for row in told["models"]}
    assert by_name["widegp"]["deviance"] < by_name["mean"]["deviance"]
    assert 0 < by_name["Poisson regression"]["log_score"] < by_name["mean"]["log_score"]
    assert "log score" in run("compare", table, *fixed).stdout


class TestSeveralClasses:
    @pytest.fixture(scope="class")
    @classmethod
    def table(cls, tmp_path_factory):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(120, 2))
        f = 2 * np.column_stack([X[:, 0], X[:, 1], -X.sum(1)])
        kind = np.array(["ant", "bee <b>", "cat"])[np.argmax(f + rng.gumbel(size=f.shape), axis=1)]
        path = tmp_path_factory.mktemp("several") / "t.csv"
        pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": kind}).to_csv(path, index=False)
        return path

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, table):
        out = table.parent / "m.widegp"
        result = run("fit", table, "--target", "kind", "--out", out, *HELD)
        assert result.exit_code == 0, result.stderr
        assert "'kind' has 3 classes: ant, bee <b>, cat" in " ".join(result.stdout.split())
        return out

    def test_is_saved_scored_and_predicted(self, table, model):
        saved, frame = TableModel.load(model), pd.read_csv(table)
        y, p = saved.held_out.y, saved.held_out.p
        assert p.shape == (36, 3) and sk.log_loss(y, p) < sk.log_loss(y, np.tile(p.mean(0), (36, 1)))
        out = table.parent / "p.parquet"
        assert run("predict", model, table, "--out", out).exit_code == 0
        written = pd.read_parquet(out)
        new = [f"probability_{name}" for name in saved.classes]
        np.testing.assert_allclose(written[new].sum(axis=1), 1)
        np.testing.assert_array_equal(written["class"], saved.predict(frame))
        assert set("|".join(written["set"]).split("|")) == set(saved.classes)
        assert all(one in held for one, held in zip(written["class"], written["set"], strict=True))

    def test_report_explain_and_compare(self, table, model):
        page = model.parent / "r.html"
        assert run("report", model, "--out", page).exit_code == 0
        text = page.read_text()
        assert "bee &lt;b&gt;" in text and "bee <b>" not in text and "AUC against the rest" in text
        told = run_json("explain", model, table)
        assert {curve["output"] for curve in told["partial_dependence"][0]["outputs"]} == set(
            TableModel.load(model).classes
        )
        rows = run_json("compare", table, "--target", "kind", *HELD)["models"]
        assert rows[-1]["model"] == "widegp" and rows[-1]["log_loss"] < rows[0]["log_loss"]


class TestSeveralOutputs:
    @pytest.fixture(scope="class")
    @classmethod
    def table(cls, tmp_path_factory):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(110, 2))
        u = np.sin(X[:, 0]) + 0.1 * rng.normal(size=110)
        v = 100 * (X[:, 1] + 0.3 * rng.normal(size=110))
        path = tmp_path_factory.mktemp("outputs") / "t.csv"
        frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "u": u, "v": v})
        frame.loc[5, "v"] = np.nan
        frame.to_csv(path, index=False)
        return path

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, table):
        out = table.parent / "m.widegp"
        fit = [
            "fit",
            table,
            "--target",
            "u",
            "--target",
            "v",
            "--out",
            out,
            "--test-fraction",
            0.3,
            "--plain",
        ]
        result = run(*fit, *QUICK)
        assert result.exit_code == 0, result.stderr
        said = " ".join(result.stdout.split())
        assert "2 outputs" in said and "The model explains" in said
        return out

    def test_is_saved_scored_and_predicted(self, table, model):
        saved, frame = TableModel.load(model), pd.read_csv(table)
        assert [one.name for one in saved.encoder.columns if one.features()] == ["a", "b"]
        assert len(saved.held_out) == 2 and len(saved.held_out[0]) == 32  # of 109 rows with both
        out = table.parent / "p.csv"
        assert run("predict", model, table, "--out", out, "--level", 0.8).exit_code == 0
        written = pd.read_csv(out)
        new = [f"{name}_{key}" for name in "uv" for key in ("mean", "sd", "lower", "upper")]
        assert list(written.columns) == [*frame.columns, *new, "outside"]
        np.testing.assert_allclose(written[["u_mean", "v_mean"]], saved.predict(frame), rtol=1e-12)
        half = 1.2815515655446004 * written["v_sd"]
        np.testing.assert_allclose(written["v_upper"] - written["v_mean"], half, rtol=1e-6)
        both = frame.dropna()
        want = sk.r2_score(both[["u", "v"]], saved.predict(both))
        assert saved.score(frame) == pytest.approx(want)

    def test_report_explain_and_compare(self, table, model):
        page = model.parent / "r.html"
        assert run("report", model, "--out", page).exit_code == 0
        text = page.read_text()
        assert "Correlation of the standardised errors" in text and "Mean prediction of v along b" in text
        told = run_json("explain", model)
        first = told["partial_dependence"][0]
        assert [one["output"] for one in first["outputs"]] == ["u", "v"]
        rows = run_json("compare", table, "--target", "u", "--target", "v", *HELD)
        own = [row for row in rows["models"] if row["model"] == "widegp"]
        assert [row["output"] for row in own] == ["u", "v"] and own[0]["rmse"] < own[1]["rmse"]

    def test_what_cannot_be_is_said(self, table):
        out = table.parent / "x.widegp"
        for targets, words in ((["u", "u"], "named twice"), (["u", "w"], "no target 'w'")):
            asked = [part for name in targets for part in ("--target", name)]
            result = run("fit", table, *asked, "--out", out)
            assert result.exit_code != 0 and words in " ".join(result.stderr.split())


def test_the_screen_says_which_columns_matter_and_more_where_asked(model):
    summary = summary_of(TableModel.load(model)) | {"notes": ["A note of the fit."]}
    screens = []
    for verbose in (False, True):
        render_terminal(summary, console := Console(record=True, width=300), verbose)
        screens.append(console.export_text())
    assert all("What matters most: a (" in screen for screen in screens)
    assert ["A note of the fit." in screen for screen in screens] == [False, True]
