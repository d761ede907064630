"""Bodies decoded and added up in threads: the sum of the decoded updates to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import jopeq


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_do_not_change_a_bit(threads, on, gaussian):
    scheme, weights = jopeq.scheme("sdq", rate=2), [0.2, 0.3, 0.5]
    payloads = [scheme.encode(gaussian(600_001, sigma=1.0, seed=seed)) for seed in range(3)]
    expected = np.zeros(600_001)
    for payload, weight in zip(payloads, weights, strict=True):
        expected += weight * scheme.decode(payload).astype(np.float64)
    with on(threads):
        found = jopeq.aggregate(payloads, weights, scheme=scheme)
    assert np.array_equal(found, expected)
