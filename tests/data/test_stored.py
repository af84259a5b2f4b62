"""Tables that are not in memory give the fit of the same table in memory."""

from __future__ import annotations

import tracemalloc
import warnings

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widegp import WideGPRegressor
from widegp.data.arrays import empty_mapped, is_mapped, take
from widegp.data.preprocessing import InputScaler
from widegp.data.stored import is_stored, read_stored


def table(n=700, n_inputs=4):
    rng = np.random.default_rng(0)
    X = 3.0 + 2.0 * rng.normal(size=(n, n_inputs))
    X[:, 1] = 7.0
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)


def mapped(tmp_path, X):
    np.save(tmp_path / "X.npy", X)
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def parquet(tmp_path, X, y):
    """A folder of three files, one of them empty, with the target in the middle of the columns."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "rows"
    folder.mkdir()
    columns = {"a": X[:, 0], "b": X[:, 1], "target": y, "c": X[:, 2], "d": X[:, 3]}
    for name, part in (("1", slice(0, 0)), ("2", slice(0, 300)), ("3", slice(300, None))):
        pq.write_table(pa.table({k: v[part] for k, v in columns.items()}), folder / f"{name}.parquet")
    return folder


def sources(kind, tmp_path, X, y):
    if kind == "memmap":
        return mapped(tmp_path, X), y
    if kind == "float32":
        return mapped(tmp_path, X.astype(np.float32)), y
    if kind == "npy":
        mapped(tmp_path, X)
        return str(tmp_path / "X.npy"), y
    if kind == "parquet":
        return parquet(tmp_path, X, y), "target"
    if kind == "dask array":
        da = pytest.importorskip("dask.array")
        return da.from_array(X, chunks=(250, 2)), da.from_array(y, chunks=300)
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd")).assign(target=y)
    return dd.from_pandas(frame, npartitions=3), "target"


KINDS = ["memmap", "float32", "npy", "parquet", "dask array", "dask frame"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_is_read_as_the_table_it_is(kind, tmp_path):
    X, y = table()
    source, target = sources(kind, tmp_path, X, y)
    assert is_stored(source)
    read = read_stored(source, target, "standard")
    assert is_mapped(read.X) and read.names == (list("abcd") if isinstance(target, str) else None)
    np.testing.assert_array_equal(read.y, y)
    tolerance = 1e-5 if kind == "float32" else 1e-12
    np.testing.assert_allclose(read.X, InputScaler.fit(X).transform(X), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("approximation", ["vfe", "full-scale"])
@pytest.mark.parametrize("kind", ["memmap", "parquet"])
def test_a_fit_is_that_of_the_table_in_memory(kind, approximation, tmp_path):
    X, y = table()
    source, target = sources(kind, tmp_path, X, y)
    model = WideGPRegressor.plain(
        approximation=approximation, rank=20, neighbors=5, predict_neighbors=20, max_iter=3, block_rows=200,
        start={"sigma_u2": 0.3}, random_state=0, scale_inputs="minmax",
        # Cells of rows in a file are halved by their leading coordinates alone, and so are others.
        predict_cells=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stored = model.fit(source, target)
        value, predicted = stored.log_posterior_, stored.predict(X[:10])
        names = getattr(stored, "feature_names_in_", None)
        memory = model.fit(X, y)
    assert value == pytest.approx(memory.log_posterior_, rel=1e-8)
    np.testing.assert_allclose(predicted, memory.predict(X[:10]), rtol=1e-7)
    assert names is None if kind == "memmap" else list(names) == list("abcd")
    assert not hasattr(memory, "feature_names_in_")


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of fixed size, which a large table makes negligible, made small for a table of 48 MB."""
    sizes = {
        "data.arrays.CHUNK_BYTES": 2**20, "anchors.SAMPLE_ROWS": 500, "anchors.SPREAD_ROWS": 500,
        "neighbors.search.EXACT_ROWS": 2_000, "neighbors.blocks._DIRECTION_ROWS": 500,
        "neighbors.lists._ADDED": 500, "neighbors.lists._SCALED_ROWS": 500,
        "neighbors.lists._ROWS_PER_LIST": 4, "neighbors.cells.RUN_ROWS": 500,
    }  # fmt: skip
    for name, size in sizes.items():
        monkeypatch.setattr(f"widegp.{name}", size)


