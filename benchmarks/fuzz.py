"""Feeds damaged and random files to the readers of tables and models, and counts what is not their own error.

    python benchmarks/fuzz.py --cases 100000 --seconds 3600 --seed 0

Case i is made from (seed, i) alone, so ``--case i`` runs it again. Cases run in a child process with a limit
on its address space; where the child dies or hangs, the case counts and a new child goes on after it. A table
is opened, read whole and in batches, and encoded; a model is loaded. Allowed are success, `TableError` and
`ModelFileError`, in one line.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MEMORY, PATIENCE, CHUNK = (
    1 << 30,
    60.0,
    10_000,
)  # bytes beyond the libraries' own, seconds a case, cases a child
SLIPS = (AttributeError, NameError, TypeError, LookupError, AssertionError, ArithmeticError)
WORDS = [
    "", "NA", "?", "null", "1", "-2.5", "1e5", "1e999", "inf", "nan", "+3", ".5", "5.", "0x1F", "1_000",
    "1,234", "$5", "12%", "true", "False", "abc", "été", "\u00a0", "2020-01-01", "2020-02-31",
    "2020-01-01T10:00:00Z", "31/12/2020", "9999-12-31 23:59:59.999999999", '"', '""', "\\", "\n", "\r", "\t",
    ";", "|", "\x00", "\ufeff", "a b", "9" * 40, "😀",
]  # fmt: skip
ODD_JSON = [
    0,
    1,
    -1,
    2**31 - 1,
    2**53 + 1,
    10**30,
    0.5,
    1e308,
    "inf",
    "",
    None,
    True,
    [],
    {},
    "exact",
    [1, 2],
]


def seeds(folder: Path) -> None:
    """Small valid files of every kind, from which the damaged ones are made."""
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    n = 60
    colors = ["red", "green", "blue", None]
    table = pa.table({
        "x": rng.normal(size=n),
        "k": pa.array(rng.integers(-5, 5, n), mask=rng.random(n) < 0.2),
        "flag": rng.random(n) < 0.5,
        "color": pa.array([colors[i] for i in rng.integers(4, size=n)]).dictionary_encode(),
        "when": pa.array(rng.integers(0, 10**15, n), pa.int64()).cast(pa.timestamp("us", "UTC")),
        "price": pa.array(np.round(rng.random(n) * 100, 2)).cast(pa.decimal128(12, 2), safe=False),
        "word": [f"w{i % 30}" for i in range(n)],
        "y": rng.normal(size=n),
    })  # fmt: skip
    decoded = table.set_column(3, "color", table["color"].cast(pa.string()))
    nested = table.append_column("list", pa.array([[i, i + 1] for i in range(n)]))
    nested = nested.append_column("pair", pa.array([{"a": i, "b": str(i)} for i in range(n)]))
    pacsv.write_csv(decoded, folder / "plain.csv")
    pacsv.write_csv(decoded, folder / "tabs.tsv", pacsv.WriteOptions(delimiter="\t"))
    pq.write_table(nested, folder / "snappy.parquet", row_group_size=25)
    pq.write_table(table, folder / "zstd.parquet", compression="zstd", write_page_checksum=True)
    pq.write_table(table, folder / "none.parquet", compression="none", use_dictionary=False)
    feather.write_feather(nested, folder / "plain.feather", compression="uncompressed", chunksize=25)
    feather.write_feather(table, folder / "lz4.arrow", compression="lz4")
    with pa.ipc.new_stream(str(folder / "stream.arrows"), table.schema) as writer:
        writer.write_table(table)
    models(folder, rng)


def models(folder: Path, rng: np.random.Generator) -> None:
    from widegp import WideGPRegressor

    X = rng.normal(size=(60, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    settings: dict[str, dict[str, Any]] = {
        "exact": {"approximation": "exact"},
        "full": {"approximation": "full-scale", "rank": 8, "neighbors": 4, "ard": True},
        "warped": {"approximation": "vfe", "rank": 8, "target_transform": "sinh-arcsinh"},
    }
    warnings.simplefilter("ignore")  # three iterations do not converge, and need not
    for name, chosen in settings.items():
        WideGPRegressor.plain(random_state=0, max_iter=3, **chosen).fit(X, y).save(folder / f"{name}.model")


def mutated(data: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """A few random changes: bits, bytes, runs, cuts, repeats, and pieces of another file."""
    out = bytearray(data)
    for _ in range(int(rng.geometric(0.4))):
        size = len(out)
        at = int(rng.integers(size + 1))
        span = int(min(rng.geometric(0.1), size))
        change = rng.integers(8)
        if change == 0 and size:
            out[at % size] ^= 1 << int(rng.integers(8))
        elif change == 1 and size:
            out[at % size] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, 10, 34, 44]))
        elif change == 2:
            out[at : at + span] = rng.bytes(span)
        elif change == 3:
            del out[at : at + span]
        elif change == 4:
            out[at:at] = rng.bytes(span)
        elif change == 5:
            out[at:at] = out[at : at + span] * int(rng.integers(1, 4))
        elif change == 6:
            start = int(rng.integers(len(other) + 1))
            out[at : at + span] = other[start : start + span]
        elif rng.random() < 0.3:
            del out[at:]
    return bytes(out)


def random_csv(rng: np.random.Generator) -> bytes:
    """Rows of odd words, mostly as many in each as in the header, in one of several encodings."""
    width, rows = int(rng.integers(1, 6)), int(rng.integers(0, 12))
    delimiter = rng.choice([",", ";", "\t", "|"], p=[0.7, 0.1, 0.1, 0.1])
    pools = [rng.choice(WORDS, int(rng.integers(1, 8))) for _ in range(width)]
    lines = [[f"c{i}" if rng.random() < 0.9 else str(rng.choice(WORDS)) for i in range(width)]]
    for _ in range(rows):
        lines.append([str(rng.choice(pool)) for pool in pools])
        if rng.random() < 0.02:
            lines[-1].append("more")
    if rng.random() < 0.5:
        lines = [['"' + word.replace('"', '""') + '"' for word in line] for line in lines]
    end = rng.choice(["\n", "\r\n", "\r"])
    text = end.join(delimiter.join(line) for line in lines) + (end if rng.random() < 0.8 else "")
    encoding = rng.choice(["utf-8", "utf-8-sig", "latin-1", "utf-16"], p=[0.85, 0.05, 0.05, 0.05])
    return text.encode(str(encoding), "replace")


def resealed(data: bytes, rng: np.random.Generator) -> bytes:
    """A model file with changed contents and a right checksum, by the definition in `widegp.persist`."""
    from safetensors import numpy as safetensors

    length = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["header"])
    arrays = dict(safetensors.load(data))
    for _ in range(int(rng.geometric(0.6))):
        if arrays and rng.random() < 0.4:
            name = str(rng.choice(sorted(arrays)))
            arrays |= changed_array(name, arrays.pop(name), rng)
        else:
            change_json(header, rng)
    blank = "0" * 64
    text = {"header": json.dumps(header), "sha256": blank}
    sealed = bytearray(safetensors.save(arrays, metadata=text))
    start = sealed.index(f'"sha256":"{blank}"'.encode()) + len('"sha256":"')
    sealed[start : start + 64] = hashlib.sha256(sealed).hexdigest().encode()
    return bytes(sealed)


def changed_array(name: str, a: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The array with other values, shape, type or name, or none at all."""
    change = rng.integers(6)
    if change == 0:
        return {}
    if change == 1:
        return {f"{name}2": a}
    if change == 2 and a.size:
        b = a.astype(float)
        b.flat[int(rng.integers(a.size))] = rng.choice([np.nan, np.inf, 1e300, -1.0, 0.0])
        return {name: b}
    if change == 3:
        return {name: a[: a.shape[0] // 2].copy() if a.ndim else a}
    if change == 4:
        return {name: a.astype(rng.choice(["int8", "float32", "bool", "uint64"]))}
    return {name: np.zeros((0,) * int(rng.integers(1, 4)))}


def change_json(value: Any, rng: np.random.Generator) -> None:
    """Walk to a random place and delete, replace, rename or repeat what stands there."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = keys[int(rng.integers(len(keys)))]
        inner = value[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            value = inner
            continue
        change = rng.integers(4)
        if change == 0:
            del value[key]
        elif change == 1 and isinstance(value, dict):
            value[f"{key}x"] = value.pop(key)
        elif change == 2:
            value[key] = [inner, inner]
        else:
            value[key] = copy.deepcopy(ODD_JSON[int(rng.integers(len(ODD_JSON)))])
        return


def make_case(case: int, seed: int, valid: dict[str, bytes], folder: Path) -> tuple[str, Path]:
    """What case ``case`` is, and its file or folder."""
    rng = np.random.default_rng([seed, case])
    tables = [name for name in sorted(valid) if not name.endswith(".model")]
    saved = [name for name in sorted(valid) if name.endswith(".model")]
    name, other = str(rng.choice(tables)), valid[str(rng.choice(tables))]
    kind = str(rng.choice(
        ["bytes", "text", "table", "folder", "model", "sealed model"], p=[0.05, 0.3, 0.43, 0.02, 0.1, 0.1]
    ))  # fmt: skip
    path = folder / f"case{case}{Path(name).suffix}"
    if kind == "bytes":
        path.write_bytes(rng.bytes(int(rng.integers(0, 200))))
    elif kind == "text":
        path = folder / f"case{case}.{rng.choice(['csv', 'tsv', 'txt'])}"
        data = random_csv(rng)
        path.write_bytes(mutated(data, rng, other) if rng.random() < 0.3 else data)
    elif kind == "table":
        kind = f"mutated {Path(name).suffix}"
        path.write_bytes(mutated(valid[name], rng, other))
    elif kind == "folder":
        path = folder / f"case{case}"
        path.mkdir()
        (path / "a.parquet").write_bytes(valid["zstd.parquet"])
        (path / "b.parquet").write_bytes(mutated(valid["none.parquet"], rng, other))
    else:
        data, path = valid[str(rng.choice(saved))], folder / f"case{case}.model"
        path.write_bytes(mutated(data, rng, other) if kind == "model" else resealed(data, rng))
    return kind, path


def use_table(path: Path, rng: np.random.Generator, encoder: Any) -> None:
    """Everything a fit and a prediction do with a table before the model sees it."""
    from widegp.data.columns import TableEncoding
    from widegp.data.tables import TableError, open_table

    source = open_table(path)
    table = source.read()
    steps: list[Callable[[], Any]] = [
        lambda: [encoder.transform(batch) for batch in source.batches(rows=20)],
        lambda: round_trip(TableEncoding.fit(table, str(rng.choice(source.names))), table),
        lambda: round_trip(TableEncoding.fit(table, None, missing="refuse"), table),
        lambda: [source.sha256(), list(source.batches(rows=1000, columns=source.names[:1]))],
    ]
    for step in steps:
        try:
            step()
        except TableError as error:
            check_words(error)


def round_trip(encoder: Any, table: Any) -> None:
    again = type(encoder).from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again == encoder, "the encoder changed on its way through JSON"
    X, said = again.transform(table)
    assert X.shape == (table.num_rows, len(encoder.feature_names)) and np.isfinite(X).all()
    assert not said, f"training rows look odd: {said}"
    if encoder.target_name is not None:
        assert np.isfinite(encoder.target(table)).all()


def check_words(error: Exception) -> None:
    """One line, and of tables none that is a slip of our own code in the words of a bad file."""
    cause = error.__cause__
    arrows = type(cause).__module__.startswith("pyarrow")  # whose errors also derive from KeyError and others
    if type(error).__name__ == "TableError" and isinstance(cause, SLIPS) and not arrows:
        raise AssertionError(f"a slip told as a bad table: {cause!r}")
    text = str(error)
    assert "\n" not in text and len(text) < 1000 and text[-1] in ".?", f"unclear message: {text!r}"


def worker(folder: Path, seed: int, first: int, last: int, until: float) -> None:
    """Runs cases first, ..., last - 1; notes each before it starts, and prints what is not allowed."""
    import widegp
    from widegp.data.columns import TableEncoding
    from widegp.data.tables import TableError, open_table
    from widegp.persist import ModelFileError

    valid = {path.name: path.read_bytes() for path in (folder / "seeds").iterdir()}
    encoder = TableEncoding.fit(open_table(folder / "seeds" / "plain.csv").read(), "y")
    widegp.load(folder / "seeds" / "full.model")
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    ends: Counter[str] = Counter()
    note = os.open(folder / "progress", os.O_WRONLY | os.O_CREAT)
    for case in range(first, last):
        if time.time() > until:
            break
        os.pwrite(note, f"{case:20d}".encode(), 0)
        kind, path = make_case(case, seed, valid, folder)
        try:
            try:
                if path.suffix == ".model":
                    widegp.load(path)
                else:
                    use_table(path, np.random.default_rng([seed, case, 1]), encoder)
                ends[f"{kind}: read"] += 1
            except (TableError, ModelFileError) as error:
                check_words(error)
                ends[f"{kind}: refused"] += 1
        except Exception as error:
            ends[f"{kind}: FAULT"] += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = {"case": case, "kind": kind, "error": f"{type(error).__name__}: {error}"[:300]}
            print(json.dumps(said | {"at": f"{where.filename}:{where.lineno}"}), flush=True)
        finally:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    os.pwrite(note, f"{last:20d}".encode(), 0)
    print(json.dumps({"ends": ends}), flush=True)


def run_chunk(folder: Path, arguments: list[str]) -> tuple[int, str, str]:
    """Return code, output and errors of one child; killed if it stays on one case for long."""
    child = subprocess.Popen(
        [sys.executable, __file__, *arguments, "--worker", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    progress, seen, since = folder / "progress", "", time.monotonic()
    while True:
        try:
            out, err = child.communicate(timeout=2.0)
            return child.returncode, out, err
        except subprocess.TimeoutExpired:
            now = progress.read_text() if progress.exists() else ""
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                child.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--until", type=float, default=float("inf"), help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        options.first, options.cases = options.case, 1
    last = options.first + options.cases
    if options.worker:
        worker(options.worker, options.seed, options.first, last, options.until)
        return 0
    began, ends, faults = time.time(), Counter[str](), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "seeds").mkdir()
        seeds(folder / "seeds")
        until, case = began + options.seconds, options.first
        while case < last and time.time() < until:
            count = min(CHUNK, last - case)
            arguments = ["--first", str(case), "--cases", str(count), "--seed", str(options.seed)]
            code, out, err = run_chunk(folder, [*arguments, "--until", str(until)])
            for line in io.StringIO(out):
                said = json.loads(line)
                ends.update(said.get("ends", {}))
                faults += [said] if "case" in said else []
            if code != 0:
                case = int((folder / "progress").read_text())
                faults.append({"case": case, "kind": "child", "error": f"exit code {code}", "at": err[-500:]})
                ends["child died: FAULT"] += 1
            case = case + 1 if code else case + count
            done, seconds = case - options.first, time.time() - began
            print(f"{done:,} cases, {len(faults)} faults, {seconds:.0f} s", flush=True)
    for fault in faults:
        print(json.dumps(fault))
    print(json.dumps(dict(sorted(ends.items())), indent=1))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
