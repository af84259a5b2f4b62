"""A table whose noise grows with its target, without a warp: the verdict must see the expensive ones."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.tables import FOLDER

from widegp.report import summarise
from widegp.table_model import TableModel

DIAMONDS = FOLDER / "diamonds.parquet"
# Left to itself a fit chooses otherwise, and its intervals hold 94% of the dear ones too.
PLAIN = {"target_transform": None, "noise": "constant", "metric": "iso", "trees": "none"}


@pytest.mark.slow
@pytest.mark.skipif(
    not DIAMONDS.exists(), reason=f"diamonds.parquet is not in {FOLDER.name}; set WIDEGP_DATA to its folder"
)
def test_the_verdict_on_diamonds_names_the_expensive_ones():
    import pyarrow.parquet as pq

    whole = pq.read_table(DIAMONDS)
    some = whole.take(np.sort(np.random.default_rng(0).choice(whole.num_rows, 5000, replace=False)))
    model = TableModel.fit(some, "price", test_fraction=0.4, approximation="vfe", rank=60, **PLAIN)
    h = model.held_out
    dear = h.mean >= np.sort(h.mean)[-len(h) // 3]
    # What the headline is to say: right for all rows together, and far too narrow for the dear ones.
    assert h.inside.mean() > 0.92 and h.inside[dear].mean() < 0.9
    summary = summarise(model.regressor, h, model.encoder.summary(), model.provenance)
    told = summary["verdict"]
    assert "too narrow for the largest third of the predictions (above" in told["headline"]
    assert told["tone"] == "fair" and told["why"]
    kinds = {notice["kind"] for notice in summary["notices"]}
    assert {"WrongIntervals", "NegativeEnds"} <= kinds
    assert sum("--transform auto" in notice["cure"] for notice in summary["notices"]) >= 1
