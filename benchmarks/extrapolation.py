"""Intervals beyond the training range: ``python benchmarks/extrapolation.py`` (the table of docs/faq.md).

200 rows with x uniform on [-1, 1] and noise of sd 0.1; per function and range of x the share of 2,000 new
values inside their 95% interval, and its mean width.
"""

from __future__ import annotations

import argparse

import numpy as np

from widegp import WideGPRegressor

FUNCTIONS = {"2x": lambda x: 2 * x, "x²": np.square, "sin 3x": lambda x: np.sin(3 * x), "exp x": np.exp}
RANGES = ((0.0, 1.0), (1.0, 1.5), (1.5, 2.0), (2.0, 3.0))
ROWS, NEW_ROWS, NOISE = 200, 2000, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    print("| function |" + "".join(f" {low:g} to {high:g} |" for low, high in RANGES))
    for name, function in FUNCTIONS.items():
        rng, cells = np.random.default_rng(seed), []
        x = rng.uniform(-1, 1, ROWS)
        model = WideGPRegressor(random_state=seed)
        model.fit(x[:, None], function(x) + NOISE * rng.standard_normal(ROWS))
        for ends in RANGES:
            new = rng.uniform(*ends, NEW_ROWS)
            y = function(new) + NOISE * rng.standard_normal(NEW_ROWS)
            lower, upper = model.predict_interval(new[:, None])
            inside, width = np.mean((lower <= y) & (y <= upper)), np.mean(upper - lower)
            cells.append(f" {inside:.0%}, {width:.2f} |")
        print(f"| {name} |" + "".join(cells), flush=True)


if __name__ == "__main__":
    main()
