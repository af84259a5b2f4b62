"""A made-up table of houses, with what real tables have: a category, a date, gaps, and columns of no use."""

from __future__ import annotations

import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

ROWS = 600
COLUMNS = ("id", "area", "rooms", "year_built", "neighbourhood", "garden", "sold_on", "energy", "price")
# What a place adds to the price, and how many houses of a hundred are there.
NEIGHBOURHOODS = {
    "centre": (90_000, 20), "harbour": (45_000, 15), "old town": (70_000, 15), "park side": (20_000, 25),
    "rural": (-40_000, 25),
}  # fmt: skip
NOISE_SD = 12_000
FIRST_DAY, DAYS = date(2021, 1, 4), 1400


def house(number: int, rng: np.random.Generator) -> list[object]:
    """One row: the price is a smooth function of the other columns and normal noise of known size."""
    area = float(rng.uniform(35, 210))
    rooms = int(np.clip(round(area / 28 + rng.normal(0, 0.8)), 1, 9))
    built = int(rng.integers(1890, 2022))
    shares = np.array([share for _, share in NEIGHBOURHOODS.values()]) / 100
    place = str(rng.choice(list(NEIGHBOURHOODS), p=shares))
    garden = bool(rng.random() < (0.8 if place in ("rural", "park side") else 0.25))
    day = int(rng.integers(DAYS))
    energy = float(np.clip(260 - 1.3 * (built - 1890) + rng.normal(0, 30), 20, None))
    price = (
        140_000
        + 1_900 * area
        + NEIGHBOURHOODS[place][0]
        + 15_000 * garden
        # Old houses are sought after again, and the market turned in the third year.
        + 45_000 * ((built - 1955) / 65) ** 2
        + 30_000 * np.sin(2 * np.pi * day / 1800)
        - 120 * energy
        + rng.normal(0, NOISE_SD)
    )
    # Certificates are often missing, and sometimes nobody wrote the year down.
    certificate = "" if rng.random() < 0.15 else round(energy)
    year = "" if rng.random() < 0.04 else built
    sold_on = FIRST_DAY + timedelta(days=day)
    answer = "yes" if garden else "no"
    cells = [f"h{number:04d}", round(area, 1), rooms, year, place, answer, sold_on.isoformat(), certificate]
    return [*cells, round(float(price))]


def write(path: Path, rows: int = ROWS, seed: int = 0) -> None:
    """The table as CSV, the same for the same seed."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        table.writerows(house(i + 1, rng) for i in range(rows))
