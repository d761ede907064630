"""Makes shares.json: plans and shares that today's ``SecureSum`` makes, and what they decode to.

    PYTHONPATH=src python tests/golden/make_shares.py

Run it only together with a new version of the mechanism: client and server of one round must agree.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

import jopeq
from jopeq.random.streams import PrivateStream

FILE = Path(__file__).with_name("shares.json")
SEED, NOISE = bytes(range(32)), bytes(range(100, 132))
_COMMON = {"epsilon": 4.0, "clip": 0.5, "colluding": 0}
# name: [parameters, dimension]
CASES: dict[str, list[Any]] = {
    "hundred": [{**_COMMON, "clients": 100, "threshold": 67, "bits": 8, "kept": 1.0}, 5000],
    "kept": [{**_COMMON, "clients": 10, "threshold": 7, "participations": 20}, 20_001],
    "wide": [{**_COMMON, "clients": 500, "threshold": 400, "colluding": 100}, 1000],
    "replaced": [{**_COMMON, "clients": 3, "threshold": 2, "neighbours": "replaced"}, 64],
    "one": [{**_COMMON, "clients": 2, "threshold": 2}, 1],
}


def made(case: list[Any]) -> dict[str, Any]:
    """What the file keeps of a case."""
    parameters, dimension = case
    scheme = jopeq.SecureSum(**parameters)
    plan = scheme.plan(dimension)
    words = (np.arange(dimension, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B1)
    update = (words % np.uint64(1 << 32) / 2.0**31 - 1.0).astype(np.float32)
    share = scheme.encode(update, seed=SEED, noise=PrivateStream.reproducible(NOISE))
    mean = scheme.decode(share, seed=SEED, dimension=dimension, clients=scheme.threshold)
    return {
        "case": case,
        "plan": [plan.kept, plan.bits, plan.sigma64, plan.bound, plan.step.hex()],
        "share": kept(share.astype("<u2").tobytes()),
        "mean": kept(mean.astype("<f4").tobytes()),
    }


def kept(data: bytes) -> str:
    """Short bytes as they are, long ones as their hash."""
    return (
        base64.b64encode(data).decode() if len(data) <= 1024 else hashlib.sha256(data).hexdigest()
    )


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(made(case))}" for name, case in CASES.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
