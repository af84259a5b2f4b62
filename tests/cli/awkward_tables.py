"""Awkward but legal tables in every form, by name: a function of a folder that gives a path or a frame."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

N = 40
RNG = np.random.default_rng(0)
Z = [round(float(v), 1) for v in RNG.uniform(0, 9, N)]
Y = [round(30 + 5 * z + float(e), 1) for z, e in zip(Z, RNG.normal(size=N), strict=True)]
BIG = [int(v) for v in RNG.integers(1000, 99999, N)]
MOMENTS = [dt.datetime(2019, 1, 1) + dt.timedelta(days=9 * i, hours=i) for i in range(N)]
MONTHS = ["Jan", "Feb", "Mrz", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez"]


def frame(**columns: Any) -> pd.DataFrame:
    """z, which tells y, with other columns between them."""
    return pd.DataFrame({"z": Z, **columns, "y": columns.get("y", Y)})


def german(v: float) -> str:
    return f"{v:,.2f}".translate(str.maketrans(",.", ".,"))


def as_csv(
    data: pd.DataFrame, name: str = "t.csv", encoding: str = "utf-8", before: str = "", index: bool = False,
    **how: Any,
) -> Any:  # fmt: skip
    """A function of a folder that writes the table there as text."""

    def write(folder: Path) -> Path:
        text = before + data.to_csv(index=index, **how)
        (folder / name).write_bytes(text.encode(encoding))
        return folder / name

    return write


def packed(pack: Callable[[bytes], bytes], name: str) -> Any:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(pack(frame().to_csv(index=False).encode()))
        return folder / name

    return write


def zipped(data: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("t.csv", data)
    return held.getvalue()


def cells(*values: str, every: int = 6, **how: Any) -> Any:
    """A column x of decimal numbers with a word in each sixth row."""
    column = [values[i % len(values)] if i % every == 0 else str(v / 7) for i, v in enumerate(BIG)]
    return as_csv(frame(x=column), **how)


def column(make: Callable[[int], str], **how: Any) -> Any:
    return as_csv(frame(x=[make(i) for i in range(N)]), **how)


def excel(data: pd.DataFrame) -> Any:
    def write(folder: Path) -> Path:
        data.to_excel(folder / "t.xlsx", index=False)
        return folder / "t.xlsx"

    return write


def parquet(table: pa.Table) -> Any:
    def write(folder: Path) -> Path:
        pq.write_table(table, folder / "t.parquet")
        return folder / "t.parquet"

    return write


def folder_of_parquet(folder: Path) -> Path:
    (folder / "parts").mkdir()
    frame()[:25].to_parquet(folder / "parts" / "0.parquet")
    frame()[25:].to_parquet(folder / "parts" / "1.parquet")
    return folder / "parts"


def arrow(**columns: Any) -> pa.Table:
    return pa.table({"z": Z, **columns, "y": Y})


def polars(**columns: Any) -> Any:
    return lambda folder: pl.DataFrame({"z": Z, **columns, "y": Y})


def pandas(**columns: Any) -> Any:
    return lambda folder: frame(**columns)


LEGAL: dict[str, Any] = {
    # A CSV saved by a German Excel, and by others.
    "German Excel": as_csv(
        frame(Preis=[f"{german(v)} €" for v in BIG], Tag=[f"{d:%d.%m.%Y}" for d in MOMENTS]).map(
            lambda v: str(v).replace(".", ",") if isinstance(v, float) else v
        ),
        sep=";", lineterminator="\r\n",
    ),
    "a line sep=;": as_csv(frame(), before="sep=;\n", sep=";", decimal=","),
    "a mark of Unicode": as_csv(frame(), encoding="utf-8-sig"),
    "UTF-16 with tabs": as_csv(frame(), "t.txt", "utf-16", sep="\t"),
    "bars between values": as_csv(frame(), sep="|"),
    "blank lines": as_csv(frame(), before="\n\n"),
    "a delimiter behind each row": as_csv(frame(), lineterminator=",\n"),
    "an index without a name": as_csv(frame(), index=True),
    "gzip": packed(gzip.compress, "t.csv.gz"),
    "zip": packed(zipped, "t.csv.zip"),
    "Windows-1252": as_csv(frame(Größe=["klein", "größer"] * 20), encoding="cp1252"),
    # Numbers.
    "thousands": column(lambda i: f"{BIG[i] + 0.5:,.2f}"),
    "Swiss thousands": column(lambda i: f"{BIG[i]:,}".replace(",", "'")),
    "dollars below zero": column(lambda i: f"{'-' * (i % 2)}${BIG[i]:,}.00"),
    "brackets below zero": column(lambda i: f"({BIG[i]:,}.00)" if i % 2 else f"{BIG[i]:,}.00"),
    "a minus behind": column(lambda i: f"{german(BIG[i])}-", sep=";"),
    "euros by name": column(lambda i: f"{BIG[i]}.50 EUR"),
    "percent": column(lambda i: f"{Z[i]} %"),
    "exponents": column(lambda i: f"{Z[i]}e-3"),
    # Gaps.
    **{f"gaps as {word!r}": cells(word) for word in ("", "-", "?", "n/a", "#DIV/0!", "None", "k.A.")},
    "gaps of many kinds": cells("", "NA", "#NV", "unknown", "--"),
    "a target with gaps": as_csv(frame(y=[None if i % 7 == 0 else y for i, y in enumerate(Y)])),
    "a column of gaps": as_csv(frame(x=[None] * N)),
    # Dates and times.
    "German dates": column(lambda i: f"{MOMENTS[i]:%d.%m.%Y}"),
    "German months": column(lambda i: f"{MOMENTS[i].day}. {MONTHS[MOMENTS[i].month - 1]} {MOMENTS[i].year}"),
    "American times": column(lambda i: f"{MOMENTS[i]:%m/%d/%Y %I:%M %p}"),
    "months by name": column(lambda i: f"{MOMENTS[i]:%d %b %Y}"),
    "months alone": column(lambda i: f"{MOMENTS[i]:%Y-%m}"),
    "times of day": column(lambda i: f"{MOMENTS[i]:%H:%M}"),
    "zoned times": column(lambda i: f"{MOMENTS[i]:%Y-%m-%dT%H:%M:%S+01:00}"),
    # Words.
    "identifiers": as_csv(frame(id=[f"c-{i}" for i in range(N)], customer_id=BIG)),
    "many levels": column(lambda i: f"level {i % 13}"),
    "odd names": as_csv(frame(**{'a, "b"': Z[::-1], "[red] <b>": BIG, "ÄÖ ü": Y[::-1]})),
    "words with quotes and lines": column(lambda i: ['say "no"', "two\nlines"][i % 2]),
    "one column alone": as_csv(frame()),
    "more columns than rows": as_csv(frame(**{f"x{j}": RNG.normal(size=N).round(2) for j in range(60)})),
    # Excel.
    "a workbook": excel(frame(day=MOMENTS, on=[i % 3 == 0 for i in range(N)], word=["a", None] * 20)),
    "a workbook of text": excel(frame(x=[german(v) for v in BIG])),
    # Parquet.
    "a folder of Parquet": folder_of_parquet,
    "decimals": parquet(arrow(x=pa.array([Decimal(str(v)) for v in Z], pa.decimal128(9, 2)))),
    "a dictionary": parquet(arrow(x=pa.array(["a", None] * 20).dictionary_encode())),
    "nanoseconds and lists": parquet(arrow(x=pa.array(MOMENTS, pa.timestamp("ns")), w=[[1, 2]] * N)),
    # pandas.
    "pandas categories": pandas(x=pd.Categorical(["u", "v"] * 20), k=pd.Categorical([1, 2, 3, 4] * 10)),
    "pandas nullable": pandas(
        x=pd.array([None, 1, 5, 7] * 10, dtype="Int64"), b=pd.array([True, None] * 20, dtype="boolean")
    ),
    "pandas times": pandas(
        x=pd.date_range("2020", periods=N, tz="Europe/Berlin"), d=pd.to_timedelta(np.arange(N) ** 2, "h"),
        p=pd.period_range("2020-01", periods=N, freq="M"),
    ),
    "pandas objects": pandas(x=["a", 1] * 20, m=[Decimal(1) / (i + 1) for i in range(N)]),
    "pandas, an index of words": lambda folder: frame().set_index(pd.Index([f"r{i}" for i in range(N)])),
    # polars.
    "polars categories": polars(
        x=pl.Series(["u", "v"] * 20, dtype=pl.Categorical),
        e=pl.Series(["s", "t"] * 20, dtype=pl.Enum(["s", "t"])),
    ),
    "polars times": polars(
        x=[d.date() for d in MOMENTS], t=[d.time() for d in MOMENTS], d=[d - MOMENTS[0] for d in MOMENTS]
    ),
    "polars gaps": polars(x=[None] * N, w=[None, "a", "b", "b"] * 10, s=[{"k": 1}] * N),
    "polars lazily": lambda folder: polars()(folder).lazy(),
}  # fmt: skip
# How to read what a file cannot say of itself.
SAID = {"Windows-1252": {"encoding": "cp1252"}}
