"""Run jobs, each in a process of its own: ``python -m benchmarks.league.run league --workers 8 --threads 2``.

Studies are ``league``, ``quick`` (a part of the league), ``sensitivity``, ``ablation``, ``metric`` and
``scaling``.
Results are appended to ``results/STUDY.csv`` beside this file, or to ``--out``; jobs whose row is there
already are left out, so that a run that was stopped goes on when it is called again. A job that fails, or
takes more time or memory than it may, is a row that says so.

The tables are in ``WIDEGP_DATA``, or in ``shared/data`` beside the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.league import ablation, metric, plan, records, scaling, sensitivity
from benchmarks.league.models import MODELS
from benchmarks.league.peers import library_folder, unpacked
from benchmarks.league.records import Job
from benchmarks.league.tables import TABLES
from widegp.machine import versions
from widegp.measure import machine

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.2
STUDIES = {"sensitivity": sensitivity, "ablation": ablation, "metric": metric, "scaling": scaling}
THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip


@dataclass
class Limits:
    """Seconds and GiB of one job; seconds of the run after which none begins, and after which all end."""

    job_s: float
    memory_gib: float
    deadline_s: float
    end_s: float
    began: float = field(default_factory=time.monotonic)

    def late(self) -> bool:
        return time.monotonic() - self.began > self.deadline_s

    def over(self) -> bool:
        return time.monotonic() - self.began > self.end_s


class Runner:
    """Workers that take the next job, each with cores of its own, and write down what came of it."""

    def __init__(self, asked: argparse.Namespace, out: Path) -> None:
        self.asked, self.out = asked, out
        self.limits = Limits(asked.job_seconds, asked.memory_gib, asked.deadline, asked.end)
        self.lock = threading.Lock()
        self.machine = f"{machine()['processor']}, {asked.threads} threads, {asked.workers} at a time"
        self.environment = environment(asked.threads, asked.wheels)

    def run(self, jobs: Iterator[Job]) -> None:
        workers = [threading.Thread(target=self._work, args=(k, jobs)) for k in range(self.asked.workers)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _work(self, slot: int, jobs: Iterator[Job]) -> None:
        while not self.limits.late():
            with self.lock:
                job = next(jobs, None)
            if job is None:
                return
            row = self._row(job, slot)
            if row is None:
                return
            with self.lock:
                records.append(self.out, row)
                print(told(row), flush=True)

    def _row(self, job: Job, slot: int) -> dict[str, Any] | None:
        """The row of a job, or None where the run is over before it is done."""
        model = MODELS.get(job.model)
        known = asdict(job) | {
            "budget_s": self.asked.budget_seconds, "limit_s": self.limits.job_s,
            "threads": self.asked.threads, "code": records.fingerprint(job.model), "machine": self.machine,
            "date": date.today().isoformat(),
            "kind": TABLES[job.table].kind if job.table in TABLES else "",
            "versions": told_versions(model.packages if model else ("widegp", "dask")),
        }  # fmt: skip
        if model is not None and not model.installed:
            return known | {"status": "not installed", "detail": " ".join(model.needs)}
        ended = self._process(known, slot)
        return None if ended is None else known | ended

    def _process(self, known: dict[str, Any], slot: int) -> dict[str, Any] | None:
        with tempfile.TemporaryDirectory() as folder:
            result, errors = Path(folder) / "result.json", Path(folder) / "errors.txt"
            order = json.dumps(known | {"cores": cores_of(slot, self.asked.threads)})
            command = [sys.executable, "-m", "benchmarks.league.job", order, str(result)]
            with errors.open("w") as file:
                process = subprocess.Popen(
                    command, cwd=ROOT, env=self.environment, stdout=file, stderr=file, start_new_session=True
                )
                why = self._watched(process)
            if why == "over":
                return None
            if why or process.returncode != 0 or not result.exists():
                lines = errors.read_text(errors="replace").strip().splitlines()
                code = process.returncode
                detail = lines[-1][:200] if lines and not why else f"exit code {code}"
                return {"status": why or "failed", "detail": "" if why else detail}
            return {"status": "ok", **json.loads(result.read_text())}

    def _watched(self, process: subprocess.Popen[bytes]) -> str:
        """Wait; why the process had to be stopped, or nothing."""
        began = time.monotonic()
        while process.poll() is None:
            why = ""
            if self.limits.over():
                why = "over"
            elif time.monotonic() - began > self.limits.job_s:
                why = "out of time"
            elif resident_gib(process.pid) > self.limits.memory_gib:
                why = "out of memory"
            if why:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return why
            time.sleep(POLL_S)
        return ""


def environment(threads: int, wheels: Path | None) -> dict[str, str]:
    """That of a job: a fixed number of threads, no accelerator, and the peers on its path."""
    found = dict(os.environ) | {name: str(threads) for name in THREADS}
    found |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    # Threads of a library that wait in a busy loop would take cores from another library's.
    found |= {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONWARNINGS": "ignore"}
    paths = [str(ROOT / "src"), str(ROOT)]
    if wheels is not None:
        home = unpacked(wheels)
        paths += [str(home), str(wheels)]
        sys.path += [str(home), str(wheels)]
        library = library_folder(home)
        if library is not None:
            found["LD_LIBRARY_PATH"] = os.pathsep.join(
                [str(library), *filter(None, [found.get("LD_LIBRARY_PATH")])]
            )
    given = filter(None, [found.get("PYTHONPATH")])
    return found | {"PYTHONPATH": os.pathsep.join([*paths, *given])}


def cores_of(slot: int, threads: int) -> list[int]:
    """Cores for one worker alone, or none in particular where there are too few."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))[slot * threads : (slot + 1) * threads]
    return cores if len(cores) == threads else []


