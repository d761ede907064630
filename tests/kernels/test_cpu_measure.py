"""One kernel's sums and its look for bad entries: the order of additions, the edge of float32."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from jopeq.kernels.cpu.measure import chunk_sums, is_finite

FLOAT32_MAX = float(np.finfo(np.float32).max)


def test_lanes_are_added_in_the_documented_order():
    """The order matters: ones lost beside 2⁵³ show which numbers were added first."""
    flat = np.ones(2048)
    flat[0] = 2.0**53
    lanes = flat.reshape(4, 512)
    expected = lanes[0].copy()
    for row in lanes[1:]:
        expected += row
    while len(expected) > 1:
        half = len(expected) // 2
        expected = expected[:half] + expected[half:]
    assert chunk_sums(flat, None) == [expected[0]]
    assert expected[0] != np.add.accumulate(flat)[-1]


def test_the_largest_float32_is_fine_and_no_more(on):
    fine = np.array([FLOAT32_MAX, -FLOAT32_MAX, 5e-324])
    with on():
        assert is_finite(fine)
        assert is_finite(fine.astype(np.float32))
        assert not is_finite(np.array([np.nextafter(FLOAT32_MAX, np.inf)]))
        assert not is_finite(np.array([-1e39]))
