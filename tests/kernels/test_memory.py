"""Whatever the size of the update: 64 MiB and the payload, or the decoded update, no more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

ENTRIES = 20_000_000  # of which a copy in single precision would already be too much
LIMIT = 64 << 20
# VmHWM is this process's own high-water mark; ru_maxrss would begin with that of the parent
CODE = """
import re, sys
import numpy as np, jopeq
from jopeq import kernels
from jopeq.random.streams import PrivateStream

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])

way, spec, dtype, path = sys.argv[1:]
scheme = jopeq.scheme_from_spec(spec)

def full(count):
    if dtype != "bfloat16":
        return np.full(count, 0.01, dtype)
    import torch
    return torch.full((count,), 0.01, dtype=torch.bfloat16)

small = full(1 << 18)
scheme.decode(scheme.encode(small))  # everything is loaded
if way == "encode":
    update = full(ENTRIES)
    before = peak()
    result = scheme.encode(update)
    with open(path, "wb") as file:
        after = peak()
        file.write(result)
    size = len(result)
else:
    with open(path, "rb") as file:
        payload = file.read()
    before = peak()
    result = scheme.decode(payload)
    after = peak()
    size = result.nbytes
print(after - before, size)
"""
ONE_BIT = '["jopeq",{"epsilon":4.0,"rate":1.0}]'
ODD_A2 = '["sdq",{"lattice":"A2","rate":1.41}]'
WORDS = '["laplace",{"epsilon":4.0}]'

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


def measured(*arguments):
    code = CODE.replace("ENTRIES", str(ENTRIES))
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "JOPEQ_KERNELS": "on"},
        capture_output=True,
        text=True,
        check=True,
    )
    return map(int, done.stdout.split())


CASES = [(ONE_BIT, "float32"), (ONE_BIT, "float64"), (ONE_BIT, "bfloat16"), (ODD_A2, "float16")]


@pytest.mark.parametrize(("spec", "dtype"), [*CASES, (WORDS, "float32")])
def test_encode_and_decode(spec, dtype, tmp_path):
    path = tmp_path / "payload"
    extra, payload = measured("encode", spec, dtype, path)
    assert extra < LIMIT + payload
    assert extra > payload - LIMIT / 2, "the measurement saw nothing"
    if dtype == "float32":
        extra, update = measured("decode", spec, dtype, path)
        assert update == 4 * ENTRIES
        assert extra < LIMIT + update
        assert extra > update - LIMIT / 2, "the measurement saw nothing"
