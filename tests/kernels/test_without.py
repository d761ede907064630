"""Without Numba the plain path works on; without OpenSSL kernels make their own key stream."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import jopeq
from jopeq.random.streams import PrivateStream

SCHEMES = [
    jopeq.scheme("sdq", rate=2.0),
    jopeq.scheme("laplace", epsilon=4.0),
    jopeq.scheme("t", epsilon=4.0, size=4),
    jopeq.scheme("jopeq", epsilon=4.0, rate=1.0),
    jopeq.scheme("jopeq", epsilon=4.0, rate=2.0, lattice="A2"),
    jopeq.scheme("staircase", epsilon=4.0, rate=1.5, lattice="D4", moves=2),
    jopeq.scheme("response", epsilon=4.0, rate=2.0),
]


def run(code, *, kernels, check=True, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "JOPEQ_KERNELS": kernels, **environment},
        capture_output=True,
        text=True,
        check=check,
    )


NO_NUMBA = "import sys; sys.modules['numba'] = None\n"
MUCH = """
import jopeq, numpy as np
from jopeq import kernels
from jopeq.kernels import cache
cache.mark_compiled()
kernels.expect(1 << 40)
scheme = jopeq.scheme("jopeq", epsilon=4.0, rate=1.0)
print(scheme.decode(scheme.encode(np.ones(5))).shape, kernels.are_loaded())
"""


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_numba_is_missing(mode, tmp_path):
    done = run(NO_NUMBA + MUCH, kernels=mode, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.stdout.split("\n")[0] == "(5,) False"


def test_numba_is_missed_when_kernels_are_asked_for():
    done = run(NO_NUMBA + MUCH, kernels="on", check=False)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: compiled kernels need Numba")
    assert "pip install 'jopeq[fast]'" in last
    assert "JOPEQ_KERNELS=off" in last


def test_a_numba_that_cannot_be_imported_is_as_good_as_none(tmp_path):
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text(
        "raise ImportError('Numba needs another NumPy')"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = run(MUCH, kernels="auto", PYTHONPATH=path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert done.stdout.split("\n")[0] == "(5,) False"
    done = run(MUCH, kernels="on", PYTHONPATH=path, check=False)
    assert "Numba needs another NumPy" in done.stderr.strip().splitlines()[-1]


def test_openssl_is_missing(gaussian):
    pytest.importorskip("numba")
    code = f"""
import sys; sys.modules["cryptography"] = None
import hashlib, jopeq, numpy as np
from jopeq.randomness import ChaChaStream, PrivateStream
assert ChaChaStream(bytes(32)).cipher(0, 0) is None
update = np.linspace(-1, 1, 70_001, dtype=np.float32)
for spec in {[scheme.spec for scheme in SCHEMES]!r}:
    scheme = jopeq.scheme_from_spec(spec)
    seed = bytes(32) if scheme.is_seeded else None
    payload = scheme.encode(update, seed=seed, noise=PrivateStream.reproducible(bytes(32)))
    print(hashlib.sha256(payload).hexdigest(), hashlib.sha256(scheme.decode(payload)).hexdigest())
print("jopeq.kernels.cpu.codec" in sys.modules)
"""
    import hashlib

    update = np.linspace(-1, 1, 70_001, dtype=np.float32)
    expected = []
    for scheme in SCHEMES:
        seed = bytes(32) if scheme.is_seeded else None
        payload = scheme.encode(update, seed=seed, noise=PrivateStream.reproducible(bytes(32)))
        decoded = scheme.decode(payload)
        expected.append(" ".join(hashlib.sha256(data).hexdigest() for data in (payload, decoded)))
    assert run(code, kernels="on").stdout.splitlines() == [*expected, "True"]


def test_small_updates_bring_neither_numba_nor_torch(tmp_path):
    code = """
import sys, jopeq, numpy as np
scheme = jopeq.scheme("jopeq", epsilon=4.0, rate=1.0)
scheme.decode(scheme.encode(np.ones(1000)))
print([name for name in ("numba", "llvmlite", "torch", "triton") if name in sys.modules])
"""
    for mode in ("auto", "off"):
        assert run(code, kernels=mode).stdout == "[]\n"
