"""What the commands do when all is well: files, numbers, JSON, help."""

from __future__ import annotations

import ast
import errno
import inspect
import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import typer
from cli.commands import QUICK, houses, run, run_json
from rich.console import Console
from scipy import stats

import widegp
from widegp import WideGPRegressor, anchors, cli, kernels, likelihoods, warps
from widegp.approximations.registry import APPROXIMATIONS as NAMES
from widegp.cli import options
from widegp.cli.app import COMMANDS
from widegp.cli.compare import compare
from widegp.cli.display import FitDisplay, clock
from widegp.cli.fit import fit
from widegp.persist import ModelFileError
from widegp.progress import Progress
from widegp.table_model import TableModel


class TestFit:
    def test_it_prints_scores_and_parameters_and_where_the_model_is(self, table, tmp_path):
        out = tmp_path / "m.widegp"
        fit = ["fit", table, "--target", "price", "--out", out, "--test-fraction", 0.4, *QUICK]
        result = run(*fit, "--verbose")
        assert result.exit_code == 0 and result.stderr == ""
        said = " ".join(result.stdout.split())
        for words in ("held-out rows", "rmse", "range of chance", "sigma_eps2", "std. error"):
            assert words in said
        assert "predictions from all 80 rows" in said
        assert "honest" not in said and "rmse of gradient boosting" in said
        assert str(out) in result.stdout.replace("\n", "")
        assert "\nLeft out: id (48 texts, all different: an identifier, it seems).\n" in result.stdout
        assert os.listdir(tmp_path) == ["m.widegp"]
        shorter = run(*fit, "--no-yardstick").stdout
        assert "sigma_eps2" not in shorter and "boosting" not in shorter and "rmse" in shorter
        assert TableModel.load(out).provenance["yardstick"] is None

    def test_json_has_the_scores_of_the_saved_model(self, table, tmp_path):
        out = tmp_path / "m.widegp"
        told = run_json("fit", table, "--target", "price", "--out", out, "--test-fraction", 0.4, *QUICK)
        saved = TableModel.load(out)
        assert told["scores"]["rmse"] == pytest.approx(saved.held_out.scores()["rmse"])
        assert told["yardstick"]["rmse_model"] == pytest.approx(told["scores"]["rmse"])
        assert told["yardstick"]["rmse"] == saved.provenance["yardstick"]["rmse"]
        assert len(told["notices"]) == len(told["warnings"])
        assert told["provenance"]["rows"] == 48 and told["provenance"]["rows_held_out"] == 32
        values = {entry["name"]: entry["value"] for entry in told["parameters"]}
        assert values["w"] == saved.regressor.params_["w"]

    def test_settings_reach_the_regressor(self, table, tmp_path):
        out = tmp_path / "m.widegp"
        extra = ["--approximation", "full-scale", "--rank", 7, "--neighbors", 3, "--predict-neighbors", 5]
        extra += ["--anchors", "random", "--ard", "--transform", "sqrt", "--budget", "2m", "--seed", 4]
        extra += ["--backend", "native", "--test-fraction", 0.25, "--drop", "id", "--drop", "built"]
        assert run("fit", table, "--target", "price", "--out", out, *extra).exit_code == 0
        model = TableModel.load(out)
        expected = {
            "approximation": "full-scale", "rank": 7, "neighbors": 3, "predict_neighbors": 5, "ard": True,
            "anchors": "random", "target_transform": "sqrt", "random_state": 4,
            "backend": "native",
        }  # fmt: skip
        assert expected.items() <= model.regressor.get_params().items()
        # The rest of the command has its share.
        assert 60 < model.regressor.budget < 120
        assert len(model.held_out) == 20 and len(model.regressor.anchors_) <= 7
        assert not any(name.startswith(("id", "built")) for name in model.encoder.feature_names)

    def test_no_row_held_out(self, table, tmp_path):
        out = tmp_path / "m.widegp"
        arguments = ["fit", table, "--target", "price", "--out", out, "--test-fraction", 0, *QUICK]
        assert run_json(*arguments)["scores"] is None
        assert "no scores" in run(*arguments).stdout
        result = run("report", out, "--out", tmp_path / "r.html")
        assert result.exit_code == 2 and "--test-fraction" in result.stderr

    def test_defaults_and_choices_are_those_of_the_regressor(self):
        own = {name: p.default for name, p in inspect.signature(WideGPRegressor).parameters.items()}
        for command in (fit, compare):
            for name, parameter in inspect.signature(command).parameters.items():
                # The command looks at the target first.
                if name in own and name != "likelihood":
                    assert parameter.default == own[name], name
        assert set(get_args(options.AnchorRule)) == set(anchors.RULES)
        assert set(get_args(options.Transform)) == {"auto", *warps.NAMES}

    @pytest.mark.parametrize(
        ("refuse", "names"),
        [
            (options.kernel_name, kernels.NAMES),
            (options.approximation_name, NAMES),
            (options.likelihood_name, likelihoods.NAMES),
        ],
    )
    def test_names_are_those_of_the_registries(self, refuse, names):
        assert all(refuse(name) == name for name in ("auto", *names))
        with pytest.raises(typer.BadParameter, match=f"no .* 'mixt'; choose one of auto, {', '.join(names)}"):
            refuse("mixt")

    @pytest.mark.parametrize(
        ("text", "value"), [("90s", 90), ("1.5m", 90), ("2 h", 7200), ("3min", 180)]
    )
    def test_times(self, text, value):
        assert options.seconds(text) == value


