"""Every figure of RESULTS.md, one process each: ``make bench`` (about an hour and a half on two cores)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNS = [
    ["simulated.py"],
    ["full_scale_cost.py"],
    ["accuracy.py", "superconductivity", "--paper"],
    ["accuracy.py", "superconductivity", "--approximation", "vfe", "--rank", "500"],
    ["accuracy.py", "superconductivity"],
    ["accuracy.py", "superconductivity", "--ard"],
    ["accuracy.py", "superconductivity", "--warp", "auto"],
    ["accuracy.py", "yearpredictionmsd_8162"],
    ["accuracy.py", "elevators", "--ard"],
    ["accuracy.py", "pol", "--ard"],
    ["memory.py", "400000", "20", "300", "vfe"],
    ["memory.py", "300000", "20", "200", "full-scale", "900"],
    ["neighbors.py"],
]


def main() -> None:
    wanted = sys.argv[1:]
    for run in RUNS:
        if not wanted or any(word in " ".join(run) for word in wanted):
            print("$ python benchmarks/" + " ".join(run), flush=True)
            subprocess.run([sys.executable, str(HERE / run[0]), *run[1:]], check=False)


if __name__ == "__main__":
    main()
