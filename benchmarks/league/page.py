"""docs/league.md from the committed CSVs, no number typed by hand: ``python -m benchmarks.league.page``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.league import page_league, page_studies, standings
from benchmarks.league.records import FOLDER, HERE

PAGE = HERE.parents[1] / "docs" / "league.md"
LARGEST = 200_000
HEAD = """# The league

Where widegp stands beside other models for tables, losses as plainly as wins. Everything below is made from
`benchmarks/league/results/*.csv` by `make league-page`."""


def made(folder: Path = FOLDER) -> tuple[str, dict[str, Any]]:
    """The text of the page, and its pictures by name."""
    parts, drawn = [HEAD], {}
    rows = standings.load("league", folder)
    if rows.empty:
        parts.append("The league has not been run yet: `make league`.")
    else:
        texts, pictures = page_league.sections(rows)
        parts += texts
        drawn |= pictures
    studies = {
        "sensitivity": page_studies.dials,
        "ablation": page_studies.parts,
        "scaling": page_studies.clusters,
    }
    text, _ = page_studies.metrics(standings.load("metric", folder), rows)
    parts.append(text)
    for study, section in studies.items():
        text, pictures = section(standings.load(study, folder))
        parts.append(text)
        drawn |= pictures
    return "\n\n".join(parts) + "\n", drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=FOLDER, help="the folder of the CSVs")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page; pictures go to league/ beside it")
    asked = parser.parse_args()
    text, drawn = made(asked.results)
    pictures = asked.out.parent / "league"
    pictures.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(text)
    # The same bytes for the same picture: no date, and identifiers that do not change.
    settings: Any = {"svg.hashsalt": "widegp", "svg.fonttype": "path", "font.size": 9}
    for name, figure in drawn.items():
        path = pictures / f"{name}.svg"
        with matplotlib.rc_context(settings):
            figure.savefig(path, metadata={"Date": None}, dpi=110)
        if path.stat().st_size > LARGEST:
            raise SystemExit(f"{path} is larger than {LARGEST:,} bytes; draw fewer points.")


if __name__ == "__main__":
    main()
