"""Noise on a lattice by rejection: the plain path's bytes in every branch."""

from __future__ import annotations

import jopeq

EXTRA_LANE = 1 << 31  # read when twelve exponent bits are zero


def test_staircase_meets_the_rare_branch_in_every_attempt(agree, gaussian):
    # noise so wide beside the cells that a slightly different draw is another point
    scheme = jopeq.scheme("staircase", epsilon=4.0, rate=3.0, lattice="D4", moves=6)
    _, _, lanes = agree(scheme, gaussian(120_000))
    assert {EXTRA_LANE, EXTRA_LANE + 1, EXTRA_LANE + 4, EXTRA_LANE + 5} <= lanes
