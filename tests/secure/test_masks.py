"""Masks are uniform over the ring, and masked vectors cost ``bits`` bits an entry."""

import numpy as np
import pytest

from jopeq.errors import PayloadError
from jopeq.secure.masks import add_mask, pack, to_ring, unpack


@pytest.mark.parametrize("bits", [1, 2, 5, 8, 11, 16, 17, 24, 32])
def test_any_width_packs_to_its_bits_and_masks_cancel(bits):
    vector = np.random.default_rng(bits).integers(0, 1 << bits, 300_001, dtype=np.uint32)
    total = to_ring(vector, bits)
    add_mask(total, b"k" * 32, 1)
    assert (total & ((1 << bits) - 1) != vector).mean() > 0.45
    packed = pack(total, bits)
    assert len(packed) == (300_001 * bits + 7) // 8
    back = unpack(packed, 300_001, bits)
    add_mask(back, b"k" * 32, -1)
    assert (unpack(pack(back, bits), 300_001, bits) == vector).all()
    with pytest.raises(PayloadError):
        unpack(packed[:-1], 300_001, bits)


@pytest.mark.parametrize("vector", [[-1], [256], [[1]], [0.5]])
def test_other_vectors_are_refused(vector):
    with pytest.raises(ValueError, match=r"integers|entries"):
        to_ring(np.array(vector), 8)
