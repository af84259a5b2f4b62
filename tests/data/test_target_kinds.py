"""What a target holds, and its codes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars
import pytest

from widegp.data.errors import TableError
from widegp.data.tables import open_table
from widegp.data.target_kinds import coded, target_kind

N = 40
RNG = np.random.default_rng(0)


def kind_of(values, asked=None):
    return target_kind(open_table(pd.DataFrame({"x": np.arange(len(values)), "y": values})), "y", asked)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["no", "yes"] * 20, ("no", "yes")), ([0, 1] * 20, ("0", "1")), ([1.0, 2.0] * 20, ("1", "2")),
        ([False, True] * 20, ("False", "True")), (pd.Categorical(["b", "a"] * 20), ("a", "b")),
        ([None, "no", "yes"] * 10, ("no", "yes")),
    ],
)  # fmt: skip
def test_two_values_are_classes(values, classes):
    kind = kind_of(values)
    assert kind.classes == classes and kind.likelihood == "logit"
    assert classes[0] in kind.words and classes[1] in kind.words


def test_numbers_stay_numbers_and_counts_are_hinted_at():
    assert kind_of(RNG.normal(size=N)) == ("gaussian", None, "")
    assert kind_of([1, 2, 3] * 10).words == ""
    assert kind_of([5.0, 7.0]).classes is None  # too few rows to say
    assert kind_of(["1,234", "5,678"] * 9).classes is None  # numbers, in a notation still open
    assert kind_of([">50K", "<=50K"] * 9).classes == ("<=50K", ">50K")
    counts = kind_of(RNG.poisson(1.0, N))
    assert counts.likelihood == "gaussian" and "negative-binomial" in counts.words


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["b", "a", "c"] * 10, ("a", "b", "c")),
        (pd.Categorical(["x", "y", "w"] * 10), ("w", "x", "y")),
        ([f"k{i:02d}" for i in range(7)] * 5, tuple(f"k{i:02d}" for i in range(7))),
    ],
)
def test_words_and_categories_are_classes(values, classes):
    kind = kind_of(values)
    assert kind.classes == classes and kind.likelihood == "logit"
    assert f"has {len(classes)} classes: {', '.join(classes[:5])}" in kind.words
    assert kind.words.endswith("The model predicts the probability of each.")


def test_classes_can_be_asked_for_and_refused():
    asked = kind_of([10, 2, 3] * 10, "probit")
    assert asked[:2] == ("probit", ("2", "3", "10"))  # in the order of the numbers
    assert kind_of([0, 1] * 20, "gaussian") == ("gaussian", None, "")
    assert kind_of([0, 1, 2] * 20, "poisson") == ("poisson", None, "")
    with pytest.raises(TableError, match=r"2 to 50 classes.*has 60 values"):
        kind_of(np.arange(60), "logit")
    assert kind_of([f"w{i}" for i in range(60)]).classes is None  # too many; the reader says what they are
    assert kind_of(["1,5", "2,5", "n/a"] * 9).classes is None


def test_a_value_that_is_no_class_is_named_with_its_row():
    source = open_table(pd.DataFrame({"y": ["a", "b", "z"]}))
    with pytest.raises(TableError, match=r"is 'z' in row 3.*classes are a, b"):
        coded(source, "y", ("a", "b"))


def test_codes_keep_rows_gaps_and_other_columns(tmp_path):
    y = ["yes", "no", None, "no", "yes", "no"]
    frame = pd.DataFrame({"x": np.arange(6.0), "y": y, "z": list("abcdef")})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for source in (open_table(frame), open_table(tmp_path / "t.csv")):
        made = coded(source, "y", ("no", "yes"))
        for rows in (2, 4, 100):
            read = pd.concat([batch.to_pandas() for batch in made.batches(rows)])
            np.testing.assert_array_equal(read["y"], [1, 0, np.nan, 0, 1, 0])
            assert list(read["z"]) == list("abcdef")
        assert next(iter(made.batches(100, ["z"]))).schema.names == ["z"]


@pytest.mark.parametrize("values", [[0, 1, 2] * 10, ["0", "1", "2"] * 10, ["10", "2", "1"] * 10])
def test_a_category_is_classes_whatever_its_levels_look_like(values):
    classes = tuple(sorted({str(value) for value in values}, key=int))
    for typed in (pd.Categorical(values), pd.Series(values, dtype="category")):
        assert kind_of(typed).classes == classes


def test_gaps_are_no_class_however_they_are_written():
    kind = kind_of(["yes", "no", "", "NA", "yes "] * 8)
    assert kind.classes == ("no", "yes")
    frame = pd.DataFrame({"x": range(5), "y": ["yes", "no", "", "NA", "yes "]})
    codes = coded(open_table(frame), "y", kind.classes).read(["y"]).column("y")
    assert codes.to_pylist() == [1.0, 0.0, None, None, 1.0]


def test_a_number_that_is_none_is_no_class():
    table = polars.DataFrame({"x": np.arange(30.0), "y": [0.0, 1.0, float("nan")] * 10})
    assert target_kind(open_table(table), "y").classes == ("0", "1")
    codes = coded(open_table(table), "y", ("0", "1")).read(["y"]).column("y")
    assert codes.to_pylist()[:3] == [0.0, 1.0, None]
    with pytest.raises(TableError, match="'inf' in row 1"):
        coded(open_table(pd.DataFrame({"y": [np.inf, 0.0]})), "y", ("0", "1"))


@pytest.mark.parametrize("as_type", [str, "category"])
def test_words_for_nothing_are_classes_among_words(as_type):
    table = pd.DataFrame({"a": np.arange(60.0), "y": pd.Series(["none", "mild", "NA"] * 20, dtype=as_type)})
    source = open_table(table)
    kind = target_kind(source, "y")
    assert kind.classes == ("mild", "none")
    (batch,) = coded(source, "y", kind.classes).batches()
    assert batch.column("y").to_pylist() == [1.0, 0.0, None] * 20


def test_classes_of_booleans_have_one_name():
    y = pd.Series([True, False, True] * 20)
    plain, category = (open_table(pd.DataFrame({"y": one})) for one in (y, y.astype("category")))
    classes = target_kind(plain, "y").classes
    assert classes == target_kind(category, "y").classes == ("False", "True")
    for source in (plain, category):
        (batch,) = coded(source, "y", classes).batches()
        assert batch.column("y").to_pylist() == [1.0, 0.0, 1.0] * 20


def test_classes_that_differ_in_capitals_alone_are_pointed_out():
    assert "Yes and yes differ in capitals alone" in kind_of(["yes", "Yes", "no", "maybe"] * 10).words
    assert "capitals" not in kind_of(["yes", "no", "maybe"] * 10).words
