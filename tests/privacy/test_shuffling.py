"""Amplification by shuffling, against the numbers of the authors' published program."""

from __future__ import annotations

import math
import pickle

import pytest

from jopeq import Groups, Response, Staircase
from jopeq.privacy import Guarantee
from jopeq.privacy.shuffling import shuffled_delta, shuffled_epsilon

# (people, ε₀, δ, lower, upper): apple/ml-shuffling-amplification, ``numericalanalysis`` with 20
# iterations and steps of 1, 10, 50, 100 and 500; its bounds lie on both sides of the exact sum.
PUBLISHED = [
    (1_000, 1.0, 1e-5, 0.1540420525562632, 0.16285487374313756),
    (10_000, 2.0, 1e-6, 0.1547706234648072, 0.15918690649401968),
    (100_000, 4.0, 1e-6, 0.1685720314504121, 0.17111493950111067),
    (100_000, 1.0, 1e-8, 0.020578974996969143, 0.02105115127096934),
    (1_000_000, 6.0, 1e-7, 0.16524581760117374, 0.18569944477036587),
]


@pytest.mark.parametrize(("people", "local", "delta", "lower", "upper"), PUBLISHED)
def test_published_numbers(people, local, delta, lower, upper):
    assert lower <= shuffled_epsilon(local, people, delta) <= upper


def test_two_people_by_full_enumeration():
    """δ(ε) of the pair itself, for n = 3, outcome by outcome."""
    local, epsilon = 1.5, 0.7
    share, alpha = math.exp(-local), 1.0 / (1.0 + math.exp(-local))
    total = 0.0
    for clones in range(3):
        chance = math.comb(2, clones) * share**clones * (1.0 - share) ** (2 - clones)
        law = [math.comb(clones, a) / 2**clones for a in range(clones + 1)]
        padded = [0.0, *law, 0.0]
        for a in range(clones + 2):
            p = alpha * padded[a + 1] + (1.0 - alpha) * padded[a]
            q = (1.0 - alpha) * padded[a + 1] + alpha * padded[a]
            total += chance * max(0.0, p - math.exp(epsilon) * q)
    assert shuffled_delta(epsilon, local, 3) == pytest.approx(total, rel=1e-6)


def test_payloads_are_shuffled_only_if_epsilon_covers_all_of_them():
    """A norm in the clear tells reports apart, and so does any other side information."""
    public = Response(epsilon=0.5, rate=1.0, clip=1.0).guarantee.for_update(4)
    assert public.shuffled(10_000, delta=1e-6).epsilon < 0.2 < public.epsilon
    for scheme in (
        Response(epsilon=0.5, rate=1.0),
        Response(epsilon=0.5, rate=1.0, per="tensor"),
        Staircase(epsilon=0.5, rate=1.0),
        Groups(Response(epsilon=0.5, rate=1.0), {"bias": Staircase(epsilon=0.5, rate=1.0)}),
    ):
        update = scheme.guarantee.for_update(4)
        for guarantee in (update, public.together_with(update), pickle.loads(pickle.dumps(update))):
            with pytest.raises(ValueError, match="in the clear"):
                guarantee.shuffled(10_000, delta=1e-6)


def test_what_cannot_be_shuffled_is_refused():
    pure = Guarantee(epsilon=4.0, unit="update")
    assert pure.shuffled(1, delta=1e-6).epsilon <= 4.0
    for bad, arguments, named in (
        (Guarantee(epsilon=4.0, delta=1e-6, unit="update"), (100, 1e-6), "pure"),
        (Guarantee(epsilon=math.inf), (100, 1e-6), "pure"),
        (Guarantee(epsilon=4.0), (100, 1e-6), "of one sample: for_update first"),
        (pure.for_client(1, 2), (100, 1e-6), "of one client"),
        (pure, (0, 1e-6), "people"),
        (pure, (100, 0.0), "δ"),
        (pure, (100, 2.0), "delta"),
    ):
        with pytest.raises(ValueError, match=named):
            bad.shuffled(*arguments)
