"""What a target holds, and its codes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from widegp.data.errors import TableError
from widegp.data.tables import open_table
from widegp.data.target_kinds import coded, target_kind

N = 40
RNG = np.random.default_rng(0)


def kind_of(values):
    return target_kind(open_table(pd.DataFrame({"x": np.arange(len(values)), "y": values})), "y")


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


def test_many_words_are_refused_in_one_sentence():
    with pytest.raises(TableError, match=r"3 classes .*WideGPClassifier"):
        kind_of(["a", "b", "c"] * 10)


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
