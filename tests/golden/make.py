"""Makes payloads.json: what today's encoder writes, and what its decoder reads.

    PYTHONPATH=src python tests/golden/make.py

Run it only together with a new version of the wire format, or when a noise sampler draws its words
in another way (then only payloads with that noise may change): the tests compare the code with the
stored file, never with this script's output.
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

FILE = Path(__file__).with_name("payloads.json")
SEED = bytes(range(32))
NOISE = bytes(range(100, 132))
KEY = bytes(range(200, 232))
_STORED_WHOLE = 1024  # bytes; of longer payloads the hash is kept

_T = {"nu": 12.0, "squared_scale": 0.75}  # by hand: a calibrated law may differ in its last bits
_GENERATOR = [[1.0, 0.3], [0.0, 1.2]]

# name: [scheme, parameters, shape or shapes, keyed]
CASES: dict[str, list[Any]] = {
    "none": ["none", {}, [7], False],
    "none-0d": ["none", {}, [], False],
    "none-empty": ["none", {}, [0, 3], False],
    "sdq-Z": ["sdq", {"rate": 2.0}, [11], False],
    "sdq-Z-empty": ["sdq", {"rate": 2.0}, [0], False],
    "sdq-Z-one-letter-short": ["sdq", {"rate": 1.6}, [3, 29], False],
    "sdq-Z-rate-8": ["sdq", {"rate": 8.0}, [2, 3, 5], False],
    "sdq-Z-rate-32": ["sdq", {"rate": 32.0}, [5], False],
    "sdq-Z-keyed": ["sdq", {"rate": 2.0}, [11], True],
    "sdq-Z-clip": ["sdq", {"rate": 3.0, "clip": 0.7}, [13], False],
    "sdq-Z-centered": ["sdq", {"rate": 3.0, "center": True}, [13], False],
    "sdq-Z-tensor": ["sdq", {"rate": 3.0, "per": "tensor"}, [13], False],
    "sdq-Z-rotated": ["sdq", {"rate": 3.0, "rotate": True}, [77], False],
    "sdq-Z-gamma": ["sdq", {"rate": 3.0, "gamma": 0.4}, [13], False],
    "sdq-A2": ["sdq", {"rate": 2.0, "lattice": "A2"}, [21], False],
    "sdq-A2-odd": ["sdq", {"rate": 1.5, "lattice": "A2", "gamma": 2.0}, [5, 4], False],
    "sdq-A2-seven": ["sdq", {"rate": 1.41, "lattice": "A2"}, [20], False],
    "sdq-D4": ["sdq", {"rate": 1.5, "lattice": "D4"}, [27], False],
    "sdq-D4-odd": ["sdq", {"rate": 1.165, "lattice": "D4"}, [24], False],
    "sdq-E8": ["sdq", {"rate": 1.0, "lattice": "E8"}, [45], False],
    "sdq-E8-odd": ["sdq", {"rate": 0.99, "lattice": "E8"}, [24], False],
    "sdq-custom": ["sdq", {"rate": 2.0, "lattice": _GENERATOR}, [21], False],
    "sdq-custom-odd": ["sdq", {"rate": 1.6, "lattice": _GENERATOR}, [8], False],
    "sdq-Z-entropy": ["sdq", {"step": 0.05, "coding": "entropy"}, [40], False],
    "sdq-Z-entropy-rate": ["sdq", {"rate": 4.0, "coding": "entropy"}, [40], True],
    "sdq-Z-entropy-escapes": ["sdq", {"step": 0.0003, "coding": "entropy"}, [300], False],
    "sdq-A2-entropy": ["sdq", {"step": 0.1, "lattice": "A2", "coding": "entropy"}, [31], False],
    "sdq-D4-entropy": ["sdq", {"step": 0.1, "lattice": "D4", "coding": "entropy"}, [31], False],
    "sdq-E8-entropy": ["sdq", {"step": 0.1, "lattice": "E8", "coding": "entropy"}, [31], False],
    "sdq-custom-entropy": [
        "sdq",
        {"step": 0.1, "lattice": _GENERATOR, "coding": "entropy"},
        [31],
        False,
    ],
    "sdq-Z-two-chunks": ["sdq", {"step": 0.2, "coding": "entropy"}, [65536 + 9], False],
    "sdq-Z-long": ["sdq", {"rate": 1.6}, [65540 + 2000], False],
    "dq-Z": ["dq", {"rate": 2.0}, [11], False],
    "dq-A2": ["dq", {"rate": 2.0, "lattice": "A2"}, [11], True],
    "dq-Z-entropy": ["dq", {"step": 0.25, "coding": "entropy"}, [11], False],
    "laplace": ["laplace", {"epsilon": 4.0}, [9], False],
    "laplace-small-epsilon": ["laplace", {"epsilon": 0.01}, [9], False],
    "laplace-rotated-keyed": ["laplace", {"epsilon": 4.0, "rotate": True}, [9], True],
    "t": ["t", {"epsilon": 3.0, **_T}, [9], False],
    "t-size-3": ["t", {"epsilon": 3.0, "size": 3, "clip": 0.5, **_T}, [10], False],
    "laplace+sdq-Z": ["laplace+sdq", {"epsilon": 4.0, "rate": 2.0}, [30], False],
    "laplace+sdq-A2": ["laplace+sdq", {"epsilon": 4.0, "rate": 2.0, "lattice": "A2"}, [30], True],
    "t+sdq-Z": ["t+sdq", {"epsilon": 3.0, "rate": 2.0, **_T}, [30], False],
    "t+sdq-A2": ["t+sdq", {"epsilon": 3.0, "rate": 2.0, "lattice": "A2", **_T}, [30], False],
    "t+sdq-E8-entropy": [
        "t+sdq",
        {"epsilon": 3.0, "rate": 2.0, "lattice": "E8", "coding": "entropy", **_T},
        [30],
        False,
    ],
    "jopeq-Z": ["jopeq", {"epsilon": 4.0, "rate": 1.0}, [50], False],
    "jopeq-Z-keyed": ["jopeq", {"epsilon": 4.0, "rate": 1.0}, [50], True],
    "jopeq-Z-clip-entropy": [
        "jopeq",
        {"epsilon": 2.0, "rate": 2.0, "clip": 0.5, "coding": "entropy"},
        [50],
        False,
    ],
    "jopeq-A2": ["jopeq", {"epsilon": 3.0, "rate": 2.0, "lattice": "A2", **_T}, [50], False],
    "jopeq-A2-laplace": [
        "jopeq",
        {"epsilon": 3.0, "rate": 2.0, "lattice": "A2", "law": "laplace"},
        [50],
        False,
    ],
    "jopeq-A2-calibrated": ["jopeq", {"epsilon": 3.0, "rate": 2.0, "lattice": "A2"}, [50], False],
    "jopeq-D4": ["jopeq", {"epsilon": 3.0, "rate": 1.0, "lattice": "D4", **_T}, [50], False],
    "jopeq-custom": ["jopeq", {"epsilon": 3.0, "rate": 2.0, "lattice": _GENERATOR, **_T}, [50], 0],
    "l2": ["l2", {"epsilon": 4.0, "size": 3}, [10], False],
    "gaussian": ["gaussian", {"epsilon": 4.0, "delta": 1e-4, "clip": 0.5}, [10], False],
    "l2+sdq-A2": ["l2+sdq", {"epsilon": 4.0, "rate": 2.0, "lattice": "A2"}, [30], False],
    "gaussian+sdq-Z": ["gaussian+sdq", {"epsilon": 4.0, "rate": 3.0}, [30], True],
    "jopeq-A2-l2": [
        "jopeq",
        {"epsilon": 3.0, "rate": 2.0, "lattice": "A2", "law": "l2"},
        [50],
        False,
    ],
    "staircase-Z": ["staircase", {"epsilon": 4.0}, [40], False],
    "staircase-Z-fixed": ["staircase", {"epsilon": 4.0, "rate": 2.0}, [40], False],
    "staircase-Z-odd": ["staircase", {"epsilon": 2.0, "rate": 1.6, "moves": 2}, [40], True],
    "staircase-A2": ["staircase", {"epsilon": 4.0, "lattice": "A2", "moves": 7}, [30], False],
    "staircase-D4": [
        "staircase",
        {"epsilon": 4.0, "lattice": "D4", "moves": 2, "rate": 1.0},
        [30],
        False,
    ],
    "staircase-E8": ["staircase", {"epsilon": 8.0, "lattice": "E8", "moves": 3}, [30], False],
    "response": ["response", {"epsilon": 4.0, "rate": 2.0, "clip": 0.5}, [40], False],
    "response-designed": ["response", {"epsilon": 4.0, "rate": 3.0}, [40], False],
    "response-randomized": [
        "response",
        {"epsilon": 1.0, "rate": 3.0, "channel": "randomized", "rotate": True},
        [77],
        True,
    ],
    "sphere": ["sphere", {"epsilon": 4.0, "clip": 1.0}, [40], False],
    "sphere-blocks": ["sphere", {"epsilon": 8.0, "clip": 0.5, "draws": 1024}, [60], True],
    "sphere-lists": ["sphere", {"epsilon": 16.0, "clip": 2.0, "draws": 4096}, [50], False],
    "state-none": ["none", {}, {"weight": [2, 3], "bias": [3]}, False],
    "state-sdq": ["sdq", {"rate": 2.0}, {"weight": [2, 3], "bias": [3], "näme": [0]}, False],
    "state-jopeq-tensor": [
        "jopeq",
        {"epsilon": 4.0, "rate": 2.0, "per": "tensor", "center": True},
        {"weight": [5, 3], "bias": [3], "scalar": []},
        True,
    ],
    "state-A2-straddling": [
        "sdq",
        {"rate": 3.0, "lattice": "A2", "per": "tensor"},
        {"a": [3], "b": [2], "c": [4]},
        False,
    ],
    "state-empty": ["sdq", {"rate": 2.0}, {}, False],
}


def weyl(first: int, shape: list[int]) -> np.ndarray:
    """Entries first, first + 1, … of a fixed sequence in [−1, 1), as float32."""
    places = np.arange(first, first + int(np.prod(shape)), dtype=np.uint64)
    words = (places + np.uint64(1)) * np.uint64(0x9E3779B1) % np.uint64(1 << 32)
    return (words / 2.0**31 - 1.0).astype(np.float32).reshape(shape)


def update_of(shapes: list[int] | dict[str, list[int]]) -> Any:
    """One array, or a state of them, filled from the sequence."""
    if isinstance(shapes, list):
        return weyl(0, shapes)
    state, first = {}, 0
    for name, shape in shapes.items():
        state[name] = weyl(first, shape)
        first += state[name].size
    return state


def encode(case: list[Any]) -> bytes:
    """The payload of a case."""
    name, parameters, shapes, is_keyed = case
    scheme = jopeq.scheme(name, **parameters)
    arguments: dict[str, Any] = {"noise": PrivateStream.reproducible(NOISE)}
    if is_keyed:
        arguments |= {"key": KEY, "seed": SEED[:16]}
    elif scheme.is_seeded:
        arguments["seed"] = SEED
    update = update_of(shapes)
    if isinstance(update, dict):
        return jopeq.encode_state(scheme, update, **arguments)
    return scheme.encode(update, **arguments)


def decode(case: list[Any], payload: bytes) -> np.ndarray:
    """Its entries, flat; those of a state one tensor after the other."""
    name, parameters, shapes, is_keyed = case
    scheme = jopeq.scheme(name, **parameters)
    key = KEY if is_keyed else None
    if isinstance(shapes, list):
        return scheme.decode(payload, key=key).reshape(-1)
    state = jopeq.decode_state(scheme, payload, update_of(shapes), key=key)
    return np.concatenate([np.empty(0, np.float32), *(part.reshape(-1) for part in state.values())])


def kept(data: bytes) -> dict[str, Any]:
    """What the file keeps of some bytes."""
    if len(data) <= _STORED_WHOLE:
        return {"base64": base64.b64encode(data).decode()}
    return {"sha256": hashlib.sha256(data).hexdigest(), "length": len(data)}


def main() -> None:
    """Write the file."""
    lines = []
    for name, case in CASES.items():
        payload = encode(case)
        decoded = decode(case, payload).astype("<f4").tobytes()
        entry = {"case": case, "payload": kept(payload), "decoded": kept(decoded)}
        lines.append(f"{json.dumps(name)}: {json.dumps(entry)}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
