"""The plan of ``sphere`` for one dimension: codebook, integers, error, all in portable arithmetic.

A client's codebook holds M = (2m)^L codewords. Each is the sum of one signed vector ±u from each of
L lists, divided by √L. A list has m vectors; each lies on one random block of k entries of the
rotated update and is N(0, I_k) there. The r vectors of largest |⟨u, x⟩| in each list are members;
the A = r^L combinations of members share the chance that depends on the update.

**Integers.** Chances are whole multiples of 2⁻⁶⁴. Combination i has the count n_i; all M codewords
share the rest, 2⁶⁴ − Σn, equally. For every update

    0 ≤ n_i,   Σn ≤ most_sum,   M·n_i − Σn ≤ most_top,

so each index has a chance between (2⁶⁴ − most_sum)/(M·2⁶⁴) and (2⁶⁴ + most_top)/(M·2⁶⁴), and ε is
the logarithm of the ratio. ``plan_for`` takes the largest ``unit`` (the count of a weight of 1)
that ε allows.

**Error.** A weight of 1 has the chance p₁ = unit/2⁶⁴. With the mean τ of the r largest |t|, the
decoded update is a codeword divided by gain = p₁·A·√L·τ, and

    E‖x̂ − x‖²/C² = (d + p₁·A·extra)/gain² − 1   at ‖x‖ = C,
    extra = (1 + (n/k − 1)(d − 1)/(n − 1))·(E t² − 1) + (L − 1)·τ² .

d is the length of any codeword after its padding is cut; members are longer along the update.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.random import portable
from jopeq.random.normal import draws_rms, largest_moments, tail_bound
from jopeq.random.rational import exp_floor, log_ceiling

WORD = 1 << 64
MOST_BITS = 24
CLAMPED_CHANCE = 1e-6  # that some weight of an update is beyond 1 + margin
_LEAST_PADDED = 256
_LEAST_BLOCK = 32
_MOST_MEMBERS = 256
_LISTS = (1, 2)


@dataclass(frozen=True)
class SpherePlan:
    """Codebook and integers for one dimension; see the module."""

    dimension: int
    padded: int  # n: a power of two
    lists: int  # L
    pairs: int  # m: vectors of one list, each with both signs
    members: int  # r, of one list
    block: int  # k entries
    unit: int
    most_top: int
    most_sum: int
    mean_score: float  # τ
    mean_square: float  # E t², of members

    @property
    def bits(self) -> int:
        """Bits of one report."""
        return self.lists * self.pairs.bit_length()

    @property
    def report_bytes(self) -> int:
        """Bytes of an index, little-endian."""
        return -(-self.bits // 8)

    @property
    def codewords(self) -> int:
        """M."""
        return 1 << self.bits

    @property
    def combinations(self) -> int:
        """A."""
        return int(self.members**self.lists)

    @property
    def blocks(self) -> int:
        return self.padded // self.block

    @property
    def vectors(self) -> int:
        """Vectors of all lists together."""
        return self.lists * self.pairs

    @property
    def ratio(self) -> Fraction:
        """The largest chance of an index over the smallest, for any two updates."""
        return Fraction(WORD + self.most_top, WORD - self.most_sum)

    @property
    def epsilon(self) -> float:
        return log_ceiling(self.ratio)

    @property
    def margin(self) -> float:
        """How far weights may exceed 1.

        The length of a block of a random direction, √(n/k)‖x_b‖, has mean 1 and variance
        (1 − k/n)/2k. A weight adds for each list the length of its block minus the mean over the
        other members.
        """
        if self.block == self.padded:
            return 0.0
        spread = self.lists * (1.0 - self.block / self.padded) / (2.0 * self.block)
        if self.members > 1:
            spread *= self.members / (self.members - 1.0)
        return tail_bound(2.0 * CLAMPED_CHANCE / self.combinations) * math.sqrt(spread)

    @property
    def extra(self) -> float:
        """How much longer members are than other codewords, squared."""
        d, n, k = self.dimension, self.padded, self.block
        kept = 1.0 + (n / k - 1.0) * (d - 1.0) / (n - 1.0)
        score = self.mean_score
        return kept * (self.mean_square - 1.0) + (self.lists - 1.0) * score * score

    @property
    def gain(self) -> float:
        """E⟨codeword, x⟩ at ‖x‖ = 1."""
        chance = self.unit / WORD * self.combinations
        return chance * math.sqrt(self.lists) * self.mean_score

    @property
    def scale(self) -> float:
        """The factor for the sum of a codeword's ±draws, in units of C."""
        return math.sqrt(self.blocks / self.lists) / (self.gain * draws_rms())

    def error(self, norm: float = 1.0) -> float:
        """E‖x̂ − x‖²/C² at ‖x‖ = norm·C."""
        chance = norm * self.unit / WORD * self.combinations
        return (self.dimension + chance * self.extra) / self.gain**2 - norm**2

    def allow(self, counts: Any) -> NDArray[np.object_]:
        """Reduce any counts until they keep the bounds; privacy needs nothing else.

        Counts are Python's integers, which cannot overflow; the last axis is one client.
        """
        cap = (self.most_top + self.most_sum) // self.codewords
        kept: NDArray[np.object_] = np.clip(np.asarray(counts, dtype=np.object_), 0, cap)
        total = kept.sum(axis=-1, keepdims=True)
        shares = kept * self.most_sum // np.maximum(total, 1)
        kept = np.where(total > self.most_sum, shares, kept)
        while True:
            limit = (self.most_top + kept.sum(axis=-1, keepdims=True)) // self.codewords
            if (kept <= limit).all():
                return kept
            kept = np.minimum(kept, limit)


