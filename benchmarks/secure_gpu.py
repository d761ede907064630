"""Shares of a secure sum on a GPU, by the device's own clock, for every way to cut the work.

    PYTHONPATH=src python benchmarks/secure_gpu.py [--entries 67108864] [--json FILE]

The update lies on the device and so does the share: energy, clip, rotation, draw, Σ Y². Every
tuning of the kernels is timed; what is quickest and equals the plain path byte for byte wins. What
the kernels must move is 4 bytes an entry for the energy, 4 + 8 for the first pass of the rotation,
16 for each further pass, and 11 for the draw; the draw computes 9 bytes of ChaCha20 an entry.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import jopeq
from jopeq import kernels
from jopeq.kernels.gpu import share as secure_sum
from jopeq.kernels.gpu.jit import IS_INTERPRETED
from jopeq.noise.gaussian_rounding import ROUND_LANE
from jopeq.random.streams import PrivateStream, SharedStream

SEED, NOISE = bytes(range(32)), bytes(range(100, 132))
TURNS = [
    {"columns": columns, "rows": rows, "warps": warps}
    for columns, rows, warps in ((4, 6, 1), (5, 5, 1), (5, 6, 1), (4, 5, 1), (5, 6, 2), (6, 6, 4))
]
DRAWS = [
    {"block": block, "draw_warps": warps}
    for block, warps in ((1024, 4), (512, 2), (256, 1), (2048, 8), (512, 4), (1024, 8))
]
GUIDES = [{"guide": guide} for guide in (6, 7, 8)]
_CHECKED = (1 << 17, 100_001)


def device_seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """The median of the device's clock, after two turns to warm up."""
    times = []
    for turn in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        if turn >= 2:
            times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def scheme_of(entries: int) -> tuple[Any, Any]:
    scheme = jopeq.SecureSum(epsilon=4.0, clip=1.0, clients=100, threshold=67, bits=8, kept=1.0)
    return scheme, scheme.plan(entries)


def share_of(update: torch.Tensor, scheme: Any, plan: Any, noise: bytes = NOISE) -> torch.Tensor:
    """The share on the device."""
    shared, private = SharedStream(SEED), PrivateStream.reproducible(noise)
    keys = (shared.key_words.tobytes(), private.key_words.tobytes())
    found, is_within, _ = secure_sum.encode_share(scheme.recipe(plan, shared), [update], *keys)
    if not is_within:
        raise RuntimeError("the places exceed their bound")
    return found


def update_of(entries: int, device: str) -> torch.Tensor:
    source = torch.Generator().manual_seed(entries)
    return (torch.randn(entries, generator=source) / entries**0.5).to(device)


def plain(entries: int) -> np.ndarray:
    kernels.use("off")
    try:
        scheme, _ = scheme_of(entries)
        update = update_of(entries, "cpu").numpy()
        return scheme.encode(update, seed=SEED, noise=PrivateStream.reproducible(NOISE))
    finally:
        kernels.use(None)


def is_equal(expected: dict[int, np.ndarray], device: str) -> bool:
    """Whether all sizes give the plain path's bytes."""
    shares = (share_of(update_of(size, device), *scheme_of(size)) for size in expected)
    pairs = zip(shares, expected.values(), strict=True)
    return all(ours.cpu().numpy().tobytes() == theirs.tobytes() for ours, theirs in pairs)


def timed(update: torch.Tensor) -> dict[str, float]:
    """Seconds of the whole, and of its parts."""
    scheme, plan = scheme_of(update.numel())
    recipe = scheme.recipe(plan, SharedStream(SEED))
    key = [int(word) for word in np.frombuffer(SEED, dtype="<i4")]
    _, last, start = recipe.layers[0]
    values = torch.empty(last, dtype=torch.float64, device=update.device)
    secure_sum.turn(update[:last], values, start, key, 1.0)
    values *= 256.0 * 2.0
    rounding = secure_sum.key_stream(key, ROUND_LANE, 0, last, update.device)
    parts = {
        "all": partial(share_of, update, scheme, plan),
        "energy": lambda: secure_sum.chunk_sums(update, 0.0, True),
        "turn": lambda: secure_sum.turn(update[:last], values, start, key, 1.0),
        "draw": lambda: secure_sum.draw_share(values, plan.law, 1 << 30, plan.bits, key, rounding),
    }
    return {name: device_seconds(work) for name, work in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1 << 26)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="the tuning that the library has")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = (1 << 10, 1500) if IS_INTERPRETED else _CHECKED
    expected = {size: plain(size) for size in sizes}
    start, rows = secure_sum.TUNING, []

    def tried(changes: dict[str, int], update: torch.Tensor | None) -> dict[str, Any]:
        """Time an update, or (None) compare with the plain path."""
        secure_sum.TUNING = replace(start, **changes)
        row: dict[str, Any] = asdict(secure_sum.TUNING)
        try:
            if update is None:
                row["equal"] = is_equal(expected, device)
            else:
                row |= {"entries": update.numel(), **timed(update)}
        except Exception as error:  # one that does not compile must not end the rest
            row["error"] = repr(error)[:300]
        rows.append(row)
        print(json.dumps(row), flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps(rows, indent=1))
        return row

    if device == "cpu":  # the interpreter: equality alone
        for changes in (*TURNS[:1], *GUIDES[:1]):
            tried(changes, None)
        return
    print(torch.cuda.get_device_name(), torch.__version__)
    update = update_of(given.entries, device)
    best: dict[str, int] = {}
    parts = (("turn", TURNS), ("draw", DRAWS), ("draw", GUIDES))
    for part, choices in () if given.quick else parts:
        found = [(tried({**best, **changes}, update), changes) for changes in choices]
        quick = sorted((row[part], number) for number, (row, _) in enumerate(found) if part in row)
        for _, number in quick:
            if tried({**best, **choices[number]}, None).get("equal"):
                best.update(choices[number])
                break
    print("best", best or tried({}, None))
    for entries in (1 << 24, 10**8, 1 << 27, 10**6, 10**7, 1 << 28):
        row = tried(best, update_of(entries, device))
        if "all" in row:
            print(f"| {entries:,} | {entries / row['all'] / 1e9:.1f} G entries/s |", flush=True)


if __name__ == "__main__":
    main()
