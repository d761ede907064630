"""What the first call of a process costs: imports, loading kernels, compiling them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

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
_ENTRIES = 10_000
_TURNS = 3


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
    command = [sys.executable, "-c", _PROGRAM, mode, str(_ENTRIES)]
    done = subprocess.run(
        command, env={**os.environ, **more}, capture_output=True, text=True, check=True
    )
    steps: dict[str, float] = json.loads(done.stdout)
    steps.pop("_")
    return steps


def _best(runs: list[dict[str, float]]) -> dict[str, float]:
    return {step: min(run[step] for run in runs) for step in runs[0]}
