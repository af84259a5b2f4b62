"""Reading files: every good table comes out as it went in, and every bad one ends in one clear sentence."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib.util
import io
import lzma
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from widegp.data import csv_files
from widegp.data.errors import in_file
from widegp.data.tables import FIRST_ROW, TableError, open_table
from widegp.data.text import Reading

N = 137


@pytest.fixture
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({
        "x": rng.normal(size=N),
        "count": rng.integers(-9, 9, N).astype(float),
        "flag": rng.random(N) < 0.5,
        "color": [["red", "green", None][i % 3] for i in range(N)],
        "when": pa.array([i * 86_400_000_000 for i in range(N)], pa.int64()).cast(pa.timestamp("us")),
    })  # fmt: skip


def written(folder: Path, table: pa.Table, form: str) -> Path:
    path = folder / f"table.{form}"
    if form in ("csv", "tsv"):
        pacsv.write_csv(table, path, pacsv.WriteOptions(delimiter="," if form == "csv" else "\t"))
    elif form == "parquet":
        pq.write_table(table, path, row_group_size=50)
    elif form == "folder":
        path.mkdir()
        pq.write_table(table.slice(0, 60), path / "part-0.parquet")
        pq.write_table(table.slice(60), path / "part-1.parquet")
        (path / "_SUCCESS").write_text("")
    elif form == "arrows":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=40)
    else:
        compression = "lz4" if form == "feather" else "uncompressed"
        feather.write_feather(table, path, compression=compression, chunksize=40)
    return path


FORMS = ["csv", "tsv", "parquet", "folder", "arrow", "feather", "arrows"]


@pytest.mark.parametrize("form", FORMS)
def test_reads_what_was_written(tmp_path: Path, table: pa.Table, form: str) -> None:
    source = open_table(written(tmp_path, table, form))
    assert source.names == table.schema.names
    assert source.n_rows == (None if form in ("csv", "tsv", "arrows") else N)
    assert source.read().to_pylist() == table.to_pylist()
    assert source.read().schema.types == table.schema.types


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 7, N, 10 * N])
def test_batches_have_the_size_asked_for_and_know_their_place(
    tmp_path: Path, table: pa.Table, form: str, rows: int
) -> None:
    source = open_table(written(tmp_path, table, form))
    batches = list(source.batches(rows=rows, columns=["color", "x"]))
    assert [b.num_rows for b in batches] == [min(rows, N - i) for i in range(0, N, rows)]
    assert [int(b.schema.metadata[FIRST_ROW]) for b in batches] == list(range(0, N, rows))
    assert all(b.schema.names == ["color", "x"] for b in batches)
    x = np.array([float(v) for b in batches for v in b.column("x").to_pylist()])
    np.testing.assert_allclose(x, table["x"].to_numpy(), rtol=1e-14)


def test_a_source_can_be_read_again_after_a_scan_was_left(tmp_path: Path, table: pa.Table) -> None:
    for form in FORMS:
        source = open_table(written(tmp_path, table, form))
        next(iter(source.batches(rows=3)))
        assert source.read().num_rows == N


def test_content_goes_before_the_name(tmp_path: Path, table: pa.Table) -> None:
    path = written(tmp_path, table, "parquet").rename(tmp_path / "table.csv")
    assert open_table(path).read().num_rows == N
    assert open_table(str(path)).names == table.schema.names
    text = tmp_path / "data"
    text.write_text("PAR1,b\n1,2\n")
    assert open_table(text.rename(tmp_path / "data.csv")).names == ["PAR1", "b"]


def test_digests(tmp_path: Path, table: pa.Table) -> None:
    path = written(tmp_path, table, "csv")
    assert open_table(path).sha256() == hashlib.sha256(path.read_bytes()).hexdigest()
    folder = written(tmp_path, table, "folder")
    parts = [hashlib.sha256((folder / f"part-{i}.parquet").read_bytes()).digest() for i in (0, 1)]
    assert open_table(folder).sha256() == hashlib.sha256(b"".join(parts)).hexdigest()


def test_types_hold_over_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pyarrow infers from the first block fails in a later one; nothing of that may show."""
    monkeypatch.setattr(csv_files, "SMALLEST_BLOCK", 64)
    n = 500
    lines = [f"{i},{'' if i < 400 else i},{i if i < 490 else 'word'},{i % 7}" for i in range(n - 1)]
    path = tmp_path / "late.csv"
    path.write_text("late_float,late_value,late_word,code\n" + "\n".join([*lines, "0.5,7,x,B"]) + "\n")
    read = open_table(path).read()
    assert [str(t) for t in read.schema.types] == ["double", "double", "string", "string"]
    assert read["late_float"][-1].as_py() == 0.5
    assert read["late_value"].null_count == 400
    with pytest.raises(pa.ArrowInvalid):
        options = pacsv.ReadOptions(block_size=64, use_threads=False)
        pacsv.open_csv(path, read_options=options).read_all()


