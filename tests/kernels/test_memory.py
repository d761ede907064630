"""Whatever the size of the update: 64 MiB and the payload, or the decoded update, no more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

ENTRIES = 20_000_000  # of which a copy in single precision would already be too much
LIMIT = 64 << 20
# one process codes one update after the other; writing 5 sets its high-water mark VmHWM back
CODE = """
import json, re, sys
import numpy as np, torch, jopeq

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])

def measured(work):
    open("/proc/self/clear_refs", "w").write("5")
    before = peak()
    result = work()
    return result, peak() - before

def full(count, dtype):
    if dtype == "bfloat16":
        return torch.full((count,), 0.01, dtype=torch.bfloat16)
    return np.full(count, 0.01, dtype)

found = []
for spec, dtype in json.loads(sys.argv[1]):
    scheme = jopeq.scheme_from_spec(spec)
    scheme.decode(scheme.encode(full(1 << 18, dtype)))  # everything is loaded
    update = full(ENTRIES, dtype)
    payload, extra = measured(lambda: scheme.encode(update))
    found.append((f"encode {dtype}", extra, len(payload)))
    del update
    back, extra = measured(lambda: scheme.decode(payload))
    found.append((f"decode {spec}", extra, back.nbytes))
    del payload, back
print(json.dumps(found))
"""
ONE_BIT = '["jopeq",{"epsilon":4.0,"rate":1.0}]'
ODD_A2 = '["sdq",{"lattice":"A2","rate":1.41}]'
CASES = [(ONE_BIT, "bfloat16"), (ODD_A2, "float64")]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
def test_encode_and_decode():
    pytest.importorskip("torch")
    code = CODE.replace("ENTRIES", str(ENTRIES))
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(CASES)],
        env={**os.environ, "JOPEQ_KERNELS": "on"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert len(found) == 2 * len(CASES)
    for name, extra, size in found:
        assert extra < LIMIT + size, name
        assert extra > size - LIMIT / 2, f"{name}: the measurement saw nothing"
        if name.startswith("decode"):
            assert size == 4 * ENTRIES
