"""The server's side: the mean of many payloads, three ways that end in the same sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import jopeq
from codec import SCHEMES, gaussian
from jopeq import kernels
from timing import best_seconds

NAMES = ("sdq", "response", "jopeq", "jopeq A2")
_ENTRIES, _PAYLOADS = 10**6, 100


def one_by_one(scheme: Any, payloads: list[bytes]) -> Any:
    """Decode each and add it to the sum."""
    total: Any = np.zeros(len(scheme.decode(payloads[0])))
    for payload in payloads:
        total += scheme.decode(payload)
    return total / len(payloads)


def measure_aggregation(most: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Payloads a second of each way; every way handles every payload."""
    update = gaussian(int(min(most, _ENTRIES)))
    rows: dict[str, Any] = {}
    for name in NAMES:
        say(f"aggregation: {name}")
        scheme = SCHEMES[name]
        kernels.use("on")
        payloads = [scheme.encode(update) for _ in range(_PAYLOADS)]
        ways: dict[str, tuple[str, Callable[[], Any]]] = {
            "aggregate": ("on", lambda s=scheme, p=payloads: jopeq.aggregate(p, scheme=s)),
            "decode": ("on", lambda s=scheme, p=payloads: one_by_one(s, p)),
            "plain": ("off", lambda s=scheme, p=payloads: one_by_one(s, p)),
        }
        rows[name] = {"bytes": sum(map(len, payloads))}
        sums = {}
        for way, (mode, work) in ways.items():
            kernels.use(mode)
            sums[way] = work()
            rows[name][way] = _PAYLOADS / best_seconds(work, least=2)
        if not all(
            np.allclose(sums["plain"], one, rtol=1e-12, atol=1e-12) for one in sums.values()
        ):
            raise RuntimeError(f"{name}: the ways of adding up disagree")
    return {"entries": len(update), "payloads": _PAYLOADS, "schemes": rows}
