"""Encode and decode of the schemes that have kernels: entries a second by size, bits, error.

For comparison: a memory copy and the eager PyTorch version, in the same process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import jopeq
from jopeq import kernels
from timing import best_seconds, cores

SCHEMES = {
    "sdq": jopeq.scheme("sdq", rate=2),
    "sdq A2": jopeq.scheme("sdq", rate=2, lattice="A2"),
    "jopeq": jopeq.scheme("jopeq", epsilon=4, rate=2),
    "jopeq A2": jopeq.scheme("jopeq", epsilon=4, rate=2, lattice="A2"),
    "response": jopeq.scheme("response", epsilon=4, rate=2),
}
LONGEST = 8.0  # seconds of one call; sizes that would take longer are left out
_ERROR_ENTRIES = 1_000_000
_LARGE = 10**6  # from this size on further turns count, minutes apart: hiccups last long
_PLAIN_ENTRIES = 100_000
_TRIED_ENTRIES = 10**6  # up to here PyTorch is tried with both numbers of threads

Say = Callable[[str], None]


def gaussian(entries: int) -> Any:
    return np.random.default_rng(0).standard_normal(entries, dtype=np.float32)


def sizes(most: float) -> list[int]:
    return [10**power for power in range(3, 9) if 10**power <= most]


def measure_codecs(most: float, say: Say, turns: int = 1) -> dict[str, Any]:
    """Everything of this file; lists run along ``sizes``."""
    kernels.use("on")
    rows = {name: _described(name) for name in SCHEMES}
    for row in rows.values():
        row |= {"encode": [], "decode": [], "eager": [], "eager_threads": []}
    copies: dict[str, list[float]] = {"into": [], "new": []}
    for entries in sizes(most):
        update = gaussian(entries)
        best = {"into": math.inf, "new": math.inf}
        for turn in range(turns if entries >= _LARGE else 1):
            _time_copies(update, best)
            for name, scheme in SCHEMES.items():
                say(f"{entries:,} entries: {name}")
                _time_codec(scheme, update, rows[name], is_again=turn > 0)
            _time_copies(update, best)
            for name in SCHEMES:
                say(f"{entries:,} entries: eager {name}")
                _time_eager(name, update, rows[name], is_again=turn > 0)
            _time_copies(update, best)
        for kind, seconds in best.items():
            copies[kind].append(entries / seconds)
    return {"sizes": sizes(most), "copy": copies, "schemes": rows, "error_entries": _ERROR_ENTRIES}


def measure_threads(most: float, counts: list[int], say: Say) -> dict[str, Any]:
    """Encode and decode with so many threads."""
    kernels.use("on")
    entries = int(min(most, 10**7))
    whole = gaussian(entries)
    rows: dict[str, Any] = {}
    for name, scheme in SCHEMES.items():
        rows[name] = {"encode": {}, "decode": {}}
        for count in counts:
            say(f"{count} threads: {name}")
            kernels.set_threads(count)
            payload = scheme.encode(whole)
            for way, work, given in (
                ("encode", scheme.encode, whole),
                ("decode", scheme.decode, payload),
            ):
                rows[name][way][str(count)] = entries / _seconds(work, given)
        rows[name]["entries"] = entries
    kernels.set_threads(None)
    return {"counts": counts, "schemes": rows}


def measure_plain(say: Say) -> dict[str, Any]:
    """The plain NumPy path and the kernels on the same update."""
    update = gaussian(_PLAIN_ENTRIES)
    rows: dict[str, Any] = {}
    for name, scheme in SCHEMES.items():
        say(f"plain: {name}")
        rows[name] = {}
        payload = scheme.encode(update)
        for mode in ("off", "on"):
            kernels.use(mode)
            encode = len(update) / _seconds(scheme.encode, update)
            rows[name][mode] = {
                "encode": encode,
                "decode": len(update) / _seconds(scheme.decode, payload),
            }
    return {"entries": _PLAIN_ENTRIES, "schemes": rows}


def _time_codec(scheme: Any, update: Any, row: dict[str, Any], is_again: bool) -> None:
    """Encode and decode, or neither where that would take too long."""
    entries, speeds = len(update), row["encode"][:-1] if is_again else row["encode"]
    encode = decode = None
    if _is_affordable(speeds, entries):
        payload = scheme.encode(update)
        encode = entries / _seconds(scheme.encode, update)
        decode = entries / _seconds(scheme.decode, payload)
    _keep(row["encode"], encode, is_again)
    _keep(row["decode"], decode, is_again)


def _keep(speeds: list[float | None], speed: float | None, is_again: bool) -> None:
    """The best of all turns at a size."""
    if is_again:
        before = speeds.pop()
        speed = before if speed is None else speed if before is None else max(before, speed)
    speeds.append(speed)


def _described(name: str) -> dict[str, Any]:
    """Measure what a scheme costs in bits and loses in accuracy."""
    scheme, update = SCHEMES[name], gaussian(_ERROR_ENTRIES)
    payload, counted = scheme.encode(update, counts=True)
    return {
        "spec": scheme.spec,
        "bits": counted.bits_per_entry,
        "error": relative_error(update, scheme.decode(payload)),
    }


def relative_error(update: Any, decoded: Any) -> float:
    """‖decoded − update‖² / ‖update‖²."""
    lost = decoded.astype(np.float64) - update
    return float(lost @ lost / np.dot(update, update.astype(np.float64)))


def _seconds(work: Callable[[Any], object], given: Any) -> float:
    return best_seconds(lambda: work(given))


def _is_affordable(speeds: list[float | None], entries: int) -> bool:
    """Tell if a call would end in time, by the speed at the previous size."""
    if not speeds:
        return True
    return speeds[-1] is not None and entries / speeds[-1] < LONGEST


def _time_copies(update: Any, best: dict[str, float]) -> None:
    target = np.empty_like(update)
    for kind, work in (("into", lambda: np.copyto(target, update)), ("new", update.copy)):
        best[kind] = min(best[kind], best_seconds(work))


def _time_eager(name: str, update: Any, row: dict[str, Any], is_again: bool) -> None:
    """One thread or all cores, whichever suits PyTorch better; large updates follow small ones."""
    speed, count = None, None
    version = _eager_version(name)
    before = slice(None, -1) if is_again else slice(None)
    if version is not None and _is_affordable(row["eager"][before], len(update)):
        import torch

        tensor = torch.from_numpy(update)
        known = row["eager_threads"][before][-1:] if len(update) > _TRIED_ENTRIES else []
        seconds, count = torch_seconds(lambda: version(tensor), known or [cores(), 1])
        speed = len(update) / seconds
    _keep(row["eager"], speed, is_again)
    if not is_again:
        row["eager_threads"].append(count)


def _eager_version(name: str) -> Callable[[Any], Any] | None:
    try:
        from eager import eager
    except ImportError:  # no PyTorch
        return None
    return eager(SCHEMES[name])


def torch_seconds(work: Callable[[], object], counts: list[int]) -> tuple[float, int]:
    """The best of these numbers of threads, and which it was."""
    import torch

    found = []
    for count in counts:
        torch.set_num_threads(count)
        found.append((best_seconds(work, budget=0.2, least=2), count))
    return min(found)