@pytest.mark.parametrize("approximation", ["vfe", pytest.param("full-scale", marks=pytest.mark.slow)])
def test_memory_stays_far_below_the_table(approximation, tmp_path, small_pieces):
    """No array of the table's size is allocated; NumPy tells tracemalloc of every one outside files."""
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float64, (20_000, 300))
    rng = np.random.default_rng(0)
    for k in range(0, len(X), 1_000):
        X[k : k + 1_000] = rng.normal(size=(1_000, 4)) @ rng.normal(size=(4, 300))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=len(X))
    # Cells hold two fifths of as many rows, and their centres stay in memory: with 8 in place of 100 they
    # would be a third of the table, with the default of 400 they are a 160th.
    model = WideGPRegressor.plain(
        approximation=approximation, rank=8, neighbors=4, predict_neighbors=100, max_iter=0, block_rows=500,
        start={"sigma_u2": 0.01}, random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:3_000], y[:3_000]).predict(X[:5])  # imports and compiled code are no part of the matter
        tracemalloc.start()
        try:
            model.fit(X, y).predict(np.asarray(X[:50]))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < X.nbytes / 3


tables = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 30), st.integers(1, 4)),
    elements=st.integers(-(10**6), 10**6).map(lambda k: k / 1_000),
)


@settings(max_examples=60, deadline=None)
@given(tables, st.sampled_from(["standard", "minmax", "none"]), st.integers(1, 12))
def test_a_scaler_fitted_in_parts_is_the_scaler_of_the_whole(X, kind, size):
    whole = InputScaler.fit(X, kind)
    parts = InputScaler.fit_stream((X[k : k + size] for k in range(0, len(X), size)), kind)
    spread = np.ptp(X, axis=0)
    np.testing.assert_allclose(parts.shift, whole.shift, rtol=1e-9, atol=1e-9 * np.abs(X).max())
    # A column that varies by little more than rounding keeps few digits in one pass.
    clear = spread > 1e-6 * np.abs(X).max(axis=0)
    np.testing.assert_allclose(parts.scale[clear], whole.scale[clear], rtol=1e-6)
    np.testing.assert_array_equal(parts.scale[spread == 0], whole.scale[spread == 0])


def test_arrays_live_where_their_table_lives(tmp_path):
    X, _ = table()
    rows = np.random.default_rng(0).permutation(len(X))
    for source in (X, mapped(tmp_path, X)):
        out = take(source, rows, lambda part: 2 * part[:, :2], width=2)
        assert is_mapped(out) == is_mapped(source) == is_mapped(source[3:])
        np.testing.assert_array_equal(out, 2 * X[rows, :2])
    assert not is_mapped(mapped(tmp_path, X)[rows]) and empty_mapped((0, 3)).shape == (0, 3)


def test_errors_name_the_row_and_the_column(tmp_path):
    X, y = table()
    folder = parquet(tmp_path, X, y)
    with pytest.raises(ValueError, match=r"one of a, b, target, c, d; got 'price'"):
        read_stored(folder, "price", None)
    with pytest.raises(ValueError, match="got a ndarray"):
        read_stored(folder, y, None)
    with pytest.raises(ValueError, match="does not exist; check the path"):
        read_stored(tmp_path / "elsewhere", "target", None)
    with pytest.raises(ValueError, match="700 rows; pass one number per row"):
        read_stored(mapped(tmp_path, X), y[:5], None)
    with pytest.raises(ValueError, match="Unknown input scaling 'robust'"):
        read_stored(mapped(tmp_path, X), y, "robust")
    X[410, 2] = np.nan
    with pytest.raises(ValueError, match="Column 2 is nan in row 410"):
        read_stored(mapped(tmp_path, X), y, None)
    y[9] = np.inf
    with pytest.raises(ValueError, match="The target is inf in row 9"):
        read_stored(mapped(tmp_path, table()[0]), y, None)


def test_text_columns_are_named(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": ["x", "y"], "b": [1.0, 2.0]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="Column 'a' does not hold numbers"):
        read_stored(tmp_path, "b", None)
