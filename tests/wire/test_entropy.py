"""The entropy coder: exact round trips, its rate, its tables and its limits."""

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jopeq.errors import PayloadError
from jopeq.wire import entropy
from jopeq.wire.entropy import MAX_ENTRIES_PER_BYTE, _frequencies


def again(rows):
    data = entropy.encode(rows)
    decoded, used = entropy.decode(memoryview(data + b"more"), len(rows), rows.shape[1])
    assert used == len(data)
    return decoded


@settings(max_examples=60)
@given(
    scale=st.sampled_from([0.01, 0.3, 1.0, 10.0, 60.0, 1000.0, 1e12]),
    count=st.sampled_from([1, 2, 1000, 20_000]),
    dimension=st.sampled_from([1, 2, 8]),
)
def test_rows_come_back(scale, count, dimension):
    """Each column has a table of its own."""
    source = np.random.default_rng([count, dimension])
    rows = np.rint(scale * source.standard_normal((count, dimension))).astype(np.int64)
    np.testing.assert_array_equal(again(rows), rows)
    assert entropy.encode(rows) == b"".join(entropy.encode(column[:, None]) for column in rows.T)


@settings(max_examples=200)
@given(
    st.lists(
        st.integers(-(2**55), 2**55) | st.integers(-3, 3) | st.integers(-200, 200),
        min_size=1,
        max_size=60,
    )
)
@example([5] * 70_000)
@example([-(2**61), 2**61])
@example(list(range(256)))
@example(list(range(-127, 128)) * 3 + [10_000])
@example([0] * 5000 + [10**15] + [1] * 5000)
def test_any_integers_come_back(values):
    rows = np.array(values, dtype=np.int64)[:, None]
    np.testing.assert_array_equal(again(rows), rows)


def test_one_far_value_does_not_take_the_window_along():
    values = np.zeros(10_000, dtype=np.int64)
    values[17] = 10**9
    low, top, escapes, _ = struct.unpack_from("<qBII", entropy.encode(values[:, None]))
    assert escapes == 1
    assert low <= 0 <= low + top


@pytest.mark.parametrize("scale", [0.4, 1.0, 3.0, 12.0])
def test_the_rate_is_the_empirical_entropy(scale):
    values = np.rint(scale * np.random.default_rng(0).standard_normal(60_000)).astype(np.int64)
    _, counts = np.unique(values, return_counts=True)
    shares = counts / counts.sum()
    bound = -float(shares @ np.log2(shares))
    spent = 8 * len(entropy.encode(values[:, None])) / len(values)
    assert bound <= spent <= bound * 1.01 + 8 * (17 + 2 * (len(counts) + 1)) / len(values) + 0.01


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=256))
def test_tables_are_positive_sum_to_65536_and_leave_room(counts):
    table = _frequencies(np.array(counts, dtype=np.int64))
    assert table.sum() == 1 << 16
    assert table.min() >= 1
    assert table.max() <= (1 << 16) - (1 << 10)


@pytest.mark.parametrize("count", [1, 100, 65_536])
def test_even_constants_cost_something(count):
    """Otherwise a few bytes could claim any number of entries."""
    length = len(entropy.encode(np.zeros((count, 1), dtype=np.int64)))
    assert count < MAX_ENTRIES_PER_BYTE * length
    assert 8 * length >= -count * math.log2(1 - 2.0**-6)


def test_what_ends_early_is_refused():
    data = entropy.encode(np.arange(20)[:, None])
    for length in range(len(data)):
        with pytest.raises(PayloadError):
            entropy.decode(memoryview(data)[:length], 20, 1)


@pytest.mark.parametrize("count", [1, 500, 900, 1100, 3000])
def test_another_number_of_rows_is_noticed(count):
    """Words left over, or escapes that do not fit; never a crash."""
    values = np.rint(5 * np.random.default_rng(4).standard_normal(1000)).astype(np.int64)
    data = memoryview(entropy.encode(values[:, None]))
    if count < 1000:
        with pytest.raises(PayloadError, match="left over"):
            entropy.decode(data, count, 1)
    else:
        try:
            rows, _ = entropy.decode(data, count, 1)
        except PayloadError:
            return
        np.testing.assert_array_equal(rows[:1000, 0], values)