class TestPredict:
    @pytest.fixture
    def expected(self, model):
        """Predictions by the regressor alone, from features written by hand."""
        loaded, frame = TableModel.load(model), houses()
        X = np.column_stack([self.feature(name, frame) for name in loaded.encoder.feature_names])
        mean, sd = loaded.regressor.predict(X, return_std=True)
        lower, upper = loaded.regressor.predict_interval(X, level=0.8)
        return pd.DataFrame({"mean": mean, "sd": sd, "lower": lower, "upper": upper})

    @staticmethod
    def feature(name, frame):
        if name.startswith("city="):
            return (frame["city"] == name.removeprefix("city=")).astype(float)
        order = np.random.default_rng(0).permutation(80)[32:]
        if name == "size":
            return frame["size"].fillna(frame["size"].iloc[order].median())
        if name == "size (missing)":
            return frame["size"].isna().astype(float)
        if name == "rooms":
            return frame["rooms"].astype(float)
        when = pd.to_datetime(frame["built"])
        if name == "built (days)":
            return (when - when.iloc[order].min()).dt.days
        angle = 2 * np.pi * (when.dt.day_of_year - 1) / 365.25
        return {"built (sine of year)": np.sin, "built (cosine of year)": np.cos}[name](angle)

    def test_words_among_numbers_that_the_model_does_not_read_may_come_in_any_batch(
        self, model, tmp_path, monkeypatch
    ):
        frame = houses().astype({"price": object})
        frame.loc[70, "price"] = "pending"
        frame.to_csv(tmp_path / "new.csv", index=False)
        monkeypatch.setattr("widegp.cli.predict._batch_rows", lambda *_: 30)
        result = run("predict", model, tmp_path / "new.csv", "--out", tmp_path / "out.parquet")
        assert result.exit_code == 0, result.stderr
        assert pd.read_parquet(tmp_path / "out.parquet")["price"][70] == "pending"

    @pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
    def test_rows_keep_their_cells_and_get_the_regressors_numbers(
        self, ending, model, table, expected, tmp_path
    ):
        out = tmp_path / f"p.{ending}"
        result = run("predict", model, table, "--out", out, "--level", 0.8)
        assert result.exit_code == 0 and "80 rows" in result.stdout
        frame = houses()
        if ending == "parquet":
            found = pq.read_table(out).to_pandas()
            assert found["size"].dtype == float and found["price"].dtype == float
        else:
            found = pd.read_csv(out, sep="," if ending == "csv" else "\t", dtype={"id": str})
        assert list(found.columns) == [*frame.columns, "mean", "sd", "lower", "upper", "outside"]
        assert found["outside"].dtype == bool
        pd.testing.assert_frame_equal(found[list(frame.columns)], frame, check_dtype=False)
        np.testing.assert_allclose(found[list(expected)], expected, rtol=1e-9)

    def test_text_passes_through_a_csv_unchanged(self, model, table, tmp_path):
        run("predict", model, table, "--out", tmp_path / "p.csv")
        lines = (tmp_path / "p.csv").read_text().splitlines()
        for before, after in zip(table.read_text().splitlines(), lines, strict=True):
            assert after.startswith(f"{before},")

    def test_batches_do_not_matter(self, model, table, tmp_path, monkeypatch):
        run("predict", model, table, "--out", tmp_path / "whole.csv")
        monkeypatch.setattr("widegp.cli.predict.BATCH_ROWS", 7)
        run("predict", model, table, "--out", tmp_path / "parts.csv")
        whole, parts = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("whole", "parts"))
        pd.testing.assert_frame_equal(whole, parts, rtol=1e-9)

    def test_odd_values_are_warned_of_with_their_number(self, model, tmp_path):
        frame = houses().assign(size=1000.0, extra=1)
        frame.loc[:2, "city"] = "Dole"
        frame.to_csv(tmp_path / "t.csv", index=False)
        told = run_json(
            "predict", model, tmp_path / "t.csv", "--out", tmp_path / "p.csv", "--prefix", "price_"
        )
        assert told["rows"] == 80 and told["columns"][0] == "price_mean"
        said = " ".join(told["warnings"])
        assert (
            "3 values of 'city' not seen" in said
            and "80 values of 'size' outside" in said
            and "'extra'" in said
        )
        result = run("predict", model, tmp_path / "t.csv", "--out", tmp_path / "p.csv")
        assert result.stderr.count("Warning: ") == len(told["warnings"]) + 1
        assert told["outside"] == 80 and "80 of 80 rows lie outside the training range" in result.stderr

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")],
                             ids=["interrupt", "full"])  # fmt: skip
    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_nothing_half_written_remains(self, error, ending, model, table, tmp_path, monkeypatch):
        out = tmp_path / f"p.{ending}"
        out.write_bytes(b"old")

        def fail(*_):
            raise error

        monkeypatch.setattr(os, "fsync", fail)
        result = run("predict", model, table, "--out", out)
        assert result.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 2)
        assert result.stderr.count("\n") == 1
        assert out.read_bytes() == b"old" and os.listdir(tmp_path) == [out.name]

    def test_another_backend(self, model, table, tmp_path):
        for backend in ("native", "xla"):
            run("predict", model, table, "--out", tmp_path / f"{backend}.csv", "--backend", backend)
        native, xla = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("native", "xla"))
        pd.testing.assert_frame_equal(native, xla, rtol=1e-7)

    def test_neighbours_can_be_chosen_when_predicting(self, table, tmp_path):
        """The fit itself does not depend on them, so a model fitted with five predicts the same."""
        fit = ["fit", table, "--target", "price", "--approximation", "vecchia", "--neighbors", 3, "--plain"]
        for count in (40, 5):
            run(*fit, "--predict-neighbors", count, "--out", tmp_path / f"m{count}")
        run("predict", tmp_path / "m5", table, "--out", tmp_path / "fitted.csv")
        run("predict", tmp_path / "m40", table, "--out", tmp_path / "all.csv")
        run("predict", tmp_path / "m40", table, "--out", tmp_path / "chosen.csv", "--predict-neighbors", 5)
        fitted, everything, chosen = (pd.read_csv(tmp_path / f"{n}.csv") for n in ("fitted", "all", "chosen"))
        pd.testing.assert_frame_equal(fitted, chosen, rtol=1e-9)
        assert not np.allclose(everything["mean"], chosen["mean"], rtol=1e-9)


