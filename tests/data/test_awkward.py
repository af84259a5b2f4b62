"""Tables as they come: awkward but legal ones are read without a question, in every form, as meant."""

from __future__ import annotations

import datetime as dt
import gzip
import importlib.util
import io
import math
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from widegp import TableModel
from widegp.data.errors import TableError
from widegp.table_split import Split, TableSettings, split_table

N = 60
RNG = np.random.default_rng(0)
COUNTS = [int(v) for v in RNG.integers(1000, 99999, N)]
TENTHS = [round(v, 1) for v in RNG.uniform(1, 9, N)]
DAYS = [dt.date(2019, 1, 1) + dt.timedelta(days=5 * i) for i in range(N)]
SINCE = [5.0 * i for i in range(N)]
# A plain whole-number input and target, which say nothing about decimal marks.
PLAIN = {"z": [str(v) for v in RNG.integers(0, 40, N)], "y": [str(v) for v in RNG.integers(0, 500, N)]}


def german(value: float) -> str:
    return f"{value:,.1f}".replace(",", " ").replace(".", ",").replace(" ", ".")


def some(cells: list[str], word: str) -> list[str]:
    return [word if i % 6 == 0 else cell for i, cell in enumerate(cells)]


def gaps(values: list[float]) -> list[float]:
    kept = [value for i, value in enumerate(values) if i % 6]
    return [float(np.median(kept)) if i % 6 == 0 else value for i, value in enumerate(values)]


def indicator() -> list[float]:
    return [float(i % 6 == 0) for i in range(N)]


WITH_GAPS = {"x": gaps(TENTHS), "x (missing)": indicator()}
THIRDS = [float(i % 3 == 0) for i in range(N)]
REST = [1 - third for third in THIRDS]

# What a column holds as text, and the inputs that it must become.
CELLS: dict[str, tuple[list[str], dict[str, list[float]]]] = {
    "decimal comma": ([str(v).replace(".", ",") for v in TENTHS], {"x": TENTHS}),
    "decimal comma and thousands": ([german(v + 0.5) for v in COUNTS], {"x": [v + 0.5 for v in COUNTS]}),
    "thousands by comma": ([f"{v + 0.25:,.2f}" for v in COUNTS], {"x": [v + 0.25 for v in COUNTS]}),
    "millions": ([f"{10**4 * v:,}".replace(",", ".") for v in COUNTS], {"x": [1e4 * v for v in COUNTS]}),
    "thousands by blank": ([f"{v:,}".replace(",", " ") for v in COUNTS], {"x": COUNTS}),
    "thousands by narrow blank": ([f"{v:,}".replace(",", "\u202f") for v in COUNTS], {"x": COUNTS}),
    "thousands by apostrophe": ([f"{v:,}".replace(",", "'") for v in COUNTS], {"x": COUNTS}),
    "percent": ([f"{v}%" for v in TENTHS], {"x": TENTHS}),
    "percent after a blank": ([f"{v} %" for v in TENTHS], {"x": TENTHS}),
    "dollars": ([f"${v + 0.5:,.2f}" for v in COUNTS], {"x": [v + 0.5 for v in COUNTS]}),
    "euros": ([f"{german(v + 0.5)} €" for v in COUNTS], {"x": [v + 0.5 for v in COUNTS]}),
    "exponents": ([f"{v}e-3" for v in TENTHS], {"x": [float(f"{v}e-3") for v in TENTHS]}),
    "plus signs": ([f"+{v}" for v in TENTHS], {"x": TENTHS}),
    "negative numbers": ([f"-{v}" for v in TENTHS], {"x": [-v for v in TENTHS]}),
    "blanks around": ([f" {v}  " for v in TENTHS], {"x": TENTHS}),
    **{
        f"missing as {word!r}": (some([str(v) for v in TENTHS], word), WITH_GAPS)
        for word in ("", "-", "?", "n/a", "NA", "NaN", "NULL", "#N/A")
    },
    "missing percent": (some([f"{v}%" for v in TENTHS], "-"), WITH_GAPS),
    "ISO dates": ([f"{d:%Y-%m-%d}" for d in DAYS], {"x (days)": SINCE}),
    "times": ([f"{d:%Y-%m-%dT00:00:00}" for d in DAYS], {"x (days)": SINCE}),
    "zoned times": ([f"{d:%Y-%m-%dT00:00:00Z}" for d in DAYS], {"x (days)": SINCE}),
    "German dates": ([f"{d:%d.%m.%Y}" for d in DAYS], {"x (days)": SINCE}),
    "German times": ([f"{d:%d.%m.%Y} 00:00" for d in DAYS], {"x (days)": SINCE}),
    "British dates": ([f"{d:%d/%m/%Y}" for d in DAYS], {"x (days)": SINCE}),
    "American dates": ([f"{d:%m/%d/%Y}" for d in DAYS], {"x (days)": SINCE}),
    "dates by dashes": ([f"{d:%d-%m-%Y}" for d in DAYS], {"x (days)": SINCE}),
    "short dates": ([f"{d.day}/{d.month}/{d.year}" for d in DAYS], {"x (days)": SINCE}),
    "dates by slashes, year first": ([f"{d:%Y/%m/%d}" for d in DAYS], {"x (days)": SINCE}),
    "months by name": ([f"{d:%d %b %Y}" for d in DAYS], {"x (days)": SINCE}),
    "months by name and dash": ([f"{d:%d-%b-%Y}" for d in DAYS], {"x (days)": SINCE}),
    "whole months": ([f"{d:%B %d, %Y}" for d in DAYS], {"x (days)": SINCE}),
    "booleans": (["TRUE" if third else "false" for third in THIRDS], {"x": THIRDS}),
    "levels": (["ja" if third else "nein" for third in THIRDS], {"x=ja": THIRDS, "x=nein": REST}),
    "codes and words": (["10" if third else "K" for third in THIRDS], {"x=10": THIRDS, "x=K": REST}),
    "identifiers of text": ([f"no-{i}" for i in range(N)], {}),
    "nearly unique text": ([f"name {i % 40}" for i in range(N)], {}),
    "one word": (["same"] * N, {}),
    "nothing": (["NA"] * N, {}),
}  # fmt: skip


