"""Key stream in pieces is the stream; with OpenSSL and without."""

from __future__ import annotations

import numpy as np
import pytest

from jopeq.kernels.cpu.key_stream import KeyStream
from jopeq.random.streams import ChaChaStream, PrivateStream, SharedStream

KEY = bytes(range(32))
ROOM = 640


@pytest.fixture(params=["OpenSSL", "compiled"])
def source(request, monkeypatch):
    pytest.importorskip("numba" if request.param == "compiled" else "cryptography")
    if request.param == "compiled":
        monkeypatch.setattr(ChaChaStream, "cipher", lambda stream, lane, block: None)
    return request.param


@pytest.mark.parametrize("stream", [PrivateStream.reproducible(KEY), SharedStream(KEY)])
@pytest.mark.parametrize("lane", [0, 3, 1 << 31])
@pytest.mark.parametrize("start", [0, 64, 64 * 1000, 64 << 20])
@pytest.mark.parametrize("pieces", [[ROOM], [1], [ROOM, ROOM, ROOM], [64, 128, 64, 7], [ROOM, 65]])
def test_pieces_follow_each_other(stream, lane, start, pieces, source):
    keys = KeyStream(stream, lane, start, ROOM)
    expected = stream.read(lane=lane, start=start, count=sum(pieces))
    got = np.concatenate([keys.next(count).copy() for count in pieces])
    assert got.dtype == np.uint8
    assert (got == expected).all()


def test_a_room_that_is_not_whole_blocks(source):
    stream = SharedStream(KEY)
    keys = KeyStream(stream, 0, 64, 10)
    assert (keys.next(10) == stream.read(lane=0, start=64, count=10)).all()


def test_every_piece_lies_in_the_same_room(source):
    keys = KeyStream(SharedStream(KEY), 0, 0, ROOM)
    one, two = keys.next(ROOM), keys.next(ROOM)
    assert np.shares_memory(one, two)


def test_the_stream_never_starts_over(source):
    """Noise that repeats is not private: beyond 2³² blocks there is an error, as in ``read``."""
    stream = PrivateStream.reproducible(KEY)
    last = (1 << 32) - 1
    keys = KeyStream(stream, 0, 64 * last, 64)
    assert (keys.next(64) == stream.read(lane=0, start=64 * last, count=64)).all()
    with pytest.raises(ValueError, match="split the update"):
        keys.next(64)
    with pytest.raises(ValueError, match="split the update"):
        KeyStream(stream, 0, 64 * last, 128).next(128)
    with pytest.raises(ValueError, match="split the update"):
        KeyStream(stream, 0, 64 << 32, 64)
