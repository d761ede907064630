"""Sums and the look for bad entries: the plain path's numbers, wherever tensors end."""

import numpy as np
import pytest

pytest.importorskip("numba")

from jopeq.kernels.cpu.measure import chunk_sums


def test_lanes_are_added_in_the_documented_order():
    """The order matters: ones lost beside 2⁵³ show which numbers were added first."""
    row = np.ones(2048)
    row[0] = 2.0**53
    lanes = row.reshape(4, 512)
    expected = lanes[0].copy()
    for more in lanes[1:]:
        expected += more
    while len(expected) > 1:
        half = len(expected) // 2
        expected = expected[:half] + expected[half:]
    assert chunk_sums(row, None) == [expected[0]]
    assert expected[0] != np.add.accumulate(row)[-1]