def csv(columns: dict[str, list[str]], delimiter: str = ";") -> str:
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    quoted = (delimiter.join('"' + str(cell).replace('"', '""') + '"' for cell in row) for row in rows)
    return "\n".join(quoted) + "\n"


def zipped(data: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("t.csv", data)
    return held.getvalue()


def written(folder: Path, name: str, data: bytes) -> Path:
    (folder / name).write_bytes(data)
    return folder / name


def parquet(columns: dict[str, list[str]], folder: Path) -> Path:
    frame = pd.DataFrame(columns)
    frame[:25].to_parquet(folder / "0.parquet")
    frame[25:].to_parquet(folder / "1.parquet")
    return folder


def excel(columns: dict[str, list[str]], folder: Path) -> Path:
    if importlib.util.find_spec("openpyxl") is None:
        pytest.skip("openpyxl is not installed")
    pd.DataFrame(columns).to_excel(folder / "t.xlsx", index=False)
    return folder / "t.xlsx"


FORMS: dict[str, Callable[[dict[str, list[str]], Path], object]] = {
    "csv": lambda columns, folder: written(folder, "t.csv", csv(columns).encode()),
    "csv.gz": lambda columns, folder: written(folder, "t.csv.gz", gzip.compress(csv(columns, ",").encode())),
    "csv.zip": lambda columns, folder: written(folder, "t.csv.zip", zipped(csv(columns).encode())),
    "utf-16": lambda columns, folder: written(folder, "t.txt", csv(columns, "\t").encode("utf-16")),
    "pandas": lambda columns, folder: pd.DataFrame(columns),
    "polars": lambda columns, folder: pl.DataFrame(columns),
    "parquet": parquet,
    "excel": excel,
}


def split_of(form: str, columns: dict[str, list[str]], folder: Path, **settings: object) -> Split:
    given: dict = {"target": "y", "test_fraction": 0.0} | settings
    return split_table(FORMS[form](columns, folder), TableSettings.taken_from(given))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CELLS)
def test_columns_are_read_as_what_they_mean(case: str, form: str, tmp_path: Path) -> None:
    cells, expected = CELLS[case]
    split = split_of(form, {"x": cells, **PLAIN}, tmp_path)
    found = dict(zip(split.encoder.feature_names, split.rows.T, strict=True))
    np.testing.assert_array_equal(split.targets, [float(v) for v in PLAIN["y"]])
    assert {name for name in found if not name.startswith("z")} == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12)
    assert not split.warnings
    assert expected or any(notice.is_left_out for notice in split.encoder.columns[0].notes)


