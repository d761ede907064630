"""Draws depend on seed, purpose and place alone, and leave PyTorch's own generators alone."""

import itertools

import numpy as np
import pytest
import torch

from jopeq.federated.seeding import generator, place_seed, seeded

CPU = torch.device("cpu")


def test_seeds_differ_by_seed_purpose_and_place():
    places = [(), *((i,) for i in range(30)), *itertools.product(range(12), repeat=2)]
    asked = list(itertools.product(range(-2, 9), ("batches", "dropout", "batches, 1"), places))
    seeds = {place_seed(seed, purpose, *place) for seed, purpose, place in asked}
    assert len(seeds) == len(asked)


def test_seeds_use_all_bits_that_a_generator_takes():
    """2000 seeds: each of 63 bits is set half the time, within six standard deviations."""
    seeds = np.array([place_seed(0, "bits", number) for number in range(2000)])
    assert seeds.min() >= 0
    ones = (seeds[:, None] >> np.arange(63) & 1).sum(axis=0)
    assert np.abs(ones - 1000).max() < 6 * np.sqrt(500)


def test_seeds_are_those_of_runs_that_are_kept():
    """Another number would be another run."""
    assert place_seed(0, "batches", 3, 1) == 5203176446503835429
    assert place_seed(7, "dropout") == 8791231513503401961


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32])
def test_any_integer_is_its_number(kind):
    assert place_seed(kind(5), "batches", kind(3)) == place_seed(5, "batches", 3)


@pytest.mark.parametrize("wrong", [0.5, 1.0, "0", None])
def test_nothing_else_is_a_seed_or_a_place(wrong):
    with pytest.raises(TypeError):
        place_seed(wrong, "batches", 0)
    with pytest.raises(TypeError):
        place_seed(0, "batches", wrong)


def test_generators_draw_by_their_place():
    def drawn(*place):
        return torch.rand(5, generator=generator(*place))

    before = torch.get_rng_state()
    assert torch.equal(drawn(0, "batches", 2), drawn(0, "batches", 2))
    assert not torch.equal(drawn(0, "batches", 2), drawn(0, "batches", 3))
    assert generator(0, "batches").device == CPU
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_draws_the_same_on_every_entry():
    drawn = []
    for seed in (3, 3, 4):
        with seeded(seed, CPU):
            drawn.append(torch.rand(5))
        torch.rand(1)  # whatever happens in between
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_seeded_leaves_the_generator_as_it_was():
    before = torch.get_rng_state()
    with seeded(3, CPU):
        assert not torch.equal(torch.get_rng_state(), before)
        torch.rand(5)
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_leaves_the_generator_as_it_was_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="size"), seeded(3, CPU):
        torch.rand(5) + torch.rand(6)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_seeded_on_a_gpu(name):
    device, drawn = torch.device(name), []
    before = torch.get_rng_state(), torch.cuda.get_rng_state(device)
    for _ in range(2):
        with seeded(3, device):
            drawn.append(torch.rand(5, device=device))
    assert torch.equal(*drawn)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(torch.cuda.get_rng_state(device), before[1])
