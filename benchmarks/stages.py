"""Where the time of encode and decode goes, on one thread: each stage run alone, the rest by
difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from codec import SCHEMES, gaussian
from jopeq import kernels
from jopeq.random.streams import PrivateStream
from jopeq.wire.entries import Entries
from jopeq.wire.payload import open_payload, seal
from speed_tables import SCALAR
from timing import best_seconds

NAMES = (*SCALAR, "jopeq A2")
_ENTRIES = 10**7
_KEY = bytes(range(32))


def measure_stages(most: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Nanoseconds an entry of each stage, and the bytes of key stream an entry takes."""
    kernels.use("on")
    kernels.set_threads(1)
    update = gaussian(int(min(most, _ENTRIES)))
    rows = {}
    for name in NAMES:
        say(f"stages: {name}")
        rows[name] = _stages(SCHEMES[name], update)
    kernels.set_threads(None)
    copied = np.empty_like(update)
    copy = best_seconds(lambda: np.copyto(copied, update))
    return {"entries": len(update), "copy": 1e9 * copy / len(update), "schemes": rows}


def _stages(scheme: Any, update: Any) -> dict[str, Any]:
    from jopeq.kernels.cpu.codec import prepare

    step = prepare(scheme.codec.recipe)
    encode_bytes = [step.dither_bytes, step.noise_bytes]  # of key stream, per sample
    payload = scheme.encode(update)
    size = step.packing.size(-(-len(update) // step.size))
    encode = {
        "norm": lambda: _measure(scheme, update),
        "key stream": lambda: _key_stream(step, encode_bytes, len(update)),
        "payload": lambda: seal(b"", [np.zeros(size, np.uint8)], None),
    }
    decode = {
        "key stream": lambda: _key_stream(step, encode_bytes[:1], len(update)),
        "payload": lambda: open_payload(payload),
        "fresh memory": lambda: np.empty_like(update).fill(0.0),
    }
    return {
        "encode_bytes": sum(encode_bytes) / step.size,
        "decode_bytes": step.dither_bytes / step.size,
        "encode": _with_rest(encode, lambda: scheme.encode(update), len(update)),
        "decode": _with_rest(decode, lambda: scheme.decode(payload), len(update)),
    }


def _measure(scheme: Any, update: Any) -> None:
    kernels.measure(Entries.of(update), scheme.codec.scaling, scheme.dimension)


def _key_stream(step: Any, sizes: list[int], entries: int) -> None:
    """Read what a kernel would read, chunk by chunk, and do nothing with it."""
    from jopeq.kernels.cpu.codec import KeyStream

    stream = PrivateStream.reproducible(_KEY)
    samples = -(-entries // step.size)
    readers = [(KeyStream(stream, 0, step.chunk * each), each) for each in sizes]
    for first in range(0, samples, step.chunk):
        count = min(step.chunk, samples - first)
        for reader, each in readers:
            reader.next(count * each)


def _with_rest(
    stages: dict[str, Callable[[], object]], whole: Callable[[], object], entries: int
) -> dict[str, float]:
    total = 1e9 * best_seconds(whole) / entries
    parts = {name: 1e9 * best_seconds(work) / entries for name, work in stages.items()}
    return {**parts, "rest": total - sum(parts.values()), "all": total}
