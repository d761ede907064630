"""``sphere``: kernels, threads and GPUs give the reports and sums of the plain path."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

import jopeq
from jopeq.random.streams import PrivateStream
from jopeq.sphere import sphere_codebook as codebook
from jopeq.wire.scaling import Scale

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


# The GPU kernels: on a GPU, or in Triton's interpreter (``test_gpu_interpreter`` starts that)


@pytest.fixture
def gpu():
    """(the module, a device that it works on)."""
    torch = pytest.importorskip("torch")
    from jopeq.kernels.gpu import codewords
    from jopeq.kernels.gpu.arguments import uses_triton

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not uses_triton(device):
        pytest.skip("no GPU, no interpreter")
    return codewords, device


GPU_PLANS = [(4.0, 250, 3, 1 << 9), (8.0, 300, 4, 1 << 9), (16.0, 300, 4, 1 << 8)]


@pytest.mark.parametrize("plan", GPU_PLANS)
def test_gpu_scores_are_the_plain_ones(plan, gpu):
    import torch

    module, device = gpu
    terms = terms_of(*plan)
    plan, shared, clients = terms.plan, terms.shared, CLIENTS[1:3]
    rows = np.stack([codebook.into_ball(row) / 2 for row in updates_of(terms.dimension)[1:3]])
    turned = codebook.rotate(rows, plan, shared)
    blocks = turned.astype(np.int64).reshape(2, -1, plan.block)
    plain = (*codebook.scores(turned, plan, shared, clients), (blocks**2).sum(axis=2))
    signs = codebook._signs(shared.key_words.tobytes(), plan.padded)
    found = module.codeword_scores(
        *(torch.from_numpy(rows).to(device), Scale(1.0), None, signs, clients),
        *(plan.vectors, plan.block, codebook._blocks_bytes(plan), shared),
    )
    for one, two in zip(found, plain, strict=True):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("plan", GPU_PLANS)
def test_gpu_sums_are_the_plain_ones(plan, gpu):
    _, device = gpu
    terms = replace(terms_of(*plan), people=1 << 24)
    rng = np.random.default_rng(3)
    clients = rng.choice(terms.people, size=20, replace=False)
    indices = rng.integers(0, terms.plan.codewords, size=20)
    plain, there = terms.aggregator(), terms.aggregator(device=device)
    for total in (plain, there):
        assert total.add_many(indices[:15], clients=clients[:15]) == 15
        assert total.add(int(indices[15]).to_bytes(1, "little"), client=int(clients[15]))
    assert pickle.dumps(there) == pickle.dumps(plain)
    assert there.add_many(indices, clients=clients) == 4  # goes on
    assert plain.add_many(indices, clients=clients) == 4
    assert there.mean().tobytes() == plain.mean().tobytes()


def test_updates_on_a_gpu_are_reported_as_those_on_the_host():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    terms = terms_of(*PLANS[1])
    rows = updates_of(terms.dimension)[:3] / 100.0  # none is shortened: norms may differ by a digit
    noise = PrivateStream.reproducible(b"n" * 32)
    host = terms.indices(rows, clients=CLIENTS[:3], noise=noise)
    there = terms.indices(torch.from_numpy(rows).cuda(), clients=CLIENTS[:3], noise=noise)
    assert np.array_equal(host, there)
