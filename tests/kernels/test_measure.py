"""Sums and the look for bad entries: the plain path's numbers, wherever tensors end."""

from __future__ import annotations

import numpy as np
import pytest

from jopeq.wire.entries import READ_CHUNK, Entries
from jopeq.wire.scaling import lane_sum, sums

pytest.importorskip("numba")

from jopeq.kernels.cpu.measure import chunk_sums, is_finite

COUNTS = [
    1,
    2,
    511,
    512,
    513,
    1023,
    READ_CHUNK - 1,
    READ_CHUNK,
    READ_CHUNK + 1,
    3 * READ_CHUNK + 700,
]


def entries_of(count, dtype):
    rng = np.random.default_rng(count)
    return (rng.normal(size=count) * 10.0 ** rng.integers(-9, 9, count)).astype(dtype)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", COUNTS)
def test_sums(count, dtype, threads, on, many_threads):
    flat = entries_of(count, dtype)
    plain = [flat[i : i + READ_CHUNK].astype(np.float64) for i in range(0, count, READ_CHUNK)]
    with on(threads):
        assert chunk_sums(flat, None) == [lane_sum(chunk) for chunk in plain]
        for mean in (0.0, 0.37, -1e9):
            assert chunk_sums(flat, mean) == [lane_sum(np.square(chunk - mean)) for chunk in plain]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("mean", [None, 0.25])
def test_sums_of_entries(dtype, mean, on, monkeypatch):
    entries = Entries.of_update(entries_of(70_001, np.float64).clip(-9, 9).astype(dtype))
    plain = sums(entries, 0, mean)
    with on():
        assert sums(entries, 0, mean) == plain
        assert (entries.compiled(0) is None) == (dtype is np.float16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", COUNTS)
def test_bad_entries_are_found_anywhere(count, dtype, on, many_threads):
    flat = entries_of(count, dtype)
    with on(3):
        assert is_finite(flat)
        for place in {0, count // 2, count - 1}:
            for bad in (np.nan, -np.nan, np.inf, -np.inf):
                spoilt = flat.copy()
                spoilt[place] = bad
                assert not is_finite(spoilt)