class TestDisplay:
    def shown(self, **settings):
        screen = Console(file=io.StringIO(), width=100, **settings)
        with FitDisplay(screen, budget=60.0) as display:
            values = {"w": np.array(0.25), "sigma_u2": np.array([1.0, 3.0])}
            display.update(Progress("fit", 7, 1234.5, values))
        return screen.file.getvalue()

    def test_a_terminal_shows_how_far_the_fit_is(self):
        shown = self.shown(force_terminal=True)
        for words in ("fit", "7", "1,234.500", "w 0.25", "sigma_u2 2", "0:00", "left"):
            assert words in shown

    def test_elsewhere_it_is_silent(self):
        assert self.shown(force_terminal=False) == ""

    @pytest.mark.parametrize(("seconds", "text"), [(5, "0:05"), (65.9, "1:05"), (3725, "1:02:05")])
    def test_clock(self, seconds, text):
        assert clock(seconds) == text


class TestOthers:
    def test_report(self, model, tmp_path):
        told = run_json("report", model, "--out", tmp_path / "r.html")
        page = (tmp_path / "r.html").read_text()
        assert told["bytes"] == len(page.encode()) and page.startswith("<!DOCTYPE html>")
        assert "price" in page and told["verdict"]["headline"].split(",")[0] in page

    def test_explain_finds_what_drives_the_price(self, model, table):
        for rows in ([], [table]):
            told = run_json("explain", model, *rows)
            assert told["inputs"][0]["name"] == "size" and told["target"] == "price"
        shown = run("explain", model)
        assert shown.exit_code == 0 and "What drives price" in shown.stdout
        assert "held out when fitting" in " ".join(shown.stdout.split())
        assert "Prior variance" not in shown.stdout
        assert "Prior variance by part" in run("explain", model, "--verbose").stdout

    def test_explain_says_what_its_rows_can_tell(self, model, table, tmp_path):
        """Rows of the fit, rows without the target, and a file of an earlier version, which keeps none."""
        assert "fitted on" in run_json("explain", model, table)["basis"]
        old = TableModel.load(model)
        replace(old, study=None).save(tmp_path / "old.widegp")
        told = run_json("explain", tmp_path / "old.widegp")
        assert "no importance" in told["basis"] and told["inputs"][0]["importance"] is None
        assert told["inputs"][0]["name"] == "size" and told["inputs"][0]["effect"] > 0

    def test_compare(self, table):
        told = run_json("compare", table, "--target", "price", "--test-fraction", 0.4, *QUICK)
        models = {entry["model"]: entry for entry in told["models"]}
        assert models["widegp"]["rmse"] < models["mean"]["rmse"]
        assert all(m["seconds"] > 0 for m in models.values())
        # An interval of this level holds so many of the held-out rows, but for one split in a thousand.
        rows, level = told["rows_held_out"], told["level"]
        fewest, most = stats.binom.interval(0.999, rows, level)
        assert fewest <= round(models["widegp"]["coverage"] * rows) <= most
        shown = run("compare", table, "--target", "price", "--test-fraction", 0.4, *QUICK)
        assert all(name in " ".join(shown.stdout.split()) for name in ("widegp", "linear regression", "CRPS"))


