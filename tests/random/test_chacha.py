import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jopeq.random.streams import ChaChaStream, key_stream


def test_block_function_of_the_rfc():
    # RFC 8439, section 2.3.2: a nonce no stream of ours uses
    nonce = bytes.fromhex("000000090000004a00000000")
    block = key_stream(bytes(range(32)), nonce, 1, 1).tobytes().hex()
    assert block == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


@settings(max_examples=30, deadline=None)
@given(
    key=st.binary(min_size=32, max_size=32),
    lane=st.integers(0, 2**32 - 1),
    start=st.integers(0, 2**38 - 5000),
    count=st.integers(0, 3000),
)
def test_equals_openssl(key, lane, start, count):
    pytest.importorskip("cryptography")
    stream = ChaChaStream(key)
    block, skip = divmod(start, 64)
    nonce = bytes(8) + lane.to_bytes(4, "little")
    ours = key_stream(key, nonce, block, -(-(skip + count) // 64))[skip : skip + count]
    assert np.array_equal(ours, stream.read(lane=lane, start=start, count=count))


def test_stands_in_when_cryptography_is_missing(monkeypatch):
    stream = ChaChaStream(bytes(range(32)))
    expected = stream.read(lane=7, start=100, count=1000)
    for name in list(sys.modules):
        if name.split(".")[0] == "cryptography":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert np.array_equal(stream.read(lane=7, start=100, count=1000), expected)
