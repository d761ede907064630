"""Shares of private sums by compiled kernels: the plain path's integers."""

from __future__ import annotations

import numpy as np
import pytest

import jopeq
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.sums.shares import rotate

SEED, NOISE = bytes(range(32)), bytes(range(100, 132))
HUNDRED = {"epsilon": 4.0, "clip": 1.0, "clients": 100, "threshold": 67}


def update_of(count, size):
    return (size * np.random.default_rng(count).standard_normal(count)).astype(np.float32)


def noise():
    return PrivateStream.reproducible(NOISE)


@pytest.mark.parametrize("count", [5, 40, 70_001, 200_003])
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_shares_of_any_entries(count, threads, same_outcome, many_threads):
    """Tensors of several types, one that does not lie in a row, entries that are replaced."""
    narrow = update_of(count, 1e-3)
    broken = narrow.copy()
    broken[::7] = np.nan
    state = {"a": narrow, "none": narrow[:0], "b": narrow[::2].astype(np.float16), "c": broken}
    scheme = jopeq.ClientSum(**HUNDRED, bits=14)
    decoding = {"seed": SEED, "dimension": count, "clients": scheme.threshold}

    def work():
        shares = [
            scheme.encode(each, seed=SEED, noise=noise())
            for each in (state, narrow.astype(np.float64), narrow[::-1], broken)
        ]
        mean = scheme.decode(shares[1].astype(np.int64) // 4, **decoding)
        return [each.tobytes() for each in (*shares, mean)]

    assert same_outcome(work, threads)[0] == "done"


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("count", [40, 70_001])
def test_rows_of_any_type_are_turned_alike(kind, count, same_outcome):
    values = np.random.default_rng(count).integers(-(2**23), 2**23, count).astype(kind)
    assert same_outcome(lambda: rotate(values, 1 / 3, SharedStream(SEED)).tobytes())[0] == "done"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({}, 1),
        ({"bits": 8, "largest_mean": 0.05}, 5001),
        ({"bits": 30}, 70_003),
        ({"bits": 16}, 200_000),
    ],
    ids=str,
)
def test_compiled_shares_of_records(given, count, threads, same_outcome, many_threads):
    common = {"epsilon": 1.0, "clip": 0.5, "records": 4000, "sampling": 0.25, "rounds": 20}
    scheme = jopeq.RecordSum(**common, clients=4, threshold=3, most_records=1200, **given)
    total = jopeq.ClippedTotal(count, 0.5).add(update_of(3 * count, 9.0).reshape(3, count))
    huge = np.full(count, 2**62)  # beyond 53 bits, 32-bit places and the largest place
    huge[::3] = 2**53 + 1

    def work():
        totals = (total, jopeq.ClippedTotal.restore(huge, 0.5))
        shares = [scheme.encode(one, seed=SEED, noise=noise()) for one in totals]
        return [(share.dtype, share.tobytes()) for share in shares]

    assert same_outcome(work, threads)[0] == "done"
