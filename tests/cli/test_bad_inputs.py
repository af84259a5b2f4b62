"""Whatever is wrong with files and options: exit code 2, one sentence on stderr, and no file written."""

from __future__ import annotations

import gzip
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli.commands import QUICK, houses, run, without_rights

from widegp import WideGPRegressor, persist


def snapshot(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def refused(folder: Path, *arguments: object) -> str:
    """The sentence with which a command is refused."""
    before = snapshot(folder)
    result = run(*arguments)
    assert result.exit_code == 2, (result.exit_code, result.exception, result.output)
    assert result.stdout == ""
    assert re.fullmatch(r"Error: [^\n]+\n", result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    assert snapshot(folder) == before
    return result.stderr


def csv(**columns: object) -> bytes:
    """Twelve rows of x, y and z, with columns replaced; None leaves one out."""
    rng = np.random.default_rng(0)
    whole = {"x": rng.normal(size=12), "z": rng.normal(size=12), "y": rng.normal(size=12)} | columns
    frame = pd.DataFrame({name: values for name, values in whole.items() if values is not None})
    return frame.to_csv(index=False).encode()


def cells(value: object, n: int = 12, at: int = 7) -> list[object]:
    """Different numbers but for one cell."""
    return [value if i == at else i + 0.5 for i in range(n)]


def whole(**seeds: int) -> dict[str, object]:
    """Columns of whole numbers, which say nothing about decimal marks."""
    return {name: np.random.default_rng(seed).integers(0, 99, 12) for name, seed in seeds.items()}


TABLES = {
    "empty": (b"", "is empty"),
    "header only": (b"x,y\n", "no rows"),
    "ragged": (b"x,y\n1,2\n1,2,3\n4,5\n", "3"),
    "no header": (b"1.5,2.5\n3.5,4.5\n" * 9, "not names"),
    "unclosed quote": (b'x,y\n1,2\n"3,4\n' + b"5,6\n" * 9, "quot"),
    "two columns of one name": (b"x,x,y\n" + b"1,2,3\n" * 9, "alike"),
    "a column without name": (b"x,,y\n" + b"1,2,3\n" * 9, "no name"),
    "two columns without name": (b"x,,,y\n" + b"1,2,3,4\n" * 9, "(2) Column 3"),
    "not UTF-8": (b"x,y\n" + b"1,2\n" * 5 + b"caf\xe9,3\n", "UTF-8"),
    "UTF-16 cut off": ("x,y\n1,2\n".encode("utf-16")[:-1], "cannot be read"),
    "gzip cut off": (gzip.compress(csv())[:40], "cannot be read"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(50), "zstd"),
    "a damaged workbook": (b"PK\x03\x04" + bytes(50), "cannot be read"),
    "an old workbook": (b"\xd0\xcf\x11\xe0" + bytes(50), "old Excel"),
    "bytes": (bytes(range(256)) * 4, "neither text"),
    "a target of words": (csv(y=list("abcdefghijkl")), "'y'"),
    "a target of gaps": (csv(y=[None] * 12), "missing in row 1 (12 of 12 rows)"),
    "a target of dates": (csv(y=[f"2020-01-{i:02d}" for i in range(1, 13)]), "no number"),
    "two targets in all": (csv(y=[1, 2] + [None] * 10), "2 rows, which leaves 2"),
    "a target of two meanings": (csv(y=["1,234", "5,678"] * 6, **whole(x=1, z=2)), "mean 1234 or 1.234; say"),
    "a target with a word": (csv(y=cells("oops")), "oops"),
    "an infinite target": (csv(y=cells("inf")), "row 8"),
    "a constant target": (csv(y=[3.5] * 12), "every row"),
    "an enormous target": (csv(y=cells(1e200)), "row 8"),
    "an infinite input": (csv(x=cells("-inf")), "row 8"),
    "an enormous input": (csv(x=cells(1e200)), "row 8"),
    "numbers and a word": (csv(x=cells("oops")), "oops"),
    "wrong thousands": (csv(x=[*(f"1,{i}.5" for i in range(100, 111)), "1,10000.5"]), "1,10000.5"),
    "ambiguous thousands": (csv(x=[f"1,{i}" for i in range(100, 112)], **whole(y=1, z=2)), "--decimal"),
    "ambiguous dates": (csv(x=[f"0{i}/02/2020" for i in range(1, 10)] + ["10/02/2020"] * 3), "--dates"),
    "years of two digits": (csv(x=[f"0{i}.02.20" for i in range(1, 10)] + ["10.02.20"] * 3), "four digits"),
    "a day that is none": (csv(x=[f"{i}.02.2020" for i in range(20, 32)]), "'30.02.2020' in row 11"),
    "percent signs here and there": (csv(x=["5%", "7"] * 6), "different signs"),
    "several things": (
        csv(x=cells("oops"), z=[f"0{i % 9 + 1}/02/2020" for i in range(12)], y=cells("inf")),
        "3 problems: (1) Column 'x' holds numbers but for 'oops' in row 8",
    ),
    "others": (csv(x=cells("inf"), z=cells("1e200"), y=[3] * 12), "3 problems: (1) The target 'y' is 3"),
    "one row": (b"x,y\n1,2\n", "1 row"),
    "inputs without values": (csv(x=[None] * 12, z=None), "No column"),
    "constant inputs": (csv(x=[1] * 12, z=[2] * 12), "No column"),
    "an identifier alone": (csv(x=[f"id{i}" for i in range(12)], z=None), "No column"),
    "the target alone": (csv(x=None, z=None), "target alone"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_cannot_be_fitted(name, tmp_path):
    data, words = TABLES[name]
    (tmp_path / "table.csv").write_bytes(data)
    said = refused(
        tmp_path, "fit", tmp_path / "table.csv", "--target", "y", "--out", tmp_path / "m.widegp", *QUICK
    )
    assert words in said


@pytest.mark.parametrize("name", ["empty", "ragged", "a constant target", "one row"])
def test_tables_that_cannot_be_compared_on(name, tmp_path):
    data, words = TABLES[name]
    (tmp_path / "table.csv").write_bytes(data)
    assert words in refused(tmp_path, "compare", tmp_path / "table.csv", "--target", "y")


def test_rows_without_a_target_by_choice(tmp_path):
    (tmp_path / "table.csv").write_bytes(csv(y=cells(None)))
    strict = ["--missing-target", "error"]
    arguments = ["fit", tmp_path / "table.csv", "--target", "y", "--out", tmp_path / "m.widegp"]
    assert "missing in row 8 (1 of 12 rows)" in refused(tmp_path, *arguments, *QUICK, *strict)


OPTIONS = {
    "an unknown target": (["--target", "prize"], "did you mean 'price'"),
    "a target in other case": (["--target", "Price"], "'price'"),
    "an unknown column to drop": (["--drop", "rom"], "'rooms'"),
    "two unknown columns to drop": (["--drop", "rom,sise"], "2 problems: (1) "),
    "three at once": (["--target", "prize", "--drop", "rom", "--missing", "refuse"], "3 problems: (1) "),
    "no such decimal mark": (["--decimal", ";"], "--decimal"),
    "a mark used twice": (["--decimal", ",", "--thousands", ","], "thousands=',' cannot be"),
    "no such order of dates": (["--dates", "year-first"], "--dates"),
    "no such encoding": (["--encoding", "cp12520"], "'cp12520' is no encoding"),
    "another encoding": (["--encoding", "utf-16"], "cannot be read"),
    "no such rule for targets": (["--missing-target", "guess"], "--missing-target"),
    "dropping the target": (["--drop", "price"], "cannot be dropped"),
    "dropping all": ([f"--drop={c}" for c in ("id", "size", "rooms", "city", "built")], "No column"),
    "gaps refused": (["--missing", "refuse"], "row 4"),
    "an unknown rule for gaps": (["--missing", "guess"], "--missing"),
    "a negative rank": (["--rank", "-1"], "--rank"),
    "no rank": (["--rank", "0"], "'--rank': 0 is too small; pass at least 1."),
    "a rank of words": (["--rank", "many"], "'--rank': 'many' is not a whole number."),
    "negative neighbours": (["--neighbors", "-3"], "--neighbors"),
    "an unknown approximation": (["--approximation", "magic"], "--approximation"),
    "an unknown rule for anchors": (["--anchors", "magic"], "--anchors"),
    "an unknown transform": (["--transform", "magic"], "--transform"),
    "an unknown backend": (["--backend", "magic"], "--backend"),
    "a budget of words": (["--budget", "abc"], "like 90s, 5m or 2h"),
    "a negative budget": (["--budget=-5s"], "--budget"),
    "no budget": (["--budget", "0s"], "--budget"),
    "a budget without a unit": (["--budget", "2"], "'2' has no unit; write 2s, 2m or 2h"),
    "a test fraction of 2": (["--test-fraction", "2"], "--test-fraction"),
    "a test fraction of nan": (["--test-fraction", "nan"], "--test-fraction"),
    "all rows held out": (["--test-fraction", "0.99"], "leaves 1 to fit on"),
    "a negative seed": (["--seed", "-1"], "'--seed': -1 is too small; pass at least 0."),
    "an enormous seed": (["--seed", 2**40], f"{2**40} is too large; pass at most {2**32 - 1}."),
    "an unknown option": (["--speed", "high"], "--speed"),
    "a second table": (["more.csv"], "more.csv"),
    "resuming from nowhere": (["--resume"], "--checkpoint"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_fit(name, table, tmp_path):
    extra, words = OPTIONS[name]
    target = [] if "--target" in extra else ["--target", "price"]
    said = refused(tmp_path, "fit", table, *target, "--out", tmp_path / "m.widegp", *QUICK, *extra)
    assert words in said


def test_a_transform_that_the_target_does_not_allow(tmp_path):
    (tmp_path / "t.csv").write_bytes(csv())
    arguments = ["fit", tmp_path / "t.csv", "--target", "y", "--transform", "log"]
    assert "log" in refused(tmp_path, *arguments, "--out", tmp_path / "m.widegp")


@pytest.mark.parametrize("arguments", [
    ["fit"], ["fit", "t.csv"], ["fit", "t.csv", "--target", "y"], ["predict"], ["predict", "m"],
    ["report", "m"], ["explain"], ["compare", "t.csv"],
])  # fmt: skip
def test_what_is_left_out(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("t.csv", "m"):
        (tmp_path / name).touch()
    assert "Missing" in refused(tmp_path, *arguments)


def test_unknown_commands_and_options(tmp_path):
    assert "Did you mean 'predict'" in refused(tmp_path, "predikt")
    assert "--speed" in refused(tmp_path, "--speed")


class TestPlaces:
    """Tables that cannot be read and outputs that cannot be written, found before any fit."""

    @pytest.fixture(autouse=True)
    def no_fit(self, monkeypatch):
        monkeypatch.setattr(WideGPRegressor, "fit", lambda *_, **__: pytest.fail("the fit had begun"))

    @pytest.fixture
    def open_folder(self):
        """Below no folder that others may not enter, unlike pytest's own."""
        with tempfile.TemporaryDirectory() as name:
            Path(name).chmod(0o777)
            yield Path(name)

    def fit(self, folder, table, out):
        return refused(folder, "fit", table, "--target", "price", "--out", out)

    def test_no_table_and_a_folder_for_one(self, tmp_path):
        assert "does not exist" in self.fit(tmp_path, tmp_path / "none.csv", tmp_path / "m")
        assert "folder without Parquet" in self.fit(tmp_path, tmp_path, tmp_path / "m")
        assert "not a file" in self.fit(tmp_path, "/dev/null", tmp_path / "m")

    def test_a_damaged_parquet_file(self, tmp_path):
        houses().to_parquet(tmp_path / "whole.parquet")
        data = (tmp_path / "whole.parquet").read_bytes()
        (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
        (tmp_path / "text.parquet").write_bytes(b"x,y\n1,2\n")
        assert "cut off" in self.fit(tmp_path, tmp_path / "cut.parquet", tmp_path / "m")
        assert "does not begin like one" in self.fit(tmp_path, tmp_path / "text.parquet", tmp_path / "m")

    def test_no_right_to_read(self, table, model, open_folder):
        for name, source in (("secret.csv", table), ("secret.widegp", model)):
            (open_folder / name).write_bytes(source.read_bytes())
            (open_folder / name).chmod(0)
        out = ["--out", open_folder / "out.csv"]
        for arguments in (["fit", open_folder / "secret.csv", "--target", "price", *out],
                          ["predict", open_folder / "secret.widegp", table, *out]):  # fmt: skip
            with without_rights():
                result = run(*arguments)
            assert result.exit_code == 2 and re.search("may not be read|cannot be read", result.stderr)
            assert result.stderr.count("\n") == 1 and not (open_folder / "out.csv").exists()

    def test_no_right_to_write(self, table, model, open_folder):
        for source in (table, model):
            (open_folder / source.name).write_bytes(source.read_bytes())
        (open_folder / "old").write_bytes(b"old")
        (open_folder / "old").chmod(0o444)
        fitted, data = open_folder / model.name, open_folder / table.name
        for mode, out in ((0o555, "new"), (0o777, "old")):
            for arguments in (["fit", data, "--target", "price"], ["report", fitted]):
                open_folder.chmod(mode)
                with without_rights():
                    result = run(*arguments, "--out", open_folder / out)
                open_folder.chmod(0o777)
                assert result.exit_code == 2 and result.stderr.count("\n") == 1
                assert re.search("cannot be written|write-protected", result.stderr)
        assert sorted(os.listdir(open_folder)) == sorted([table.name, model.name, "old"])

    def test_no_place_to_write(self, table, tmp_path):
        assert "is a folder" in self.fit(tmp_path, table, tmp_path)
        assert "does not exist" in self.fit(tmp_path, table, tmp_path / "absent" / "m")
        assert "is a device" in self.fit(tmp_path, table, "/dev/full")
        assert os.path.exists("/dev/full")

    def test_the_table_is_not_written_over(self, tmp_path):
        houses().to_csv(tmp_path / "t.csv")
        (tmp_path / "link").symlink_to(tmp_path / "t.csv")
        assert "is the table itself" in self.fit(tmp_path, tmp_path / "t.csv", tmp_path / "t.csv")
        assert "is the table itself" in self.fit(tmp_path, tmp_path / "t.csv", tmp_path / "link")

    def test_checkpoints(self, table, tmp_path):
        arguments = [
            "fit",
            table,
            "--target",
            "price",
            "--out",
            tmp_path / "m",
            "--checkpoint",
            tmp_path / "run",
        ]
        (tmp_path / "run").touch()
        assert "is a file" in refused(tmp_path, *arguments)
        (tmp_path / "run").unlink()
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "fit.journal").touch()
        assert "--resume to go on" in refused(tmp_path, *arguments)


@pytest.mark.parametrize("line", [b"not a journal\n", b'00000000 {"fingerprint": "0"}\n'])
def test_a_journal_of_something_else(line, table, tmp_path):
    (tmp_path / "fit.journal").write_bytes(line)
    arguments = [
        "fit",
        table,
        "--target",
        "price",
        "--out",
        tmp_path / "m",
        "--checkpoint",
        tmp_path,
        "--resume",
    ]
    assert "not a checkpoint" in refused(tmp_path, *arguments, *QUICK)


def newer(model: Path, path: Path) -> None:
    """The same file as a later version would write it."""
    with pytest.MonkeyPatch.context() as later:
        later.setattr(persist, "FORMAT_VERSION", 99)
        regressor, table = persist.load_with_table(model, WideGPRegressor)
        persist.save_model(regressor, path, table)


def altered(model: Path, path: Path) -> None:
    data = bytearray(model.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


def plain(model: Path, path: Path) -> None:
    persist.load_model(model, WideGPRegressor).save(path)


def forged(model: Path, path: Path) -> None:
    regressor, (text, arrays) = persist.load_with_table(model, WideGPRegressor)
    persist.save_model(regressor, path, persist.TablePart(dict(text) | {"encoder": {}}, arrays))


MODELS = {
    "zeros": (lambda model, path: path.write_bytes(bytes(5000)), "not a widegp model"),
    "text": (lambda model, path: path.write_text("x,y\n1,2\n" * 9), "not a widegp model"),
    "empty": (lambda model, path: path.touch(), "is empty"),
    "truncated": (lambda model, path: path.write_bytes(model.read_bytes()[:-100]), "damaged"),
    "cut in the header": (lambda model, path: path.write_bytes(model.read_bytes()[:500]), "not all of one"),
    "altered": (altered, "checksum"),
    "newer": (newer, "update widegp"),
    "without columns": (plain, "without the columns"),
    "with other columns": (forged, "fit the model again"),
    "absent": (lambda model, path: None, "does not exist"),
    "a folder": (lambda model, path: path.mkdir(), "not a file"),
}


@pytest.mark.parametrize("command", ["predict", "report", "explain"])
@pytest.mark.parametrize("name", MODELS)
def test_files_that_are_no_models(name, command, model, table, tmp_path):
    make, words = MODELS[name]
    make(model, tmp_path / "bad")
    rest = {
        "predict": [table, "--out", tmp_path / "p.csv"],
        "report": ["--out", tmp_path / "r.html"],
        "explain": [],
    }
    assert words in refused(tmp_path, command, tmp_path / "bad", *rest[command])


PREDICTED = {
    "a column lacking": (lambda f: f.drop(columns="rooms"), "lacks the column 'rooms'"),
    "a column renamed": (lambda f: f.rename(columns={"size": "Size"}), "did you mean 'Size'"),
    "words for numbers": (lambda f: f.assign(size=["big"] * len(f)), "held numbers"),
    "one word among numbers": (lambda f: f.assign(size=[*f["size"].astype(str)[:-1], "big"]), "row 80"),
    "numbers for dates": (lambda f: f.assign(built=np.arange(len(f))), "held dates"),
    "an infinite number": (lambda f: f.assign(size=[*f["size"][:-1], np.inf]), "row 80"),
    "the new names taken": (lambda f: f.assign(upper=1), "--prefix"),
    "no rows": (lambda f: f[:0], "no rows"),
}


@pytest.mark.parametrize("name", PREDICTED)
def test_tables_that_cannot_be_predicted(name, model, tmp_path):
    change, words = PREDICTED[name]
    change(houses()).to_csv(tmp_path / "t.csv", index=False)
    assert words in refused(tmp_path, "predict", model, tmp_path / "t.csv", "--out", tmp_path / "p.csv")


def test_a_table_that_turns_bad_after_the_first_batch(model, tmp_path, monkeypatch):
    monkeypatch.setattr("widegp.cli.predict.BATCH_ROWS", 10)
    frame = houses()
    frame["size"] = frame["size"].astype(str).where(frame.index != 57, "big")
    frame.to_csv(tmp_path / "t.csv", index=False)
    for out in ("p.csv", "p.parquet"):
        assert "row 58" in refused(tmp_path, "predict", model, tmp_path / "t.csv", "--out", tmp_path / out)


def test_what_csv_cannot_hold(model, tmp_path):
    frame = houses().assign(built=lambda f: pd.to_datetime(f["built"]))
    nested = pa.Table.from_pandas(frame).append_column("list", pa.array([[1, 2]] * 80))
    pq.write_table(nested, tmp_path / "t.parquet")
    said = refused(tmp_path, "predict", model, tmp_path / "t.parquet", "--out", tmp_path / "p.csv")
    assert "'list'" in said and ".parquet" in said
    assert run("predict", model, tmp_path / "t.parquet", "--out", tmp_path / "p.parquet").exit_code == 0


@pytest.mark.parametrize(("extra", "words"), [
    (["--level", "1.5"], "--level"), (["--level", "0"], "--level"), (["--level", "nan"], "--level"),
    (["--level", "high"], "--level"), (["--backend", "magic"], "--backend"),
    (["--predict-neighbors", "0"], "at least 1"), (["--predict-neighbors", "5"], "without neighbours"),
])  # fmt: skip
def test_options_of_predict(extra, words, model, table, tmp_path):
    assert words in refused(tmp_path, "predict", model, table, "--out", tmp_path / "p.csv", *extra)


def test_outputs_of_predict_and_report(model, table, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name, words in {"p.xlsx": ".csv, .tsv, .parquet", "p": "ending", "folder.csv": "is a folder",
                        "absent/p.csv": "does not exist"}.items():  # fmt: skip
        assert words in refused(tmp_path, "predict", model, table, "--out", tmp_path / name)
    (tmp_path / "t.csv").write_bytes(table.read_bytes())
    assert "is the table itself" in refused(
        tmp_path, "predict", model, tmp_path / "t.csv", "--out", tmp_path / "t.csv"
    )
    (tmp_path / "m").write_bytes(model.read_bytes())
    assert "is the model itself" in refused(tmp_path, "report", tmp_path / "m", "--out", tmp_path / "m")
    assert "is a folder" in refused(tmp_path, "report", model, "--out", tmp_path)


def test_explaining_on_a_bad_table(model, tmp_path):
    houses().drop(columns="rooms").to_csv(tmp_path / "t.csv", index=False)
    assert "'rooms'" in refused(tmp_path, "explain", model, tmp_path / "t.csv")
    houses()[:1].to_csv(tmp_path / "one.csv", index=False)
    assert "at least two rows" in refused(tmp_path, "explain", model, tmp_path / "one.csv")


def test_comparing_on_nothing(table, tmp_path):
    assert "held out" in refused(tmp_path, "compare", table, "--target", "price", "--test-fraction", "0")


def test_out_of_memory(table, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(WideGPRegressor, "fit", fail)
    assert "not enough memory" in refused(
        tmp_path, "fit", table, "--target", "price", "--out", tmp_path / "m"
    )
