"""Makes payloads.json anew from its cases: what today's encoder writes, and its decoder reads.

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

# name: [scheme, parameters, shape or shapes, keyed]; a new case is written into the file by hand.
# The t laws have their scales by hand: a calibrated law may differ in its last bits.
KEPT: dict[str, dict[str, Any]] = json.loads(FILE.read_text())


def weyl(first, shape):
    """Entries first, first + 1, … of a fixed sequence in [−1, 1), as float32."""
    places = np.arange(first, first + int(np.prod(shape)), dtype=np.uint64)
    words = (places + np.uint64(1)) * np.uint64(0x9E3779B1) % np.uint64(1 << 32)
    return (words / 2.0**31 - 1.0).astype(np.float32).reshape(shape)


def update_of(shapes):
    """One array, or a state of them, filled from the sequence."""
    if isinstance(shapes, list):
        return weyl(0, shapes)
    state, first = {}, 0
    for name, shape in shapes.items():
        state[name] = weyl(first, shape)
        first += state[name].size
    return state


def encode(case):
    """The payload of a case."""
    name, parameters, shapes, is_keyed = case
    scheme = jopeq.scheme(name, **parameters)
    arguments: dict[str, Any] = {"noise": PrivateStream.reproducible(NOISE)}
    if is_keyed:
        arguments |= {"secret": KEY, "seed": SEED[:16]}
    elif scheme.codec.has_dither:
        arguments["seed"] = SEED
    return scheme.encode(update_of(shapes), **arguments)


def decode(case, payload):
    """Its entries, flat; those of a state one tensor after the other."""
    name, parameters, shapes, is_keyed = case
    scheme = jopeq.scheme(name, **parameters)
    key = KEY if is_keyed else None
    if isinstance(shapes, list):
        return scheme.decode(payload, secret=key).reshape(-1)
    state = scheme.decode(payload, like=update_of(shapes), secret=key)
    return np.concatenate([np.empty(0, np.float32), *(part.reshape(-1) for part in state.values())])


def kept(data):
    """What the file keeps of some bytes."""
    if len(data) <= _STORED_WHOLE:
        return {"base64": base64.b64encode(data).decode()}
    return {"sha256": hashlib.sha256(data).hexdigest(), "length": len(data)}


def check(entry):
    """Today's encoder writes, and its decoder reads, what the file keeps."""
    case, payload = entry["case"], entry["payload"]
    encoded = encode(case)
    assert kept(encoded) == payload, case
    data = base64.b64decode(payload["base64"]) if "base64" in payload else encoded
    assert kept(decode(case, data).astype("<f4").tobytes()) == entry["decoded"], case


def main():
    """Write the file."""
    lines = []
    for name, case in ((name, entry["case"]) for name, entry in KEPT.items()):
        payload = encode(case)
        decoded = decode(case, payload).astype("<f4").tobytes()
        entry = {"case": case, "payload": kept(payload), "decoded": kept(decoded)}
        lines.append(f"{json.dumps(name)}: {json.dumps(entry)}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
