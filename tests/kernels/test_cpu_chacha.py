"""ChaCha20 in a compiled loop is the reference's, at every counter and lane."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from jopeq.random.streams import PrivateStream, key_stream

pytest.importorskip("numba")

from jopeq.kernels.cpu.chacha import fill, start_state, word64

KEY = bytes(range(32))
LANES = [0, 1, 7, (1 << 31) - 1, 1 << 31, (1 << 31) | 5, (1 << 32) - 1]


def reference(lane, first, blocks):
    return key_stream(KEY, struct.pack("<8xI", lane), first, blocks)


def filled(lane, first, blocks):
    """Blocks between guards that must survive."""
    room = np.full(16 * (blocks + 2), 0xA5A5A5A5, np.uint32)
    fill(np.frombuffer(KEY, "<u4"), lane, first, room[16:-16])
    assert (room[:16] == 0xA5A5A5A5).all()
    assert (room[-16:] == 0xA5A5A5A5).all()
    return room[16:-16].view(np.uint8)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("first", [0, 1, 15, 16, 1000, (1 << 31) - 3, (1 << 32) - 40])
def test_blocks(lane, first):
    for blocks in (1, 2, 15, 16, 17, 31, 32, 33, 40):
        assert (filled(lane, first, blocks) == reference(lane, first, blocks)).all()


def test_the_vector_of_rfc_8439():
    # appendix A.1, test vectors 1 and 2: key 0, nonce 0, blocks 0 and 1
    words = np.empty(32, np.uint32)
    fill(np.zeros(8, np.uint32), 0, 0, words)
    assert words.tobytes()[:16].hex() == "76b8e0ada0f13d90405d6ae55386bd28"
    assert words.tobytes()[64:80].hex() == "9f07e7be5551387a98ba977c732d080d"


@pytest.mark.parametrize("lane", LANES)
def test_single_words(lane):
    stream = PrivateStream.reproducible(KEY)
    state = start_state(np.frombuffer(KEY, "<u4"), lane)
    for place in (0, 1, 7, 8, 9, 4095, 1 << 20, (1 << 33) + 5, (1 << 35) - 1):
        (expected,) = stream.words64(lane=lane, start=place, count=1)
        assert word64(state, place) == expected
