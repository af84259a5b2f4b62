"""From import to the first objective with gradient at n = 1,000: ``python benchmarks/first_call.py``.

Fresh processes. Cold: the caches of Numba and JAX are an empty folder; warm: the folder that the cold process
left. Timed from the first import to the gradient, without the start of Python itself; ``--imports`` and
``--compiled`` say where the time goes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROWS, INPUTS, RANK, NEIGHBORS = 1000, 20, 100, 20
LIKELIHOODS = ("vfe", "full-scale")


def child(name: str) -> None:
    """Seconds to import the regressor, to make the likelihood, and to evaluate it; printed as JSON."""
    began = time.perf_counter()
    from widegp.estimator import WideGPRegressor  # noqa: F401
    from widegp.kernels import Mixed
    from widegp.measure import Setting, evaluation, table

    imported = time.perf_counter()
    X, y = table(ROWS, INPUTS)
    work = evaluation(X, y, Mixed(sigma_u2=1 / INPUTS), 0.1, Setting(name, RANK, NEIGHBORS))
    built = time.perf_counter()
    work()
    done = time.perf_counter()
    parts = {"import": imported - began, "build": built - imported, "evaluate": done - built}
    print(json.dumps({"parts": parts, "cpu": time.process_time()}))


def fresh(name: str, cache: str, *flags: str) -> subprocess.CompletedProcess[str]:
    folders = {"NUMBA_CACHE_DIR": cache, "JAX_COMPILATION_CACHE_DIR": cache}
    command = [sys.executable, *flags, __file__, "--child", name]
    return subprocess.run(command, env=os.environ | folders, capture_output=True, text=True, check=True)


def measure(name: str, repeats: int) -> None:
    """A line for the cold process and one for the fastest of the warm ones."""
    with tempfile.TemporaryDirectory() as cache:
        cold = json.loads(fresh(name, cache).stdout)
        warm = [json.loads(fresh(name, cache).stdout) for _ in range(repeats)]
        size = sum(file.stat().st_size for file in Path(cache).rglob("*") if file.is_file())
    for label, run in (("cold", cold), ("warm", min(warm, key=lambda run: sum(run["parts"].values())))):
        told = ", ".join(f"{part} {seconds:.2f}" for part, seconds in run["parts"].items())
        total = sum(run["parts"].values())
        print(f"{name:10s} {label}: {total:6.2f} s ({told}; processor time {run['cpu']:.2f})", flush=True)
    print(f"{name:10s} cache left behind: {size / 2**20:.1f} MiB", flush=True)


def imports(count: int = 15) -> None:
    """The imports that take longest by themselves."""
    with tempfile.TemporaryDirectory() as cache:
        log = fresh("vfe", cache, "-X", "importtime").stderr
    rows = re.findall(r"import time:\s*(\d+) \|\s*(\d+) \| (\s*)(\S+)", log)
    packages: dict[str, int] = {}
    for own, _, _, name in rows:
        packages[name.split(".")[0]] = packages.get(name.split(".")[0], 0) + int(own)
    for name, own in sorted(packages.items(), key=lambda item: -item[1])[:count]:
        print(f"   import {name:20s} {own / 1e6:6.3f} s")


COMPILED = """
import sys, time
from numba.core.event import Listener, register
class Seconds(Listener):
    def on_start(self, event): self.began = time.perf_counter()
    def on_end(self, event):
        print(f"   compile {event.data['dispatcher'].__name__:24s} {time.perf_counter() - self.began:6.2f} s")
register("numba:compile", Seconds())
sys.argv = ["first_call.py", "--child", sys.argv[1]]
exec(compile(open({file!r}).read(), {file!r}, "exec"))
"""


def compiled(name: str) -> None:
    """The functions that Numba compiles on the way, inner ones included in outer ones."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-c", COMPILED.replace("{file!r}", repr(__file__)), name]
        out = subprocess.run(
            command, env=os.environ | {"NUMBA_CACHE_DIR": cache}, capture_output=True, text=True, check=True
        )
    print("\n".join(line for line in out.stdout.splitlines() if line.startswith("   compile")))


def main() -> None:
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--imports", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--child", choices=LIKELIHOODS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child)
        return
    print(f"n {ROWS}, I {INPUTS}, r {RANK}, m {NEIGHBORS} (full-scale)")
    for name in LIKELIHOODS:
        measure(name, asked.repeats)
        if asked.compiled:
            compiled(name)
    if asked.imports:
        imports()


if __name__ == "__main__":
    main()
