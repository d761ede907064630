"""No compression, no privacy: float32 as it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

import jopeq

NONE = jopeq.scheme("none")


def test_float32_comes_back_bit_for_bit() -> None:
    source = np.random.default_rng(0)
    words = source.integers(0, 2**32, 10_000, dtype=np.uint64).astype(np.uint32)
    update = words.view(np.float32)
    update = np.concatenate((update[np.isfinite(update)], np.float32([0.0, -0.0, 1e-45, 3.4e38])))
    decoded = NONE.decode(NONE.encode(update))
    np.testing.assert_array_equal(decoded.view(np.uint32), update.view(np.uint32))


def test_float64_is_rounded_to_the_nearest() -> None:
    update = np.random.default_rng(1).standard_normal(1000)
    np.testing.assert_array_equal(NONE.decode(NONE.encode(update)), update.astype(np.float32))


def test_it_promises_nothing_and_costs_32_bits() -> None:
    assert NONE.guarantee.epsilon == math.inf
    assert NONE.guarantee.nominal is None
    assert "No privacy" in str(NONE.guarantee)
    assert NONE.distortion == 0.0
    assert NONE.bits_per_entry == 32.0
    assert NONE.dimension == 1
    payload = NONE.encode(np.ones(1000))
    assert len(payload) == 4000 + len(NONE.encode(np.ones(0))) + 1  # 1000 takes a longer varint


def test_the_body_is_the_numbers() -> None:
    payload = NONE.encode(np.float32([1.0, -2.0]))
    assert payload[-12:-4] == bytes.fromhex("0000803f000000c0")


@pytest.mark.parametrize("parameter", ["clip", "center", "epsilon", "epsilom"])
def test_there_is_nothing_to_set(parameter: str) -> None:
    with pytest.raises(ValueError, match=f"scheme 'none' takes no parameters: drop {parameter}"):
        jopeq.scheme("none", **{parameter: 1.0})
    with pytest.raises(ValueError, match="takes no parameters: drop clip, rotate"):
        jopeq.Uncompressed(clip=1.0, rotate=True)
