import hashlib
import itertools
import math

import numpy as np
import pytest

from jopeq.random.streams import SharedStream
from jopeq.schemes.whole_update import (
    CLAMPED_CHANCE,
    UpdateResponse,
    counts_to_try,
    expected_errors,
)


def make(**changes):
    return UpdateResponse(**{"epsilon": 8.0, "rate": 2.0, "clip": 1.0, **changes})


def seeds(label, count):
    for number in range(count):
        yield hashlib.sha256(f"{label} {number}".encode()).digest()


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0, 300.0])
@pytest.mark.parametrize("dimension", [1, 2, 9, 64, 1000])
@pytest.mark.parametrize("rate", [1.0, 3.0])
def test_k_is_the_best_there_is(epsilon, dimension, rate):
    plan = make(epsilon=epsilon, rate=rate).plan(dimension)
    n = plan.padded
    counts, letters = np.arange(1, dimension + 1), np.arange(2, 2 ** int(rate) + 1)
    every = expected_errors(epsilon, dimension, n, counts[:, None], letters[None, :])
    ours = every[plan.kept - 1, plan.response.finite_channel.letters - 2]
    assert ours <= every.min() * 1.001
    chosen = make(epsilon=epsilon, rate=rate, k=plan.kept)
    assert chosen.plan(dimension) == plan
    if dimension >= 64:  # where coordinates look Gaussian, the two computations agree
        computed = make(epsilon=epsilon, rate=rate).expected_error(dimension)
        assert ours == pytest.approx(computed, rel=0.02)


def test_counts_are_dense_ascending_and_bounded():
    for epsilon, dimension in [(0.1, 5), (3.3, 100), (1000.0, 10**6), (1e300, 7), (1e9, 10**9)]:
        tried = counts_to_try(epsilon, dimension)
        most = max(1, math.floor(min(2 * epsilon, dimension)))
        assert (tried[0], tried[-1]) == (1, most)
        assert all(0 < b - a <= max(1, a / 32) for a, b in itertools.pairwise(tried))


def reference_choice(seed, n, k):
    """The documented recipe, one word at a time."""
    stream, drawn, place = SharedStream(seed), [], 0
    wanted = n - k if 2 * k > n else k
    while len(drawn) < wanted:
        word = int(stream.words64(lane=2, start=place, count=1)[0]) % n
        place += 1
        if word not in drawn:
            drawn.append(word)
    return sorted(set(range(n)) - set(drawn)) if 2 * k > n else sorted(drawn)


@pytest.mark.parametrize(("dimension", "k"), [(1, 1), (2, 2), (7, 3), (8, 8), (60, 33), (60, 32)])
def test_kept_coordinates_follow_the_recipe(dimension, k):
    plan = make(k=k).plan(dimension)
    for seed in seeds("choice", 20):
        chosen = plan.choose(SharedStream(seed)).tolist()
        assert chosen == reference_choice(seed, plan.padded, k)
        assert len(set(chosen)) == k


@pytest.mark.parametrize("k", [2, 6])
def test_every_set_of_coordinates_is_equally_likely(k, assert_counts):
    plan = make(k=k).plan(8)
    sets = dict.fromkeys(itertools.combinations(range(8), k), 0)
    for seed in seeds("sets", 3000):
        sets[tuple(plan.choose(SharedStream(seed)).tolist())] += 1
    assert_counts(list(sets.values()))


def test_the_bound_is_the_union_bound_over_kept_coordinates():
    for dimension, k in [(10, 1), (1000, 3), (1000, 900)]:
        plan = make(k=k).plan(dimension)
        tail = 2 * k * math.exp(-(plan.bound**2) * plan.padded / 2)
        assert plan.bound == 1.0 or tail == pytest.approx(CLAMPED_CHANCE)
