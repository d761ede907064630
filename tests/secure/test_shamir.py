"""Shares against exact interpolation by hand."""

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jopeq.errors import ProtocolError
from jopeq.secure.shamir import PRIME, SHARE_BYTES, combine, split


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