WHOLE = {
    "an index without a name": ({"": [str(i) for i in range(N)]}, {}),
    "an index from 1": ({"": [str(i + 1) for i in range(N)]}, {}),
    "an identifier of numbers": ({"customer_id": [str(7 * i % 61) for i in range(N)]}, {}),
    "names with blanks and commas": ({'a, "b"': PLAIN["z"][::-1]}, {}),
    "columns that are the same": ({"again": PLAIN["z"]}, {}),
    "a target with gaps": ({"y": some(PLAIN["y"], "-")}, {}),
    "a German target": ({"y": [german(v / 8) for v in COUNTS]}, {}),
    "a target of percent": ({"y": [f"{v}%" for v in TENTHS]}, {}),
    "thousands, said": ({"x": [f"{v:,}" for v in COUNTS]}, {"decimal": "."}),
    "thousands, said otherwise": ({"x": [f"{v:,}" for v in COUNTS]}, {"thousands": ","}),
    "dates in doubt, said": ({"x": ["01/02/2019", "03/04/2019"] * 30}, {"dates": "month-first"}),
    "many levels": ({"x": [f"l{i % 25}" for i in range(N)]}, {}),
    "a column to drop": ({"x": some([str(v) for v in TENTHS], "oops")}, {"drop": ("x",)}),
}


def test_what_excel_and_polars_leave_in_a_table(tmp_path: Path) -> None:
    """A line that names the separator, a delimiter behind each row, categories of polars."""
    rows = [f"{z};{y}" for z, y in zip(PLAIN["z"], PLAIN["y"], strict=True)]
    tables: list[object] = [
        written(tmp_path, "a.csv", "\r\n".join(["sep=;", "z;y", *rows]).encode()),
        written(tmp_path, "b.csv", "\n".join(f"{line};" for line in ("z;y", *rows)).encode()),
    ]
    for table in tables:
        split = split_table(table, TableSettings("y", test_fraction=0.0))
        assert split.encoder.feature_names == ("z",) and len(split.targets) == N
    for kind in (pl.Categorical, pl.Enum(["a", "b"])):
        levels = pl.Series(["ab"[i % 2] for i in range(N)], dtype=kind)
        frame = pl.DataFrame({"x": levels, "y": [float(v) for v in PLAIN["y"]]})
        assert split_table(frame, TableSettings("y")).encoder.feature_names == ("x=a", "x=b")
    named = "\n".join(f"{line};{i}" for i, line in enumerate(rows))
    with pytest.raises(TableError, match=r"Column 3 of .* has no name"):
        split_table(written(tmp_path, "c.csv", f"z;y;\n{named}".encode()), TableSettings("y"))


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "polars"])
@pytest.mark.parametrize("case", WHOLE)
def test_whole_tables(case: str, form: str, tmp_path: Path) -> None:
    columns, settings = WHOLE[case]
    if "" in columns and form not in ("csv", "csv.gz"):
        columns = {"Unnamed: 0": columns[""]}
    # An index stands first, all else after z.
    first = {name: cells for name, cells in columns.items() if "named" in name or not name}
    columns = first | {"z": PLAIN["z"]} | columns | {"y": columns.get("y", PLAIN["y"])}
    split = split_of(form, columns, tmp_path, **settings)
    assert np.isfinite(split.rows).all() and "z" in split.encoder.feature_names
    assert len(split.targets) == (50 if case == "a target with gaps" else N)
    left_out = "index" in case or "identifier" in case or "same" in case or "drop" in case
    assert len(split.encoder.feature_names) == (1 if left_out or "target" in case else 2)


@pytest.mark.parametrize("form", ["csv", "pandas", "polars", "parquet", "excel"])
def test_awkward_columns_together_are_fitted_and_predicted(form: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {f"{case}": cells for case, (cells, _) in CELLS.items() if "thousands" not in case}
    columns["y"] = [str(round(v, 2)) for v in np.array(TENTHS) + rng.normal(size=N)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = FORMS[form](columns, tmp_path)
        model = TableModel.fit(table, "y", approximation="exact", start={}, max_iter=3, test_fraction=0.2)
        model.save(tmp_path / "m.widegp")
        mean = TableModel.load(tmp_path / "m.widegp").predict(table)
    assert mean.shape == (N,) and np.isfinite(mean).all() and math.isfinite(model.score(table))
