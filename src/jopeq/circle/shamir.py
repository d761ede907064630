"""Shamir's secret sharing of 32-byte secrets over the prime field of 2²⁵⁶ + 297 elements.

A secret is the value at 0 of a random polynomial of degree t − 1. Any t values at other points
determine it; any t − 1 values are uniform and independent of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from jopeq.errors import ProtocolError
from jopeq.random.streams import fresh_seed

PRIME = (1 << 256) + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, threshold: int, points: Iterable[int]) -> dict[int, bytes]:
    """The share of each point (1 … PRIME − 1); any ``threshold`` of them give the secret back.

    >>> shares = split(bytes(range(32)), 2, [1, 2, 3])
    >>> combine({1: shares[1], 3: shares[3]}) == bytes(range(32))
    True
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, got {len(secret)}")
    # uniform in the field: 16 more bytes than it has leave a bias below 2⁻¹²⁷
    seeds = (fresh_seed(SECRET_BYTES + 16) for _ in range(threshold - 1))
    coefficients = [int.from_bytes(seed, "little") % PRIME for seed in seeds]
    shares = {}
    for point in points:
        value = 0
        for coefficient in coefficients:
            value = (value * point + coefficient) % PRIME
        value = (value * point + int.from_bytes(secret, "little")) % PRIME
        shares[point] = value.to_bytes(SHARE_BYTES, "little")
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes:
    """The secret of these shares: at least ``threshold`` of those that ``split`` made."""
    points = tuple(sorted(shares))
    total = sum(
        weight * int.from_bytes(shares[point], "little")
        for point, weight in zip(points, _weights(points), strict=True)
    )
    secret = total % PRIME
    if secret >> 8 * SECRET_BYTES:
        raise ProtocolError("these shares belong to no secret: one of them is wrong")
    return secret.to_bytes(SECRET_BYTES, "little")


@lru_cache(maxsize=64)
def _weights(points: tuple[int, ...]) -> list[int]:
    """Lagrange's weights at 0: w_i = Π_{j≠i} x_j / (x_j − x_i)."""
    above = math.prod(points)
    below = [x * math.prod([y - x or 1 for y in points]) for x in points]
    return [above * pow(value, -1, PRIME) for value in below]
