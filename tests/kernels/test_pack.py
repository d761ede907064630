"""Compiled packing is ``Packing``, byte for byte, and stays within its bytes."""

import numpy as np
import pytest

from jopeq.errors import PayloadError
from jopeq.wire.coders import Packing

pytest.importorskip("numba")

from jopeq.kernels.cpu import lattice, line

ALPHABETS = [*range(2, 12), 16, 31, 32, 33, 100, 255, 256, 257, 1000, 4096, 40000, 65535, 65536]
GUARD = 16


def counts(packing):
    """Numbers of letters that end in every way: within a number, a word, a block."""
    near = {64, packing.digits, 2 * packing.digits, packing.block}
    return sorted({*range(1, 66), *(n + i for n in near for i in (-1, 0, 1))} - {0})


def pack(packing, letters):
    """Packed bytes, between guards that must survive."""
    size = packing.size(len(letters))
    guarded = np.full(size + 2 * GUARD, 0xA5, np.uint8)
    numbers = (packing.letters, packing.width, packing.digits, packing.bits)
    lattice.pack_letters(letters, *numbers, guarded[GUARD : GUARD + size])
    assert (guarded[:GUARD] == 0xA5).all(), "wrote before its bytes"
    assert (guarded[GUARD + size :] == 0xA5).all(), "wrote behind its bytes"
    return guarded[GUARD : GUARD + size].tobytes()


def unpack(packing, packed, count):
    """The letters by way of the decoder of the line with step 1, or None for refused bytes."""
    letters, out = np.full(count, 0xA5A5, np.uint16), np.empty(count, np.float32)
    code = line.decode_letters(
        np.frombuffer(packed, np.uint8),
        packing.letters, packing.width, packing.digits, packing.bits,
        np.empty(0, np.uint16), line.LINE, 1.0, 0.0, np.empty(0), np.empty(0), 1.0, 0.0,
        letters, np.empty(0), out,
    )  # fmt: skip
    assert code in (0, 1)
    if code == 0:
        assert out.tolist() == letters.tolist()
    return letters.tolist() if code == 0 else None


def plain_unpack(packing, packed, count):
    try:
        return packing.unpack(packed, count).tolist()
    except PayloadError:
        return None


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_letters_become_the_same_bytes_and_any_bytes_are_read_or_refused_alike(alphabet):
    packing, rng = Packing(alphabet), np.random.default_rng(alphabet)
    refused = 0
    for count in counts(packing):
        size = packing.size(count)
        for letters in (rng.integers(0, alphabet, count), np.full(count, alphabet - 1)):
            packed = pack(packing, letters.astype(np.uint16))
            assert packed == packing.encode(letters.astype(np.int64))
            assert unpack(packing, packed, count) == letters.tolist()
        end = packed[:-1] + bytes((packed[-1] ^ 0x80,))
        for data in (rng.bytes(size), end, b"\xff" * size):
            expected = plain_unpack(packing, data, count)
            assert unpack(packing, data, count) == expected
            refused += expected is None
    assert refused > 0 or alphabet in (256, 65536)