def resident_gib(pid: int) -> float:
    with suppress(OSError):
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        if found:
            return int(found[1]) / 2**20
    return 0.0


def told_versions(packages: tuple[str, ...]) -> str:
    python = ".".join(map(str, sys.version_info[:3]))
    found = versions(packages) | {"Python": python}
    return ", ".join(f"{name} {number}" for name, number in found.items())


def told(row: dict[str, Any]) -> str:
    numbers = {k: row[k] for k in ("rmse", "nll", "crps", "log_loss", "log_score", "fit_s") if k in row}
    said = " ".join(f"{name} {number:.3f}" for name, number in numbers.items())
    settings = "" if row["settings"] == "{}" else row["settings"]
    name = f"{row['table']} {row['fold']} {row['seed']} {row['model']}{settings}"
    return f"{name}: {row['status']} {row.get('detail', '')}{said}"


def jobs_of(asked: argparse.Namespace) -> Iterator[Job]:
    if asked.study == "league":
        return plan.league(asked.tables, asked.models, asked.splits)
    if asked.study == "quick":
        return plan.quick()
    return (job for job in STUDIES[asked.study].jobs() if not asked.tables or job.table in asked.tables)


def parsed() -> argparse.Namespace:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("study", choices=("league", "quick", *STUDIES))
    parser.add_argument("--tables", nargs="+", default=[], choices=[*TABLES, "simulated"])
    parser.add_argument("--models", nargs="+", default=[], choices=list(MODELS))
    parser.add_argument("--splits", type=int, help="of each table, at most (10 folds, or 3 seeds)")
    parser.add_argument("--workers", type=int, default=1, help="jobs at a time")
    parser.add_argument("--threads", type=int, default=2, help="of each job")
    parser.add_argument("--budget-seconds", type=float, default=120, help="for tuning a model")
    parser.add_argument("--job-seconds", type=float, default=1800, help="a job may take")
    parser.add_argument("--memory-gib", type=float, default=12, help="a job may take")
    parser.add_argument("--deadline", type=float, default=float("inf"), help="seconds; no job begins after")
    parser.add_argument(
        "--end", type=float, default=float("inf"), help="seconds; jobs then end without a row"
    )
    parser.add_argument("--wheels", type=Path, help="a folder of wheels of the peers")
    parser.add_argument("--any-code", action="store_true", help="rows of earlier code need not be made again")
    parser.add_argument("--out", type=Path, help="the CSV to append to")
    return parser.parse_args()


def main() -> None:
    asked = parsed()
    study = "league" if asked.study == "quick" else asked.study
    out = asked.out or records.FOLDER / f"{study}.csv"
    runner = Runner(asked, out)
    there = records.done(records.read(out), asked.budget_seconds, asked.job_seconds, asked.any_code)
    runner.run(job for job in jobs_of(asked) if job.identity not in there)


if __name__ == "__main__":
    main()