class TestHelp:
    @pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
    def test_every_command_has_help_with_examples_and_json(self, command):
        result = run(command.__name__, "--help")
        assert result.exit_code == 0
        assert (
            f"widegp {command.__name__} " in result.stdout.split("Examples:")[1] and "--json" in result.stdout
        )

    def test_alone_it_lists_the_commands(self):
        for arguments in ([], ["--help"], ["-h"]):
            result = run(*arguments)
            assert result.exit_code == 0
            assert all(f"\n  {command.__name__} " in result.stdout for command in COMMANDS)

    def test_version(self):
        assert run("--version").stdout == f"widegp {widegp.__version__}\n"

    def test_files_of_commands_import_nothing_heavy(self):
        for path in Path(cli.__file__).parent.glob("*.py"):
            for node in ast.parse(path.read_text()).body:
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    light = name.split(".")[0] in (*sys.stdlib_module_names, "typer")
                    assert light or name.startswith("widegp.cli"), (path.name, name)

    def test_a_traceback_for_those_who_ask(self, tmp_path, monkeypatch):
        monkeypatch.setenv("WIDEGP_TRACEBACK", "1")
        (tmp_path / "empty").touch()
        assert isinstance(run("explain", tmp_path / "empty").exception, ModelFileError)

    def test_a_bug_is_not_hidden(self, model, monkeypatch):
        def fail(*_, **__):
            raise RuntimeError("a bug")

        monkeypatch.setattr(TableModel, "load", fail)
        result = run("explain", model)
        assert result.exit_code == 1 and isinstance(result.exception, RuntimeError)


