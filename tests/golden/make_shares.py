"""Makes shares.json: plans and shares of private sums as of today, and what they decode to.

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
_RECORDS = {"epsilon": 1.0, "clip": 0.5, "records": 4000, "rounds": 30, "clients": 10}
_CLIENTS = {"epsilon": 4.0, "clip": 0.5}
# name: [scheme, parameters, dimension, rows]
CASES: dict[str, list[Any]] = {
    "hospitals": ["records", {**_RECORDS, "sampling": 1.0, "threshold": 5}, 650, 7],
    "wide": ["records", {**_RECORDS, "sampling": 0.14, "threshold": 8, "bits": 20}, 20_001, 2],
    "recover": [
        "records", {**_RECORDS, "sampling": 0.5, "threshold": 8, "dropouts": "recover"}, 64, 3,
    ],
    "hundred": ["clients", {**_CLIENTS, "clients": 100, "threshold": 67, "bits": 12}, 5000, 1],
    "cohort": [
        "clients", {**_CLIENTS, "clients": 5, "threshold": 3, "dropouts": "repeat"}, 1000, 1,
    ],
    "one": ["clients", {**_CLIENTS, "clients": 3, "threshold": 3, "rounds": 20}, 1, 1],
}  # fmt: skip


def made(case: list[Any]) -> dict[str, Any]:
    """What the file keeps of a case."""
    name, parameters, dimension, rows = case
    scheme: Any = jopeq.scheme(name, **parameters)
    plan = scheme.plan(dimension)
    words = (np.arange(rows * dimension, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B1)
    values = (words % np.uint64(1 << 32) / 2.0**31 - 1.0).astype(np.float32)
    given = values if name == "clients" else values.reshape(rows, dimension)
    share = scheme.encode(given, seed=SEED, noise=PrivateStream.reproducible(NOISE))
    total = share.astype(np.int64) // 4  # no total of uniform integers
    mean = scheme.decode(total, seed=SEED, dimension=dimension, clients=scheme.threshold)
    return {
        "case": case,
        "plan": [plan.bits, plan.sigma64, plan.bound, plan.noise_multiplier, plan.step.hex()],
        "share": kept(share.astype("<u4").tobytes()),
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