def test_quotes_marks_blanks_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_bytes(b'\xef\xbb\xbf\r\n a ,"b, c","d\ne"\r\n 1 ,"say ""hi"", you","x\ny"\r\n\r\n2,  ,NA\r\n')
    source = open_table(path)
    assert source.names == ["a", "b, c", "d\ne"]
    assert source.read().to_pylist() == [
        {"a": 1.0, "b, c": 'say "hi", you', "d\ne": "x\ny"},
        {"a": 2.0, "b, c": None, "d\ne": None},
    ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_finds_the_delimiter(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "d.csv"
    path.write_text(f'"p,q;r"{delimiter}b\n1{delimiter}2\n')
    assert open_table(path).names == ["p,q;r", "b"]


def test_header_of_counted_columns_is_a_header(tmp_path: Path) -> None:
    path = tmp_path / "counted.csv"
    path.write_text("0,1,2\n5,6,7\n")
    assert open_table(path).names == ["0", "1", "2"]


def test_wide_rows_fit_a_block(tmp_path: Path) -> None:
    width = 3000
    path = tmp_path / "wide.csv"
    header = ",".join(f"a_long_name_{i}" for i in range(width))
    row = ",".join(f"{np.pi * i:.400e}" for i in range(width))
    assert len(row) > csv_files.SMALLEST_BLOCK
    path.write_text(f"{header}\n{row}\n{row}\n")
    assert sum(b.num_rows for b in open_table(path).batches()) == 2


def test_a_row_longer_than_any_block(tmp_path: Path) -> None:
    path = tmp_path / "open.csv"
    path.write_text('a,b\n1,2\n"' + "3,4\n" * 600_000)
    with pytest.raises(TableError, match="row beyond 1 MiB; close the quotation mark"):
        open_table(path).read()


def test_streaming_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "SMALLEST_BLOCK", 1 << 17)
    rng = np.random.default_rng(0)
    table = pa.table({f"x{i}": rng.normal(size=800_000) for i in range(8)})  # 51 MB
    paths = [tmp_path / "one_group.parquet", tmp_path / "one_batch.arrow", tmp_path / "text.csv"]
    pq.write_table(table, paths[0], row_group_size=10**9, compression="none", use_dictionary=False)
    feather.write_feather(table, paths[1], compression="uncompressed", chunksize=10**9)
    pacsv.write_csv(table.slice(0, 300_000), paths[2])
    del table
    for path, most in zip(paths, (16e6, 1e6, 10e6), strict=True):
        before, peak = pa.total_allocated_bytes(), 0
        for _ in open_table(path).batches(rows=10_000):
            peak = max(peak, pa.total_allocated_bytes() - before)
        assert peak < most < path.stat().st_size / 2, path.name


def pq_bytes(**columns: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


GOOD = pq_bytes(a=[1, 2], b=["x", "y"])

# name of the file, its bytes, and what the sentence must say
BAD_FILES = {
    "zero bytes": ("t.csv", b"", "is empty; write or copy"),
    "zero bytes parquet": ("t.parquet", b"", "is empty"),
    "header only": ("t.csv", b"a,b\n", "header but no rows"),
    "header without line end": ("t.csv", b"a,b", "no rows"),
    "blank lines": ("t.csv", b"\n\n\n", "no rows"),
    "blanks and spaces": ("t.csv", b"   \n", "no rows"),
    "too few values": ("t.csv", b"a,b\n1,2\n3\n", "line 3, has 1 value where the header has 2 names"),
    "too many values": ("t.csv", b"a,b\n1,2\n\n3,4,5\n", "line 4, has 3 values where the header has 2 names"),
    "ragged after a quoted line end": ("t.csv", b'a,b\n"x\ny",2\n3,4,5\n', "line 4, has 3 values"),
    "row names of R": ("t.csv", b"a,b\n1,2,3\n", "line 2, has 3 values"),
    "quote left open": ("t.csv", b'a,b\n1,2\n3,"x\n5,6\n7,8\n', "line 3, leaves a quotation mark open"),
    "quote left open early": ("t.csv", b'a,b\n"1,2\n3,4\n', "line 2, leaves a quotation mark open"),
    "columns alike": ("t.csv", b"a,b,a\n1,2,3\n", "columns 1 and 3 alike, 'a'"),
    "columns alike but for blanks": ("t.csv", b"a, a\n1,2\n", "columns 1 and 2 alike, 'a'"),
    "unnamed": ("t.csv", b"a,,b\n0,1,2\n", "Column 2 of .* has no name; name it"),
    "unnamed and alike": ("t.csv", b"a,,a\n0,1,2\n", "2 problems.*columns 1 and 3 alike.*Column 2 of"),
    "no header": ("t.csv", b"1.5,2,3\n4,5,6\n", "holds numbers, not names"),
    "latin-1": ("t.csv", "a,b\n1,2\ncafé,3\n".encode("latin-1"), "line 3, .*0xe9.*--encoding cp1252"),
    "windows": ("t.csv", "a,b\n1,2\n1,5€\n".encode("cp1252"), "line 3, .*0x80.*--encoding cp1252"),
    "latin-1 header": ("t.csv", "é,b\n1,2\n".encode("latin-1"), "line 1, .*not UTF-8"),
    "utf-16 without a mark": ("t.csv", "a,b\n1,2\n".encode("utf-16-le"), "neither text nor"),
    "binary": ("t.csv", bytes(range(1, 255)) + b"\0", "neither text nor"),
    "binary without zeros": ("t.csv", bytes(range(128, 256)), "not UTF-8"),
    "gzip": ("t.csv.gz", b"\x1f\x8b\x08\0abc", "cannot be read"),
    "workbook": ("t.xlsx", b"PK\x03\x04rest", "cannot be read"),
    "zstd": ("t.csv.zst", b"\x28\xb5\x2f\xfdrest", "compressed with zstd; unpack"),
    "old workbook": ("t.xls", b"\xd0\xcf\x11\xe0rest", "Excel workbook; save"),
    "hdf5": ("t.h5", b"\x89HDF\r\n", "HDF5"),
    "sqlite": ("t.db", b"SQLite format 3\0", "SQLite"),
    "feather 1": ("t.feather", b"FEA1rest", "version 1"),
    "encrypted": ("t.parquet", b"PAREabcdPARE", "encrypted"),
    "not parquet": ("t.parquet", b"a,b\n1,2\n", r"named \.parquet but"),
    "not arrow": ("t.arrow", b"a,b\n1,2\n", r"named \.arrow but"),
    "parquet cut off": ("t.parquet", GOOD[: len(GOOD) // 2], "cut off"),
    "parquet of marks": ("t.parquet", b"PAR1PAR1", "cannot be read"),
    "parquet of one mark": ("t.parquet", b"PAR1", "cut off"),
    "parquet with a torn footer": ("t.parquet", GOOD[:40] + GOOD[60:], "cannot be read"),
    "parquet without rows": ("t.parquet", pq_bytes(a=pa.array([], pa.int64())), "no rows"),
    "parquet without columns": ("t.parquet", pq_bytes(), "no columns"),
    "parquet unnamed": ("t.parquet", pq_bytes(**{"": [1]}), "has no name"),
    "arrow cut off": ("t.arrow", b"ARROW1\0\0\xff\xff\xff\xff\x10", "cannot be read"),
    "arrow of its mark": ("t.arrow", b"ARROW1\0\0", "cannot be read"),
    "stream of its mark": ("t.arrows", b"\xff\xff\xff\xff", "cannot be read"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_end_in_one_sentence(tmp_path: Path, case: str) -> None:
    name, data, words = BAD_FILES[case]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(TableError, match=words) as caught:
        open_table(path).read()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message and message.endswith(".")


PACKED = {
    "t.csv.gz": gzip.compress, "t.csv.bz2": bz2.compress, "t.csv.xz": lzma.compress,
    "t.csv.zip": lambda data: zipped(**{"t.csv": data}),
    "utf16.csv": lambda data: data.decode().encode("utf-16"),
    "utf32.csv": lambda data: data.decode().encode("utf-32"),
}  # fmt: skip


def zipped(**files: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return held.getvalue()


@pytest.mark.parametrize("name", PACKED)
def test_packed_and_unicode_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PACKED[name]('a;é\n1;2\n3;"ü;"\n'.encode()))
    source = open_table(path)
    assert source.names == ["a", "é"] and source.is_text
    assert source.read().to_pylist() == [{"a": 1.0, "é": "2"}, {"a": 3.0, "é": "ü;"}]
    assert len(list(source.batches(rows=1))) == 2


def test_an_archive_of_two_tables(tmp_path: Path) -> None:
    (tmp_path / "t.zip").write_bytes(zipped(a=b"x\n1\n", b=b"y\n1\n"))
    with pytest.raises(TableError, match="holds 2 files; pack the table alone"):
        open_table(tmp_path / "t.zip")


def test_other_encodings_by_choice(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("größe;preis €\n1;2\n".encode("cp1252"))
    assert open_table(tmp_path / "t.csv", Reading(encoding="cp1252")).names == ["größe", "preis €"]


def test_an_index_without_a_name_gets_one(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",b\n0,2\n")
    assert open_table(tmp_path / "t.csv").names == ["Unnamed: 0", "b"]


def test_frames_are_sources(table: pa.Table) -> None:
    for frame in (table, table.to_pandas(), polars.from_arrow(table), polars.from_arrow(table).lazy()):
        source = open_table(frame)
        assert (source.names, source.n_rows, source.path) == (table.schema.names, N, None)
        assert [batch.num_rows for batch in source.batches(rows=100)] == [100, 37]
        assert source.read()["x"].to_pylist() == table["x"].to_pylist() and source.sha256() is None
    mixed = open_table(pd.DataFrame({"a": [1, "x", None], 7: [True, False, None]}))
    assert mixed.names == ["a", "7"] and mixed.read()["a"].to_pylist() == ["1", "x", None]
    with pytest.raises(TableError, match="A table is needed, not int"):
        open_table(3)


def test_dask_frames_are_sources(table: pa.Table) -> None:
    dd = pytest.importorskip("dask.dataframe")
    source = open_table(dd.from_pandas(table.to_pandas(), npartitions=3))
    assert source.names == table.schema.names and source.n_rows is None
    assert source.read()["x"].to_pylist() == table["x"].to_pylist()


@pytest.mark.skipif(importlib.util.find_spec("openpyxl") is None, reason="openpyxl is not installed")
def test_excel_workbooks(tmp_path: Path, table: pa.Table) -> None:
    table.to_pandas().to_excel(tmp_path / "t.xlsx", index=False)
    source = open_table(tmp_path / "t.xlsx")
    assert source.names == table.schema.names and source.n_rows == N
    assert source.read()["x"].to_pylist() == pytest.approx(table["x"].to_pylist())


def test_a_workbook_without_openpyxl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "t.xlsx").write_bytes(zipped(**{"xl/workbook.xml": b""}))
    with pytest.raises(TableError, match=r"needs openpyxl; pip install 'widegp\[excel\]'"):
        open_table(tmp_path / "t.xlsx")


def test_a_stream_without_rows(tmp_path: Path, table: pa.Table) -> None:
    source = open_table(written(tmp_path, table.slice(0, 0), "arrows"))
    with pytest.raises(TableError, match="has no rows"):
        source.read()


def test_damage_in_the_data_is_said_while_reading(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, write_page_checksum=True, compression="none")
    data = bytearray(path.read_bytes())
    data[400] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(TableError, match=r"cannot be read \(.*CRC"):
        open_table(path).read()


def test_a_file_that_goes_between_opening_and_reading(tmp_path: Path, table: pa.Table) -> None:
    for form in FORMS:
        path = written(tmp_path, table, form)
        source = open_table(path)
        (path / "part-1.parquet").unlink() if path.is_dir() else path.unlink()
        with pytest.raises(TableError, match="does not exist"):
            source.read()
        with pytest.raises(TableError, match="does not exist"):
            source.sha256()


def test_paths_that_hold_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="does not exist; check"):
        open_table(tmp_path / "absent.csv")
    with pytest.raises(TableError, match="cannot be read"):
        open_table("a\0b")
    with pytest.raises(TableError, match="cannot be read"):
        open_table("x" * 5000)
    with pytest.raises(TableError, match="folder without Parquet files"):
        open_table(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TableError, match="is not a file"):
        open_table(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(TableError, match="cannot be read"):
        open_table(tmp_path / "loop")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    path.chmod(0)
    with pytest.raises(TableError, match="may not be read"):
        open_table(path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied"), "may not be read; ask"),
        (OSError(5, "Input/output error"), r"cannot be read \(Input/output error\)"),
        (ModuleNotFoundError("No module named 'pyarrow'"), "needs pyarrow .*; pip install pyarrow"),
        (MemoryError(), "more memory than there is"),
        (pa.ArrowMemoryError("malloc of size 1 failed"), "more memory than there is"),
        (KeyError("a\nb"), "cannot be read"),
    ],
)
def test_every_exception_becomes_a_sentence(error: Exception, words: str) -> None:
    with pytest.raises(TableError, match=words), in_file(Path("t.csv")):
        raise error


def test_columns_asked_for(tmp_path: Path, table: pa.Table) -> None:
    source = open_table(written(tmp_path, table, "csv"))
    assert source.read(["when", "x"]).schema.names == ["when", "x"]
    with pytest.raises(TableError, match="no column 'Colour'; did you mean 'color'"):
        source.read(["Colour"])
    with pytest.raises(TableError, match="No column"):
        source.read([])
    with pytest.raises(TableError, match="at least 1"):
        source.batches(rows=0)


def test_dotted_names_are_names(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "a.b": [2], "s": [{"t": 1}]}), tmp_path / "t.parquet")
    source = open_table(tmp_path / "t.parquet")
    for columns in (["a"], ["a.b"], ["s", "a"]):
        assert source.read(columns).schema.names == columns


def folder_of(tmp_path: Path, *tables: pa.Table) -> Path:
    for i, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"part-{i}.parquet")
    return tmp_path


def test_folder_with_types_that_fit_together(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        pa.table(
            {"a": pa.array([1], pa.int32()), "b": pa.nulls(1), "c": pa.array(["u"]).dictionary_encode()}
        ),
        pa.table({"c": ["v"], "a": [2.5], "b": ["w"]}),
    )
    assert open_table(folder).read().to_pylist() == [
        {"a": 1.0, "b": None, "c": "u"},
        {"a": 2.5, "b": "w", "c": "v"},
    ]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"a": ["text"], "b": [1.0]}, "Column 'a' is string in .*part-1.parquet and int64 in part-0"),
        ({"a": [1]}, "part-1.parquet lacks the column 'b'"),
        ({"a": [1], "b": [1.0], "c": [1]}, "part-0.parquet lacks the column 'c'"),
        ({"a": [[1]], "b": [1.0]}, "Column 'a' is list"),
    ],
)
def test_folder_with_schemas_that_do_not(tmp_path: Path, second: dict, words: str) -> None:
    folder = folder_of(tmp_path, pa.table({"a": [1], "b": [1.0]}), pa.table(second))
    with pytest.raises(TableError, match=words):
        open_table(folder)


