"""Shares of a secure sum by compiled kernels, torch and Triton: the plain path's integers.

With TRITON_INTERPRET=1 the Triton kernels run on the CPU (``test_gpu_interpreter`` starts that).
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import jopeq
from jopeq import kernels
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.sums.shares import rotate

SEED, NOISE = bytes(range(32)), bytes(range(100, 132))
COMMON = {"epsilon": 4.0, "clip": 1.0}
HUNDRED = {**COMMON, "clients": 100, "threshold": 67}
# parameters, entries, size of the update
CASES = [
    ({**COMMON, "clients": 3, "threshold": 3}, 1, 1.0),
    ({**COMMON, "clients": 3, "threshold": 3}, 13, 0.1),
    ({**HUNDRED, "bits": 12}, 97, 1.0),
    ({**HUNDRED}, 4096, 0.01),
    ({**HUNDRED, "participations": 20}, 5001, 1.0),
    ({**HUNDRED, "bits": 8, "kept": 1.0}, 70_001, 1e-3),
    ({**HUNDRED, "bits": 8, "kept": 1.0}, 1 << 17, 1.0),
]


def update_of(count, size):
    return (size * np.random.default_rng(count).standard_normal(count)).astype(np.float32)


def noise():
    return PrivateStream.reproducible(NOISE)


@pytest.mark.parametrize(("given", "count", "size"), CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_shares(given, count, size, threads, same_outcome, many_threads):
    scheme, update = jopeq.SecureSum(**given), update_of(count, size)
    decoding = {"seed": SEED, "dimension": count, "clients": scheme.threshold}

    def work():
        share = scheme.encode(update, seed=SEED, noise=noise())
        mean = scheme.decode(share.astype(np.int64) * 3, **decoding)
        return share.dtype, share.tobytes(), mean.tobytes()

    assert same_outcome(work, threads)[0] == "done"


@pytest.mark.parametrize("count", [5, 40, 70_001, 200_003])
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_shares_of_any_entries(count, threads, same_outcome, many_threads):
    """Tensors of several types, one that does not lie in a row, entries that are replaced."""
    narrow = update_of(count, 1e-3)
    broken = narrow.copy()
    broken[::7] = np.nan
    state = {"a": narrow, "none": narrow[:0], "b": narrow[::2].astype(np.float16), "c": broken}
    scheme = jopeq.SecureSum(**HUNDRED, bits=14, kept=1.0)
    updates = (state, narrow.astype(np.float64), narrow[::-1], broken)

    def work():
        return [scheme.encode(each, seed=SEED, noise=noise()).tobytes() for each in updates]

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


def test_kernels_hand_back_what_exceeds_the_bound(on):
    law = jopeq.SecureSum(**HUNDRED, kept=1.0).plan(5000).law
    values = np.full(5000, 2.0)
    with on():
        assert kernels.draw_share(values, law, 140, 8, noise()) is None  # Σ Y² is 20,000 at least
        assert kernels.draw_share(values, law, 1000, 8, noise()) is not None


@pytest.mark.parametrize(("given", "count", "size"), CASES[:6], ids=str)
def test_shares_of_a_device(given, count, size, monkeypatch):
    torch = pytest.importorskip("torch")
    importlib.import_module("tests.kernels.gpu_in_numpy").stand_in(monkeypatch)
    device = importlib.import_module("jopeq.kernels.device")
    scheme, update = jopeq.SecureSum(**given), update_of(count, size)
    if importlib.import_module("jopeq.kernels.gpu.jit").IS_INTERPRETED and count > 5001:
        pytest.skip("slow in the interpreter")
    update[0] = np.nan
    share = scheme.encode(update, seed=SEED, noise=noise())
    where = "cuda" if torch.cuda.is_available() else "cpu"
    shared, parts = SharedStream(SEED), torch.from_numpy(update).to(where).tensor_split(2)
    recipe = scheme.recipe(scheme.plan(count), shared)
    found, is_within, invalid = device.encode_share(recipe, parts, shared, noise())
    assert (is_within, invalid) == (True, 1)
    assert found.dtype == share.dtype
    assert (found == share).all()
