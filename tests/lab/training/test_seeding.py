"""Draws depend on seed, purpose and place alone; partitions follow the seed."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jopeq_lab.training.partition import KINDS, _shares, partition
from jopeq_lab.training.seeding import generator, permutation, place_seed, seeded


def test_seeds_differ_by_seed_purpose_and_place():
    places = [(), *((i,) for i in range(30)), *itertools.product(range(12), repeat=2)]
    asked = list(itertools.product(range(-2, 9), ("batches", "dropout", "batches, 1"), places))
    seeds = {place_seed(seed, purpose, *place) for seed, purpose, place in asked}
    assert len(seeds) == len(asked)


def test_seeds_never_change():
    """Another is another run."""
    assert place_seed(0, "batches", 3, 1) == 5203176446503835429
    assert place_seed(7, "dropout") == 8791231513503401961
    assert place_seed(np.int64(5), "batches", np.uint8(3)) == place_seed(5, "batches", 3)


@pytest.mark.parametrize("name", ["cpu", *["cuda", "cuda:0"] * torch.cuda.is_available()])
def test_draws_follow_the_seed_and_leave_the_global_generators_as_they_were(name):
    def states():
        return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, [name] * (name != "cpu"))]

    before, drawn = states(), []
    for seed in (3, 3, 4):
        with seeded(seed, torch.device(name)):
            drawn.append(torch.rand(5, device=name))
        drawn.append(torch.rand(5, generator=generator(0, "batches", seed)))
    for one, same, other in (drawn[::2], drawn[1::2]):
        assert torch.equal(one, same)
        assert not torch.equal(one, other)
    with pytest.raises(RuntimeError, match="size"), seeded(3, torch.device(name)):
        torch.rand(5) + torch.rand(6)
    assert all(map(torch.equal, states(), before))


LABELS = np.arange(2000) % 10


@given(
    labels=st.lists(st.sampled_from([-5, 0, 1, 2, 7, 900]), min_size=1, max_size=80),
    data=st.data(),
    seed=st.integers(0, 2**64),
)
@settings(max_examples=150)
def test_every_sample_once_and_no_client_empty(labels, data, seed):
    clients = data.draw(st.integers(1, len(labels)))
    how = data.draw(st.sampled_from(KINDS))
    alpha = data.draw(st.floats(1e-6, 1e6))
    parts = partition(labels, clients, how, alpha, seed)
    assert len(parts) == clients
    assert min(len(part) for part in parts) >= 1
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    assert all(part.dtype == np.int64 and np.all(np.diff(part) > 0) for part in parts)
    again = partition(np.array(labels), clients, how, alpha, seed)
    assert all(map(np.array_equal, parts, again))


GOLDEN = {
    "iid": [[0, 2, 3, 9], [1, 6, 8, 11], [4, 5, 7, 10]],
    "dirichlet": [[0, 2, 3, 6, 9], [1, 4, 7, 8, 10, 11], [5]],
}


@pytest.mark.parametrize("how", KINDS)
def test_golden(how):
    """The partition of a seed is part of a published experiment: it must never change."""
    parts = partition(np.arange(12) % 3, 3, how, alpha=0.5, seed=1)
    assert [part.tolist() for part in parts] == GOLDEN[how]


def test_iid_sizes_and_labels(assert_counts):
    parts = partition(LABELS, 7)
    assert sorted({len(part) for part in parts}) == [285, 286]
    for part in parts:
        assert_counts(np.bincount(LABELS[part], minlength=10))


def test_dirichlet_shares_follow_their_law(assert_follows):
    """A Dirichlet(a, a, a) coordinate is Beta(a, 2a)."""
    for alpha in (0.1, 0.5, 1.0, 7.0):
        shares = _shares(4000, 3, alpha, seed=5)
        assert np.allclose(shares.sum(axis=1), 1.0)
        for column in shares.T:
            assert_follows(column, stats.beta(alpha, 2 * alpha).cdf)


def test_permutations_are_uniform(assert_counts):
    orders = [tuple(permutation(4, seed, "test").tolist()) for seed in range(2400)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert_counts(counts)


@pytest.mark.parametrize(
    "bad",
    [
        *({"clients": 2001}, {"clients": 0}, {"clients": 2.5}, {"how": "random"}, {"seed": -1}),
        *({"alpha": alpha, "how": "dirichlet"} for alpha in (0, -1.0, float("nan"), float("inf"))),
        *({"labels": labels} for labels in ([[1]], [0.5, 1.0])),
    ],
    ids=str,
)
def test_errors(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        partition(**{"labels": LABELS, "clients": 10} | bad)