def test_a_full_stdout_is_an_error_and_a_closed_one_is_not():
    command = [sys.executable, "-m", "widegp.cli", "--help"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2 and result.stderr.count("\n") == 1 and "No space left" in result.stderr
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_path_that_does_not_exist_is_found_before_libraries_are_loaded():
    """NumPy stands for all of them."""
    commands = ("fit", "predict", "report", "explain", "compare", "identify")
    code = f"""
import sys
from widegp.cli.app import app
for command in {commands}:
    try:
        app([command, "absent"])
    except SystemExit as end:
        print(end.code, "numpy" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "2 False\n" * len(commands)
    assert result.stderr.count("absent does not exist; check the path.\n") == len(commands)


def test_a_table_saved_by_a_german_spreadsheet_goes_through_every_command(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["Nr;Größe;Preis;Verkauft;Ort"]
    for i, size in enumerate(rng.uniform(20, 200, 60)):
        price = f"{1000 + 30 * size:,.2f}".translate(str.maketrans(",.", ".,"))
        sold, where = f"{i % 28 + 1:02d}.{i % 12 + 1:02d}.2019", rng.choice(["Köln", "Bonn", "-"])
        lines.append(f"{i + 1};{size:.1f}".replace(".", ",") + f";{price} €;{sold};{where}")
    lines[7] = "7;50,5;;01.01.2019;Köln"
    (tmp_path / "h.csv").write_bytes("\r\n".join(lines).encode("cp1252"))
    read = ["--encoding", "cp1252"]
    fit = ["fit", tmp_path / "h.csv", "--target", "Preis", "--out", tmp_path / "m", *QUICK, *read]
    told = run(*fit)
    assert told.exit_code == 0, told.stderr
    said = " ".join(told.stdout.split())
    assert "1 row without the target 'Preis' left out" in " ".join((told.stdout + told.stderr).split())
    assert "Left out: Nr (whole numbers, all different, under the name of an identifier)." in said
    assert "Verkauft (written like '01.01.2019', read as 2019-01-01)" in said
    predict = ["predict", tmp_path / "m", tmp_path / "h.csv", "--out", tmp_path / "p.parquet", *read]
    explain = ["explain", tmp_path / "m", tmp_path / "h.csv", *read]
    for arguments in (predict, ["report", tmp_path / "m", "--out", tmp_path / "r.html"], explain):
        result = run(*arguments)
        assert result.exit_code == 0, result.stderr
    frame = pq.read_table(tmp_path / "p.parquet").to_pandas()
    assert frame["Größe"].between(20, 200).all() and len(frame) == 60
    assert np.corrcoef(frame["mean"], frame["Größe"])[0, 1] > 0.9
