"""Sums and the look for bad entries: the plain path's numbers, wherever tensors end."""

import itertools

import numpy as np
import pytest

from jopeq.wire.entries import LARGEST, READ_CHUNK, Entries, lane_sum

pytest.importorskip("numba")

from jopeq.kernels.cpu.measure import CompiledSums, chunk_sums

COUNTS = [
    *(1, 2, 511, 512, 513, 1023),
    *(READ_CHUNK - 1, READ_CHUNK, READ_CHUNK + 1, 3 * READ_CHUNK + 700),
]


def is_finite(row):
    return CompiledSums().look(Entries.of_update(row), 0, LARGEST, False) is not None


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_and_bad_entries_anywhere(count, dtype, on, many_threads):
    rng = np.random.default_rng(count)
    row = (rng.normal(size=count) * 10.0 ** rng.integers(-9, 9, count)).astype(dtype)
    plain = [row[i : i + READ_CHUNK].astype(np.float64) for i in range(0, count, READ_CHUNK)]
    for threads in (1, 2, 3):
        with on(threads):
            assert chunk_sums(row, None) == [lane_sum(chunk) for chunk in plain]
            for mean in (0.0, 0.37, -1e9):
                expected = [lane_sum(np.square(chunk - mean)) for chunk in plain]
                assert chunk_sums(row, mean) == expected
    with on(3):
        assert is_finite(row)
        for place, bad in itertools.product({0, count // 2, count - 1}, (np.nan, np.inf, -np.inf)):
            spoilt = row.copy()
            spoilt[place] = bad
            assert not is_finite(spoilt)


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
