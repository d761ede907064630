"""How everything here is timed: the best of several calls, by the clock on the wall."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_SHORT = 2e-3  # seconds: quicker calls are timed many at a time
_LONG = 3.0  # slower ones are not repeated


def best_seconds(work: Callable[[], object], budget: float = 0.2, least: int = 3) -> float:
    """Seconds of the quickest call; the first, which fills caches, counts when calls are long."""
    start = time.perf_counter()
    work()
    best = time.perf_counter() - start
    if best > _LONG:
        return best
    calls = max(1, round(_SHORT / max(best, 1e-7)))
    spent, turns = 0.0, 0
    while spent < budget or turns < least:
        start = time.perf_counter()
        for _ in range(calls):
            work()
        seconds = time.perf_counter() - start
        best = min(best, seconds / calls)
        spent, turns = spent + seconds, turns + 1
    return best


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """The machine and versions that the numbers depend on."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": cores(),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("numpy", "numba", "torch", "cryptography")},
    }


def load() -> float | None:
    """Mean number of busy processes of the last minute, this one included."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return "missing"
