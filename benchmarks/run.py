"""Every figure of RESULTS.md, one process each: ``make bench`` (some two hours on two cores).

``make bench ARGS="peers scaling"`` runs the commands that contain one of the words. Output is printed, kept
in results.json and shown at the end of RESULTS.md; commands not asked for keep their last output there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from widegp.machine import versions
from widegp.measure import machine

HERE = Path(__file__).resolve().parent
STORE, PAGE = HERE / "results.json", HERE / "RESULTS.md"
OPEN, CLOSE = "<!-- bench -->", "<!-- /bench -->"
PEERS = ("gpytorch", "torch", "gpflow", "tensorflow", "gpboost")
RUNS = [
    ["simulated.py"],
    ["full_scale_cost.py"],
    ["accuracy.py", "superconductivity", "yearpredictionmsd_8162", "elevators", "pol"],
    ["accuracy.py", "superconductivity", "--kind", "paper"],
    ["accuracy.py", "superconductivity", "yearpredictionmsd_8162", "--kind", "plain"],
    ["accuracy.py", "elevators", "pol", "--kind", "plain", "--set", "metric=ard"],
    ["accuracy.py", "superconductivity", "--kind", "plain", "--set", "target_transform=auto"],
    ["accuracy.py", "superconductivity", "--kind", "plain", "--set", "approximation=vfe", "rank=500"],
    ["mixed_tables.py", "hotel_rates", "diamonds"],
    ["boosting.py", "airfoil", "elevators", "pol", "superconductivity"],
    ["memory.py", "400000", "20", "300", "vfe"],
    ["memory.py", "300000", "20", "200", "full-scale", "900"],
    ["neighbors.py"],
    ["peers.py", "evaluate"],
    ["peers.py", "evaluate", "--rows", "100000", "--repeats", "3"],
    ["peers.py", "converge"],
    ["peers.py", "gpboost"],
    ["first_call.py"],
    ["scaling.py", "vfe"],
    ["scaling.py", "full-scale"],
]


def run(command: list[str]) -> dict[str, Any]:
    """The record of one command: what it printed, how it ended, when and where."""
    print("$ python benchmarks/" + " ".join(command), flush=True)
    record = {"date": date.today().isoformat(), "machine": machine()}
    if command[0] == "peers.py":
        record["machine"]["versions"] |= versions(PEERS)
    began, lines = time.perf_counter(), []
    program = [sys.executable, str(HERE / command[0]), *command[1:]]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return record | {
        "lines": lines, "exit_code": process.returncode, "seconds": round(time.perf_counter() - began, 1)
    }  # fmt: skip


def section(records: dict[str, dict[str, Any]]) -> str:
    """What RESULTS.md says of the records, between its two marks; records by command, in this order."""
    parts = [OPEN, "## Latest run", ""]
    for command, record in records.items():
        here = record["machine"]
        libraries = ", ".join(f"{name} {number}" for name, number in here["versions"].items())
        failed = f" It ended with exit code {record['exit_code']}." if record["exit_code"] else ""
        parts += [
            f"### `python benchmarks/{command}`",
            "",
            f"{record['date']}, {record['seconds']:.0f} s, {here['processor']}, {here['threads']} of"
            f" {here['cores']} cores, {here['memory_gib']} GiB, load {here['load']} before; {here['system']},"
            f" Python {here['python']}, {libraries}.{failed}",
            "",
            "```text",
            *record["lines"],
            "```",
            "",
        ]
    return "\n".join([*parts, CLOSE])


def with_section(page: str, text: str) -> str:
    """The page with this section in place of the one between the marks, or at its end where it has none."""
    marked = re.compile(re.escape(OPEN) + ".*" + re.escape(CLOSE), re.DOTALL)
    if marked.search(page):
        return marked.sub(lambda _: text, page)
    return page.rstrip("\n") + "\n\n" + text + "\n"


def keep(command: list[str], record: dict[str, Any]) -> None:
    """Written after each command, so that stopping a long run loses nothing that is done."""
    records = json.loads(STORE.read_text()) if STORE.exists() else {}
    records[" ".join(command)] = record
    records = {name: records[name] for name in map(" ".join, RUNS) if name in records}
    STORE.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(with_section(PAGE.read_text(), section(records)))


def main() -> None:
    wanted = sys.argv[1:]
    chosen = [c for c in RUNS if not wanted or any(word in " ".join(c) for word in wanted)]
    if not chosen:
        sys.exit(f"No command contains any of {wanted}; choose words of: {'; '.join(map(' '.join, RUNS))}.")
    for command in chosen:
        keep(command, run(command))


if __name__ == "__main__":
    main()
