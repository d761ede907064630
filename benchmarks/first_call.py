"""Time the first calls of a process: imports, kernels, and an update without any warm-up.

    python benchmarks/first_call.py                     # ours
    python benchmarks/first_call.py --authors FOLDER    # and the ratio to the paper's authors' code
    python benchmarks/first_call.py --authors FOLDER --cpu    # CPU time, on a busy machine

FOLDER holds github.com/langnatalie/JoPEQ as its authors wrote it. Their code makes no bytes: it
puts the quantized entries where the entries were. Each number is the first call of a new process:
the least of several, by the clock on the wall and with as many threads as each takes. With --cpu
all have one thread, and what counts is its CPU time, which neighbours disturb little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_PROGRAM = """
import json, sys, time
mode, entries = sys.argv[1], int(sys.argv[2])
marks = [time.perf_counter()]
def mark():
    marks.append(time.perf_counter())
import numpy as np
mark()
import jopeq
from jopeq import kernels
mark()
kernels.use(mode)
if mode == "on":
    kernels.load()
mark()
scheme = jopeq.scheme("sdq", rate=2)
update = np.random.default_rng(0).standard_normal(entries, dtype=np.float32)
mark()
scheme.encode(update)
mark()
scheme.encode(update)
mark()
steps = [later - sooner for sooner, later in zip(marks, marks[1:])]
print(json.dumps(dict(zip(["numpy", "import", "load", "_", "first", "second"], steps))))
"""
_CLOCK = """
import os, time
CPU = bool(os.environ.get("CPU_TIME"))
clock = time.process_time if CPU else time.perf_counter
"""
_OURS = """
import sys
import numpy as np
import jopeq
from jopeq import kernels
mode, name, lattice, entries = *sys.argv[1:4], int(sys.argv[4])
kernels.use(mode)
if mode == "on":
    kernels.load()
private = {"epsilon": 4.0} if name == "jopeq" else {}
scheme = jopeq.scheme(name, rate=2, lattice=lattice, **private)
update = np.random.default_rng(0).standard_normal(entries, dtype=np.float32)
kernels.set_threads(1 if CPU else None)
start = clock()
scheme.decode(scheme.encode(update))
print(clock() - start)
"""
_THEIRS = """
import sys
from types import SimpleNamespace
import numpy as np
import torch
sys.path.insert(0, sys.argv[1])
from federated_utils import JoPEQ
name, lattice, entries = sys.argv[2], sys.argv[3], int(sys.argv[4])
is_private, is_plane = name == "jopeq", lattice == "A2"
given = {"R": 2, "epsilon": 4.0, "sigma_squared": 0.5, "nu": 29.0, "device": "cpu"}
given |= {"privacy": is_private, "quantization": True, "lattice_dim": 1 + is_plane}
given |= {"privacy_noise": "jopeq_vector" if is_plane else "jopeq_scalar"}
variance = 0.5 * 29 / 27 if is_plane else 2 * (2 / 4.0) ** 2
given |= {"gamma": 1.5 * np.sqrt(1 + is_private * variance), "vec_normalization": is_plane}
quantize = JoPEQ(SimpleNamespace(**given))
update = torch.from_numpy(np.random.default_rng(0).standard_normal(entries, dtype=np.float32))
if CPU:
    torch.set_num_threads(1)
start = clock()
quantize(update)
print(clock() - start)
"""
_ENTRIES = 10_000
_TURNS = 3
SIZES = (7_850, 169_578, 1_000_000)
CODED = (("sdq", "Z"), ("sdq", "A2"), ("jopeq", "Z"), ("jopeq", "A2"))
_FRESH_TURNS = 7


def measure_first_call(say: Callable[[str], None]) -> dict[str, Any]:
    """Seconds of each step in processes of their own: the best of three; compiling once."""
    found: dict[str, Any] = {"entries": _ENTRIES}
    say("first call: plain path")
    found["plain"] = _best([_run("off", {}) for _ in range(_TURNS)])
    with tempfile.TemporaryDirectory() as folder:
        kept = {"NUMBA_CACHE_DIR": folder}
        say("first call: compiling, which takes half a minute")
        found["compile"] = _run("on", kept)
        say("first call: loading")
        found["load"] = _best([_run("on", kept) for _ in range(_TURNS)])
    return found


def _run(mode: str, more: dict[str, str]) -> dict[str, float]:
    steps: dict[str, float] = json.loads(_output(_PROGRAM, mode, str(_ENTRIES), **more))
    steps.pop("_")
    return steps


def _output(program: str, *words: str, **more: str) -> str:
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(
        command, env={**os.environ, **more}, capture_output=True, text=True, check=True
    )
    return done.stdout


def _best(runs: list[dict[str, float]]) -> dict[str, float]:
    return {step: min(run[step] for run in runs) for step in runs[0]}


def measure_fresh(
    say: Callable[[str], None], authors: Path | None, is_cpu: bool = False
) -> list[dict[str, Any]]:
    """Encode and decode as the first call of a process: the best of seven, taken in turns."""
    rows, more = [], {"CPU_TIME": "1", "OMP_NUM_THREADS": "1"} if is_cpu else {}
    for name, lattice in CODED:
        for size in SIZES:
            say(f"new processes: {name} on {lattice}, {size:,} entries")
            place = (name, lattice, str(size))
            ways = {"plain": (_OURS, "off"), "kernels": (_OURS, "on")}
            if authors is not None:
                ways["authors"] = (_THEIRS, str(authors))
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(_FRESH_TURNS):
                for way, (program, first) in ways.items():
                    times[way].append(float(_output(_CLOCK + program, first, *place, **more)))
            best = {way: min(found) for way, found in times.items()}
            rows.append({"scheme": name, "lattice": lattice, "entries": size, **best})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--authors", type=Path, help="folder of the authors' code")
    parser.add_argument("--cpu", action="store_true", help="CPU time of one thread each")
    parser.add_argument("--json", type=Path, help="put the numbers into this file of speed.py")
    given = parser.parse_args()
    console = Console(width=120)
    with console.status("") as status:
        rows = measure_fresh(status.update, given.authors, given.cpu)
    ways = [way for way in ("plain", "kernels", "authors") if way in rows[0]]
    what = "CPU time of one thread" if given.cpu else "encode and decode"
    table = Table(title=f"First call of a process: {what}, ms")
    for heading in ("scheme", "entries", *ways, *(f"authors / {way}" for way in ways[:2])):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [f"{1e3 * row[way]:.2f}" for way in ways]
        if "authors" in row:
            cells += [f"{row['authors'] / row[way]:.2f}" for way in ways[:2]]
        table.add_row(f"{row['scheme']} {row['lattice']}", f"{row['entries']:,}", *cells)
    console.print(table)
    if given.json and not given.cpu:
        kept = json.loads(given.json.read_text())
        kept["fresh"] = [
            {key: float(f"{v:.3g}") if isinstance(v, float) else v for key, v in row.items()}
            for row in rows
        ]
        given.json.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