def test_folder_with_other_things(tmp_path: Path) -> None:
    (tmp_path / "year=2020").mkdir()
    with pytest.raises(TableError, match="'year=2020', and folders within"):
        open_table(tmp_path)
    folder_of(tmp_path, pa.table({"a": [1]}))
    with pytest.raises(TableError, match="'year=2020', and folders within"):
        open_table(tmp_path)
    (tmp_path / "year=2020").rmdir()
    (tmp_path / "zz.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(TableError, match=r"zz\.parquet"):
        open_table(tmp_path)
    (tmp_path / "zz.parquet").unlink()
    (tmp_path / "notes.txt").write_text("read me")
    assert open_table(tmp_path).n_rows == 1


@pytest.mark.parametrize("counted", [1 << 24, 700])
def test_the_rows_of_a_text_are_estimated_from_its_first_bytes(counted: int, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("widegp.data.tables.COUNTED_BYTES", counted)
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{i},{i + 1}\n" for i in range(100, 600)))
    about = open_table(path).rows_about()
    assert about == 500 if counted > 5000 else abs(about - 500) < 10


def test_rows_are_known_or_unknown_where_there_are_no_lines(table: pa.Table, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "t.parquet")
    assert open_table(tmp_path / "t.parquet").rows_about() == N
    with pa.ipc.new_stream(tmp_path / "t.arrows", table.schema) as stream:
        stream.write_table(table)
    assert open_table(tmp_path / "t.arrows").rows_about() is None
