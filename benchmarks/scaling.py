"""Time and memory against n: ``python benchmarks/scaling.py [--rows 20000 50000 100000 200000 500000]``.

One objective with gradient of vfe (r = 500, I = 90) and of full-scale (r = 200, m = 30, I = 20), median of 3
after a first call, with the peak of memory above the data, their neighbours and blocks; each size has a fresh
process. The last line of each fits cost = a n^b by least squares on the logarithms: b is 1 for time that is
linear in n and 0 for memory that is flat.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass

from widegp.kernels import Mixed
from widegp.measure import PeakMemory, Setting, evaluation, exponent, machine, table, timed

SIZES = (20_000, 50_000, 100_000, 200_000, 500_000)


@dataclass(frozen=True)
class Case:
    name: str
    inputs: int
    rank: int
    neighbors: int

    @property
    def setting(self) -> Setting:
        return Setting(self.name, self.rank, self.neighbors)


CASES = {"vfe": Case("vfe", 90, 500, 0), "full-scale": Case("full-scale", 20, 200, 30)}


def here(case: Case, rows: int, repeats: int) -> dict[str, float]:
    """Seconds to build, seconds and peak bytes of an evaluation, in this process."""
    kernel = Mixed(sigma_u2=1 / case.inputs)
    # What a first call allocates for good, compiled code and threads, is no part of the cost of rows.
    small = table(2_000, case.inputs)
    evaluation(*small, kernel, 0.1, case.setting)()
    X, y = table(rows, case.inputs)
    began = time.perf_counter()
    work = evaluation(X, y, kernel, 0.1, case.setting)
    built, memory = time.perf_counter() - began, PeakMemory()
    taken = timed(work, repeats)
    return {"build": built, "seconds": taken.median, "bytes": memory.bytes(), "data": X.nbytes + y.nbytes}


def elsewhere(case: Case, rows: int, repeats: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", case.name, "--rows", str(rows), "--repeats", str(repeats)]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help="vfe, full-scale")
    parser.add_argument("--rows", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", choices=list(CASES), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(here(CASES[asked.child], asked.rows[0], asked.repeats)))
        return
    print(f"{machine()['threads']} threads, float64, median of {asked.repeats}")
    for case in (CASES[name] for name in asked.cases):
        found = []
        for rows in asked.rows:
            out = elsewhere(case, rows, asked.repeats)
            found.append(out)
            print(
                f"{case.name} n {rows:>7,} I {case.inputs} r {case.rank} m {case.neighbors}:"
                f" {out['seconds']:7.2f} s, {out['bytes'] / 2**20:6.0f} MiB above the data"
                f" ({out['data'] / 2**20:.0f} MiB);"
                f" anchors, neighbours and blocks {out['build']:.1f} s",
                flush=True,
            )
        if len(found) > 1:
            seconds = exponent(asked.rows, [out["seconds"] for out in found])
            memory = exponent(asked.rows, [max(out["bytes"], 1) for out in found])
            print(f"{case.name}: time grows as n^{seconds:.3f}, memory as n^{memory:.3f}", flush=True)


if __name__ == "__main__":
    main()
