"""Key stream in pieces, and single compiled blocks of ChaCha20, are the stream's bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jopeq.random.streams import PrivateStream, SharedStream

pytest.importorskip("numba")

from jopeq.kernels.cpu.codec import KeyStream
from jopeq.kernels.cpu.noise import start_state, word64

KEY = bytes(range(32))
LANES = st.sampled_from([0, 1, 7, (1 << 31) - 1, 1 << 31, (1 << 31) | 5, (1 << 32) - 1])
MOST = 640


@given(
    lane=LANES,
    block=st.sampled_from([0, 1, 1000, 1 << 20, (1 << 32) - 60]),
    pieces=st.lists(st.integers(1, MOST // 64).map(lambda blocks: 64 * blocks), max_size=4),
    last=st.integers(1, MOST),
)
def test_pieces_follow_each_other(lane, block, pieces, last):
    """Every piece in the same buffer."""
    stream = SharedStream(KEY)
    keys = KeyStream(stream, lane, 64 * block, MOST)
    found = [keys.next(count) for count in (*pieces, last)][-1]
    start = 64 * block + sum(pieces)
    assert found.dtype == np.uint8
    assert (found == stream.read(lane=lane, start=start, count=last)).all()
    assert found.base is keys._buffer or found is keys._buffer


def test_a_buffer_that_is_not_whole_blocks():
    stream = SharedStream(KEY)
    assert (KeyStream(stream, 0, 64, 10).next(10) == stream.read(lane=0, start=64, count=10)).all()


def test_the_stream_never_starts_over():
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


@given(
    lane=LANES, place=st.sampled_from([0, 1, 7, 8, 9, 4095, 1 << 20, (1 << 33) + 5, (1 << 35) - 1])
)
def test_single_words(lane, place):
    state = start_state(np.frombuffer(KEY, "<u4"), lane)
    (expected,) = PrivateStream.reproducible(KEY).words64(lane=lane, start=place, count=1)
    assert word64(state, place) == expected