@lru_cache(maxsize=1024)
def plan_for(epsilon: float, dimension: int, most_bits: int, draws: int) -> SpherePlan:
    """The plan of least error with at most so many bits per report and draws per client.

    Among plans within 1% it takes the one with the shortest codewords: the server draws them.
    """
    padded = max(_LEAST_PADDED, 1 << (dimension - 1).bit_length())
    found = [
        candidate
        for lists in _LISTS
        for log_pairs in range(most_bits // lists)
        for block in _block_sizes(draws // (lists << log_pairs), padded)
        for candidate in _candidates(epsilon, dimension, padded, lists, 1 << log_pairs, block)
    ]
    if not found:
        raise ValueError(
            f"draws={draws} are too few for a codebook: a client draws at least {_LEAST_BLOCK}"
        )
    enough = 1.01 * min(error for error, _ in found)
    good = [(plan.lists * plan.block, error, plan) for error, plan in found if error <= enough]
    return _with_integers(epsilon, min(good, key=itemgetter(0, 1))[2])


def _block_sizes(most: int, padded: int) -> list[int]:
    """The three largest powers of two for a vector's length."""
    largest = min(padded, 1 << (most.bit_length() - 1)) if most else 0
    return [size for size in (largest, largest // 2, largest // 4) if size >= _LEAST_BLOCK]


def _candidates(
    epsilon: float, dimension: int, padded: int, lists: int, pairs: int, block: int
) -> Iterator[tuple[float, SpherePlan]]:
    """Yield (error/C² + 1, a plan without its integers) for each number of members worth it."""
    excess = float(portable.expm1(np.array([epsilon]))[0])
    codewords = (2 * pairs) ** lists
    worth = math.ceil(8.0 * (codewords / excess) ** (1.0 / lists)) + 4
    sums, squares = largest_moments(pairs, min(pairs, _MOST_MEMBERS, worth))
    for members in range(1, len(sums) + 1):
        score, square = sums[members - 1] / members, squares[members - 1] / members
        plan = SpherePlan(dimension, padded, lists, pairs, members, block, 0, 0, 0, score, square)
        margin, several = plan.margin, float(plan.combinations)
        whole = several if members > 1 or block == padded else 1.0 + margin
        if 2.0 * whole > codewords * (1.0 + margin):
            continue
        one = excess / ((1.0 + margin) * codewords + excess * whole)
        gain = one * several * math.sqrt(lists) * score
        yield (dimension + one * several * plan.extra) / (gain * gain), plan


def _with_integers(epsilon: float, plan: SpherePlan) -> SpherePlan:
    """Find the largest unit that e^ε allows, by bisection in whole numbers."""
    ratio, beyond = exp_floor(epsilon), Fraction(plan.margin)

    def bounds(unit: int) -> tuple[int, int]:
        top = unit + math.ceil(beyond * unit)
        # members even out their blocks' lengths; a single member cannot
        is_even = plan.members > 1 or plan.block == plan.padded
        total = plan.combinations * unit if is_even else top
        return plan.codewords * top - total, total

    low, high = 0, WORD // plan.combinations
    while high - low > 1:
        unit = (low + high) // 2
        top, total = bounds(unit)
        if total < WORD and WORD + top <= ratio * (WORD - total):
            low = unit
        else:
            high = unit
    top, total = bounds(low)
    return replace(plan, unit=low, most_top=top, most_sum=total)
