"""``sphere``: kernels and threads give the reports and sums of the plain path."""

from __future__ import annotations

import numpy as np
import pytest

import jopeq
from jopeq.random.streams import PrivateStream
from jopeq.sphere import sphere_codebook as codebook

# (ε, dimension, bits, draws): one block or many, blocks shorter than eight of ChaCha, two lists
PLANS = [
    (1.0, 200, 5, 1 << 12),
    (4.0, 900, 8, 1 << 12),
    (8.0, 700, 8, 1 << 14),
    (16.0, 900, 12, 1 << 12),
]
CLIENTS = np.array([0, 77, (1 << 31) + 5, (1 << 32) - 3])


def terms_of(epsilon, dimension, bits, draws):
    scheme = jopeq.Sphere(epsilon=epsilon, clip=2.0, bits=bits, draws=draws)
    return scheme.round(dimension=dimension, seed=b"\xffk" * 16, people=codebook.MOST_CLIENTS)


def updates_of(dimension):
    """Zero, one block alone, too long, with entries that are no numbers."""
    rows = np.random.default_rng(1).normal(size=(4, dimension))
    rows[0] = 0.0
    rows[1, 1:] = 0.0
    rows[3, :3] = np.nan, np.inf, -1e30
    return rows


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("plan", PLANS)
def test_kernels_give_the_plain_path(plan, threads, same_outcome, many_threads):
    """Indices, and their sum before and after it is turned back."""
    terms = terms_of(*plan)

    def work():
        noise = PrivateStream.reproducible(b"n" * 32)
        indices = terms.indices(updates_of(terms.dimension), clients=CLIENTS, noise=noise)
        total = np.zeros(terms.plan.padded, dtype=np.int64)
        codebook.add_codewords(CLIENTS, indices, terms.plan, terms.shared, total)
        turned = codebook.decode_sum(total, terms.plan, terms.shared)
        return indices.tolist(), total.tobytes(), turned.tobytes()

    assert same_outcome(work, threads)[0] == "done"


def test_plans_are_of_every_kind():
    found = [terms_of(*plan).plan for plan in PLANS]
    assert {plan.lists for plan in found} == {1, 2}
    assert {plan.block == plan.padded for plan in found} == {True, False}
    assert {plan.block < 256 for plan in found} == {True, False}


@pytest.mark.parametrize("size", [1 << 13, 1 << 14])
def test_large_transforms_keep_the_order(size, same_outcome):
    rows = np.random.default_rng(2).normal(size=(3, size - 5))
    plan, shared = terms_of(4.0, size - 5, 4, 1 << 9).plan, terms_of(*PLANS[0]).shared
    kind, _ = same_outcome(lambda: codebook.rotate(rows, plan, shared).tobytes(), 2)
    assert kind == "done"
