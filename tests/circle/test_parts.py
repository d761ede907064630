"""The parts of a round: shares, masks, and the graph of neighbours."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from jopeq.circle.crypto import add_mask, pack, to_ring, unpack
from jopeq.circle.graph import COMPLETE_UP_TO, EXPOSURE, FAILURE, Graph, graph_for
from jopeq.circle.shamir import PRIME, SHARE_BYTES, combine, split
from jopeq.errors import PayloadError, ProtocolError


def at_zero(points):
    """Lagrange's formula in rationals, then mod p: no code of the library."""
    total = 0
    for x, y in points.items():
        weight = Fraction(1)
        for other in points:
            if other != x:
                weight *= Fraction(other, other - x)
        total += y * weight.numerator * pow(weight.denominator, -1, PRIME)
    return total % PRIME


def numbers(shares):
    return {point: int.from_bytes(share, "little") for point, share in shares.items()}


@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.integers(0, 3))
def test_every_subset_of_threshold_shares_gives_the_secret(secret, threshold, more):
    shares = split(secret, threshold, [3 * place + 1 for place in range(threshold + more)])
    assert all(len(share) == SHARE_BYTES for share in shares.values())
    for chosen in combinations(shares, threshold):
        some = {point: shares[point] for point in chosen}
        assert combine(some) == secret
        assert at_zero(numbers(some)) == int.from_bytes(secret, "little")


def test_fewer_shares_fit_every_secret():
    """Given t − 1 shares, the last one decides: every secret belongs to one polynomial."""
    shares = numbers(split(bytes(32), 4, [1, 2, 3]))
    found = {at_zero({**shares, 4: last}) for last in range(50)}
    assert len(found) == 50
    assert len({split(bytes(32), 2, [1])[1] for _ in range(20)}) == 20  # fresh coefficients


def test_coefficients_are_uniform_over_the_field(assert_counts):
    top = [int.from_bytes(split(bytes(32), 2, [1])[1], "little") for _ in range(4096)]
    assert_counts([sum(value * 16 // PRIME == part for value in top) for part in range(16)])


def test_shares_that_belong_to_no_secret():
    with pytest.raises(ProtocolError, match="wrong"):
        combine({1: (PRIME - 1).to_bytes(SHARE_BYTES, "little")})
    with pytest.raises(ValueError, match="32 bytes"):
        split(b"short", 2, [1, 2])


@pytest.mark.parametrize("bits", [1, 2, 5, 8, 11, 16, 17, 24, 32])
def test_any_width_packs_to_its_bits_and_masks_cancel(bits):
    vector = np.random.default_rng(bits).integers(0, 1 << bits, 300_001, dtype=np.uint32)
    total = to_ring(vector, bits)
    add_mask(total, b"k" * 32, 1)
    assert (total & ((1 << bits) - 1) != vector).mean() > 0.45
    packed = pack(total, bits)
    assert len(packed) == (300_001 * bits + 7) // 8
    back = unpack(packed, 300_001, bits)
    add_mask(back, b"k" * 32, -1)
    assert (unpack(pack(back, bits), 300_001, bits) == vector).all()
    with pytest.raises(PayloadError):
        unpack(packed[:-1], 300_001, bits)


@pytest.mark.parametrize("vector", [[-1], [256], [[1]], [0.5]])
def test_other_vectors_are_refused(vector):
    with pytest.raises(ValueError, match=r"integers|entries"):
        to_ring(np.array(vector), 8)


SETTINGS = [(101, 68, 0), (200, 180, 10), (1000, 900, 0), (1000, 670, 50), (1000, 550, 0)]


def is_enough(n, threshold, colluding, k, t):
    """Both bounds of ``graph_for`` for this k and t."""
    m = t - k // 2 - 2
    colludes = hypergeom(n - 1, colluding, k).sf(m) if m >= 0 else 1.0
    lost = hypergeom(n - 1, threshold, k).cdf(t - 1)
    return n * colludes <= EXPOSURE and n * lost <= FAILURE


@pytest.mark.parametrize(("n", "threshold", "colluding"), SETTINGS)
def test_the_smallest_degree_within_both_bounds(n, threshold, colluding):
    k, t = graph_for(n, threshold, colluding)
    assert k < n - 1
    assert is_enough(n, threshold, colluding, k, t)
    assert not any(is_enough(n, threshold, colluding, k - 2, t) for t in range(k // 2, k))


def test_small_and_hard_cohorts_are_complete():
    assert graph_for(COMPLETE_UP_TO, 67, 0) == (COMPLETE_UP_TO - 1, 67)
    assert graph_for(200, 130, 50) == (199, 130)


def test_regular_symmetric_and_fixed_by_the_transcript():
    graph = Graph(200, 180, 10, b"a")
    k, _ = graph_for(200, 180, 10)
    holders = [set(graph.holders(at)) for at in range(200)]
    assert all(len(held) == k + 1 and at in held for at, held in enumerate(holders))
    assert all(at in holders[other] for at in range(200) for other in holders[at])
    assert holders == [set(Graph(200, 180, 10, b"a").holders(at)) for at in range(200)]
    assert holders != [set(Graph(200, 180, 10, b"b").holders(at)) for at in range(200)]


def test_whoever_chooses_the_dropouts_one_sum_can_be_opened_or_none():
    """The proof in ``graph_for``, against gaps that a server cuts into the circle."""
    graph, random = Graph(150, 120, 0, b"circle"), np.random.default_rng(1)
    k, t = graph_for(150, 120, 0)
    order, _ = graph.circle
    opened = 0
    for _ in range(300):
        alive = set(range(150))
        for _ in range(random.integers(1, 4)):  # arcs that are cut out, some as long as k/2
            start, length = random.integers(150), random.integers(1, k // 2 + 3)
            alive -= {order[(start + step) % 150] for step in range(length)}
        near = {at: alive.intersection(graph.holders(at)) for at in alive}
        closed = {at for at in alive if len(near[at]) < t}  # its self mask stays closed
        components, left = [], set(alive)
        while left:
            component, edge = set(), {left.pop()}
            while edge:
                component |= edge
                edge = set().union(*(near[at] for at in edge)) - component
            left -= component
            components.append(component)
        sums = [component for component in components if not component & closed]
        assert sums in ([], [alive])
        opened += bool(sums)
    assert 30 < opened < 300  # both happen
