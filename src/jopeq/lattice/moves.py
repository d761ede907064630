"""How far a quantized point can move when its input moves inside the unit ball.

Let V be the Voronoi cell and v a lattice vector. Two inputs at distance ≤ 2 can fall into cells
that differ by v only if the distance between V and V + v is at most 2. V is convex and symmetric,
so that distance is 2·dist(v/2, V). Magnifying the lattice by s multiplies all of this by s: the
points that can be reached from one another are those with dist(v/2, V) ≤ 1/s, and the largest
move is D(s) = s·max ‖v‖ over them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jopeq.lattice.codebook import points_within
from jopeq.lattice.lattices import Lattice

Array = NDArray[np.float64]

_RADIUS = {"Z": 41.0, "A2": 12.0, "D4": 9.0, "E8": 6.0}  # up to which vectors are looked at
_FACETS = {"Z": 1.0, "A2": 1.0, "D4": 2.0**0.5, "E8": 2.0}  # longest Voronoi-relevant vector
_OPTIMAL = 1e-9  # the slope that is left at an optimum
_MARGIN = 1e-8  # beyond the nine digits of gaps; a cell that only just touches counts as reached


@dataclass(frozen=True)
class Move:
    """A magnification at which some cells just go out of reach.

    ``step`` is s, ``reach`` the longest lattice vector (of the unit lattice) still within reach,
    so that D = s·reach.
    """

    step: float
    reach: float


@lru_cache(maxsize=8)
def moves(name: str) -> tuple[Move, ...]:
    """The useful magnifications of a lattice, from coarse to fine.

    On Z they are s = 2/m with D = 2: m integer steps.

    >>> [(round(move.step, 6), move.reach) for move in moves("Z")[:3]]
    [(2.0, 1.0), (1.0, 2.0), (0.666667, 3.0)]
    """
    lattice = Lattice(name)
    gaps: dict[float, float] = {}  # distance of v/2 from V -> longest such v
    radius = _RADIUS[name]
    for vector in _representatives(lattice, radius):
        norm = float(np.linalg.norm(vector))
        gap = round(_distance_to_cell(lattice, vector / 2.0), 9)
        gaps[gap] = max(gaps.get(gap, 0.0), norm)
    found = []
    reach = 0.0
    for gap, following in pairwise(sorted(gaps)):
        if 2.0 * (following + lattice.covering_radius) > radius:
            break  # longer vectors than were looked at could be within reach
        reach = max(reach, gaps[gap])
        found.append(Move((1.0 + _MARGIN) / following, reach))
    return tuple(found)


def _representatives(lattice: Lattice, radius: float) -> Iterator[Array]:
    """A vector of each class under the lattice's permutations and sign changes, or more."""
    if lattice.name == "A2":
        yield from lattice.points(points_within(lattice, np.zeros(2), radius))
        return
    # Z, D4 and E8 in doubled coordinates: all even, or (on E8) all odd
    parities = (0, 1) if lattice.name == "E8" else (0,)
    for parity in parities:
        for row in _falling(lattice.dimension, math.floor(4 * radius * radius), parity):
            if lattice.name == "Z" or sum(row) % 4 == 0:
                yield np.array(row) / 2.0
            mirrored = (*row[:-1], -row[-1])  # E8 lets only even numbers of signs change
            if lattice.name == "E8" and row[-1] and sum(mirrored) % 4 == 0:
                yield np.array(mirrored) / 2.0


def _falling(size: int, budget: int, parity: int, top: int | None = None) -> Iterator[list[int]]:
    """Non-increasing rows of ``size`` integers ≥ 0 of one parity whose squares sum to ≤ budget."""
    if size == 0:
        yield []
        return
    largest = math.isqrt(budget)
    if top is not None:
        largest = min(largest, top)
    for value in range(parity, largest + 1, 2):
        for rest in _falling(size - 1, budget - value * value, parity, value):
            yield [value, *rest]


@lru_cache(maxsize=8)
def _facets(name: str) -> Array:
    """The Voronoi-relevant vectors w: V = {y : y·w ≤ ‖w‖²/2}."""
    lattice = Lattice(name)
    inside = points_within(lattice, np.zeros(lattice.dimension), _FACETS[name])
    vectors = lattice.points(inside)
    return np.asarray(vectors[np.abs(vectors).sum(axis=1) > 1e-9])


def _distance_to_cell(lattice: Lattice, point: Array) -> float:
    """Distance of a point from V: least distance programming (Lawson and Hanson, 1974)."""
    from scipy.optimize import lsq_linear, nnls

    facets = _facets(lattice.name)
    slack = facets @ point - 0.5 * np.square(facets).sum(axis=1)
    if slack.max() <= 1e-12:
        return 0.0
    system = np.vstack((-facets.T, slack))
    target = np.zeros(len(system))
    target[-1] = 1.0
    weights, _ = nnls(system, target)
    # nnls stops short of the optimum at some degenerate points, at others on another machine
    if (system.T @ (target - system @ weights)).max() > _OPTIMAL:
        weights = lsq_linear(system, target, (0.0, np.inf), method="bvls", tol=1e-14).x
    residual = system @ weights - target
    return float(np.linalg.norm(residual[:-1] / residual[-1]))
