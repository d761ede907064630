"""Key stream in pieces, and ChaCha20 in a compiled loop, are the reference's bytes."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jopeq.random.streams import ChaChaStream, PrivateStream, SharedStream

pytest.importorskip("numba")

from jopeq.kernels.cpu import chacha
from jopeq.kernels.cpu.chacha import KeyStream, fill

KEY = bytes(range(32))
MOST = 640


@pytest.fixture(params=["OpenSSL", "compiled"])
def source(request, monkeypatch):
    monkeypatch.setattr(chacha, "_SHORT", {"OpenSSL": 0, "compiled": MOST}[request.param])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    block=st.sampled_from([0, 1, 1000, 1 << 20, (1 << 32) - 60]),
    pieces=st.lists(st.integers(1, MOST // 64).map(lambda blocks: 64 * blocks), max_size=4),
    last=st.integers(1, MOST),
)
def test_pieces_follow_each_other(block, pieces, last, source):
    """Every piece in the same buffer."""
    stream = SharedStream(KEY)
    keys = KeyStream(stream, 64 * block, MOST)
    found = [keys.next(count) for count in (*pieces, last)][-1]
    start = 64 * block + sum(pieces)
    assert found.dtype == np.uint8
    assert (found == stream.read(lane=0, start=start, count=last)).all()
    assert found.base is keys._buffer or found is keys._buffer


def test_the_stream_never_starts_over(source):
    """Noise that repeats is not private: beyond 2³² blocks there is an error, as in ``read``."""
    stream = PrivateStream.reproducible(KEY)
    last = (1 << 32) - 1
    keys = KeyStream(stream, 64 * last, 64)
    assert (keys.next(64) == stream.read(lane=0, start=64 * last, count=64)).all()
    with pytest.raises(ValueError, match="split the update"):
        keys.next(64)
    with pytest.raises(ValueError, match="split the update"):
        KeyStream(stream, 64 * last, 128).next(128)
    with pytest.raises(ValueError, match="split the update"):
        KeyStream(stream, 64 << 32, 64)


@given(
    first=st.sampled_from([0, 1, 15, 16, 1000, (1 << 31) - 3, (1 << 32) - 40]),
    blocks=st.integers(1, 40),
)
def test_compiled_blocks(first, blocks):
    """Between guards that must survive."""
    words = np.full(16 * (blocks + 2), 0xA5A5A5A5, np.uint32)
    fill(np.frombuffer(KEY, "<u4"), first, words[16:-16])
    assert (words[:16] == 0xA5A5A5A5).all()
    assert (words[-16:] == 0xA5A5A5A5).all()
    expected = ChaChaStream(KEY).read(lane=0, start=64 * first, count=64 * blocks)
    assert (words[16:-16].view(np.uint8) == expected).all()
