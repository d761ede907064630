"""Exponential noise on a lattice: P(k) ∝ e^{−a‖k‖} over all lattice points k."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from jopeq.lattice.codebook import points_within
from jopeq.lattice.lattices import Lattice
from jopeq.noise.law import RadialExponential, check_positive
from jopeq.random import portable
from jopeq.random.streams import PrivateStream

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

_REACH = 55.0  # of the list, in units of 1/a: e⁻⁵⁵ is 2⁻⁷⁹
_TOTAL_BITS = 128
_MOST_POINTS = 1 << 19  # a ≥ 0.145
_LOW = (1 << 64) - 1
MAX_ATTEMPTS = 4096  # of rejection
LANES_PER_ATTEMPT = 4
_ACCEPTED = 50.0  # attempts expected to be accepted: that none is has probability e⁻⁵⁰
_FINE = 0.05


@dataclass(frozen=True, eq=False)
class ListedNoise:
    """Points of A2 in basis coordinates, most probable first, and their cumulative counts."""

    coordinates: Integers
    high: Words  # the upper 64 bits of the cumulative counts but the last
    low: Words
    escape: float  # probability of the points so far out that a move may carry them off the list

    def sample(self, stream: PrivateStream, start: int, count: int) -> Integers:
        """Basis coordinates of noise points ``start``…: words 2i (upper) and 2i + 1 of lane 0."""
        words = stream.words64(lane=0, start=2 * start, count=2 * count)
        upper, lower = words[0::2], words[1::2]
        places = np.searchsorted(self.high, upper, side="left")
        inside = np.minimum(places, len(self.high) - 1)
        for i in np.flatnonzero(self.high[inside] == upper):  # the lower halves decide
            while places[i] < len(self.high) and self._has_reached(places[i], upper[i], lower[i]):
                places[i] += 1
        return self.coordinates[places]

    def _has_reached(self, place: int, upper: np.uint64, lower: np.uint64) -> bool:
        return bool(self.high[place] == upper and self.low[place] <= lower)


@lru_cache(maxsize=8)
def listed_noise(name: str, decay: float, move: float = 0.0) -> ListedNoise | None:
    """The list for P(k) ∝ e^{−a‖k‖}; None on other lattices, and where it would be too long."""
    radius = _REACH / decay
    if name != "A2" or 2.0 * math.pi * radius * radius / math.sqrt(3.0) > _MOST_POINTS:
        return None
    found = points_within(Lattice(name), np.zeros(2), radius + move)
    squares = found[:, 0] ** 2 + found[:, 0] * found[:, 1] + found[:, 1] ** 2
    order = np.lexsort((found[:, 1], found[:, 0], squares))
    shells, sizes = np.unique(squares[order], return_counts=True)
    weights = np.exp(-decay * np.sqrt(shells.astype(np.float64)))
    total = math.fsum((weights * sizes).tolist())
    shares = weights / total * (1.0 - 2.0**-50)  # whatever was rounded, their sum is not above 1
    counts = [max(1, math.ceil(math.ldexp(share, _TOTAL_BITS))) for share in shares.tolist()]
    # what is left over, less than one part in 10¹², goes to the origin
    rest = (1 << _TOTAL_BITS) - sum(c * n for c, n in zip(counts, sizes.tolist(), strict=True))
    is_far = shells > radius * radius * (1.0 - 1e-9)
    if not 0 <= rest < counts[0] >> 40 or min(np.array(counts)[~is_far]) < 1 << 38:
        raise ArithmeticError("the counts of the listed noise do not fit 2¹²⁸ words")
    reached, cumulative = rest, []
    for shell, size in zip(counts, sizes.tolist(), strict=True):
        for _ in range(size):
            reached += shell
            cumulative.append(reached)
    beyond = sum(c * n for c, n, far in zip(counts, sizes.tolist(), is_far, strict=True) if far)
    escape = math.ldexp(beyond + len(found), -_TOTAL_BITS)  # and what was rounded up
    halves = [(value >> 64, value & _LOW) for value in cumulative[:-1]]
    high, low = np.array(halves, dtype=np.uint64).T
    ends = (np.ascontiguousarray(high), np.ascontiguousarray(low))
    return ListedNoise(found[order], *ends, escape)


@dataclass(frozen=True)
class LatticeExponential:
    """Noise on the unit lattice of that name, with decay a per unit of length.

    log P is a-Lipschitz in the Euclidean norm, so it hides every move of length D up to ε = a·D,
    as far as the sampler reaches: ``escape`` tells how far that is from all, for D = ``move``.
    On A2 drawn from a list (``listed_noise``), elsewhere by rejection: y of density ∝ e^{−a‖y‖} is
    proposed, k = Q(y) accepted with probability e^{−a(‖k‖ − ‖y‖ + ρ)}, ρ being the covering radius;
    that leaves k with mass |V|·e^{−a‖k‖}/Z exactly.

    >>> LatticeExponential("E8", decay=1.0).variance > 0
    True
    """

    name: str
    decay: float
    move: float = 0.0

    def __post_init__(self) -> None:
        check_positive("decay", self.decay)

    @property
    def listed(self) -> ListedNoise | None:
        """The list of points that is drawn from, where there is one."""
        return listed_noise(self.name, self.decay, self.move)

    @property
    def escape(self) -> float:
        """How likely, at most, a draw lies where draws moved by D would not follow their law.

        Rejection starts from a radius, a sum of L exponentials: those up to r = ``FAR_EXPONENTIAL``
        over a follow it. A proposal of radius r − D − 2ρ has its point carried to r − ρ at most.
        """
        if self.listed is not None:
            return self.listed.escape
        from scipy import special

        lattice = Lattice(self.name)
        slack = 2.0 * self.decay * lattice.covering_radius
        room = portable.FAR_EXPONENTIAL - self.decay * self.move - slack
        accepted = math.exp(-slack) if self.decay <= 1.0 else self._acceptance
        return min(1.0, float(special.gammaincc(lattice.dimension, max(room, 0.0))) / accepted)

    @property
    def is_drawable(self) -> bool:
        """Whether rejection ends: below a = 1 the acceptance, at least e^{−2aρ}, is no concern.

        Points beyond that come from a list, which always ends, and are refused all the same: noise
        that hides nothing is not worth drawing.
        """
        return self.decay <= 1.0 or self._acceptance * MAX_ATTEMPTS >= _ACCEPTED

    @property
    def _acceptance(self) -> float:
        """P(a proposal of density f is accepted) = f(0)·|V|·e^{−aρ}·Σ e^{−a‖k‖}."""
        lattice = Lattice(self.name)
        law = RadialExponential(self.decay, lattice.dimension)
        mode = float(law.density(np.zeros(lattice.dimension))[0])
        squares, counts = shells(self.name, self.decay)
        total = float((counts * np.exp(-self.decay * np.sqrt(squares))).sum())
        return mode * lattice.cell_volume * math.exp(-self.decay * lattice.covering_radius) * total

    @property
    def variance(self) -> float:
        """E‖k‖²/L, summed over the shells of the lattice.

        When the lattice is fine against the noise that is (L+1)/a², to 10⁻⁵ and better.
        """
        if self.decay < _FINE:
            return RadialExponential(self.decay, Lattice(self.name).dimension).variance
        squares, counts = shells(self.name, self.decay)
        radii = np.sqrt(squares)
        weights = counts * np.exp(-self.decay * radii)
        return float((weights * squares).sum() / weights.sum()) / Lattice(self.name).dimension

    def sample(self, stream: PrivateStream, start: int, count: int) -> Integers:
        """Basis coordinates of noise points ``start``…, one a sample."""
        if self.listed is not None:
            return self.listed.sample(stream, start, count)
        lattice = Lattice(self.name)
        result = np.zeros((count, lattice.dimension), dtype=np.int64)
        pending = np.arange(count)
        for attempt in range(MAX_ATTEMPTS):
            proposed = self._propose(stream, start, count, pending, attempt)
            nearest = lattice.nearest(proposed)
            excess = np.sqrt(portable.squares(lattice.points(nearest)))
            excess -= np.sqrt(portable.squares(proposed))
            chance = portable.exp(-self.decay * (excess + lattice.covering_radius))
            lane = LANES_PER_ATTEMPT * attempt + 2
            accepted = portable.uniform(stream, start, count, lane=lane)[pending] <= chance
            result[pending[accepted]] = nearest[accepted]
            pending = pending[~accepted]
            if not pending.size:
                return result
        raise RuntimeError("the lattice noise sampler did not accept: the stream is not random")

    def _propose(
        self, stream: PrivateStream, start: int, count: int, pending: Integers, attempt: int
    ) -> Array:
        """A radial exponential point for each pending sample: direction and Gamma(L) radius."""
        size = Lattice(self.name).dimension
        lane = LANES_PER_ATTEMPT * attempt
        places = (start + pending)[:, None] * size + np.arange(size)
        rows = [
            stream.words64(lane=lane + part, start=start * size, count=count * size)
            .reshape(count, size)[pending]
            .reshape(-1)
            for part in (0, 1)
        ]
        flat = places.reshape(-1)
        normals = portable.normal_of(rows[0], stream, lane, flat).reshape(-1, size)
        steps = portable.exponential_of(rows[1], stream, lane + 1, flat, portable.FAR_WORDS)
        radius = portable.total(steps.reshape(-1, size)) / self.decay
        return np.asarray(normals * (radius / np.sqrt(portable.squares(normals)))[:, None])


@lru_cache(maxsize=64)
def shells(name: str, decay: float) -> tuple[Array, Array]:
    """Squared lengths and numbers of the lattice points that matter at this decay.

    A2: 6·Σ_{d|n} χ₃(d) points of squared length n; D4: 24·(sum of odd divisors of n) and
    E8: 240·σ₃(n) points of squared length 2n (Conway and Sloane, chapter 4).
    """
    size = Lattice(name).dimension
    radius = (60.0 + 6.0 * size) / decay
    unit = 1.0 if name == "A2" else 2.0
    last = max(16, math.ceil(radius * radius / unit))
    if last > 20_000_000:
        raise ValueError(f"decay {decay} is too small: raise epsilon")
    divisors = np.arange(last + 1.0)
    if name == "A2":
        weights = np.array((0.0, 1.0, -1.0))[np.arange(last + 1) % 3]
    elif name == "D4":
        weights = divisors * (divisors % 2.0)
    else:
        weights = divisors**3
    sums = np.zeros(last + 1)
    root = math.isqrt(last)
    for small in range(1, root + 1):  # as a divisor, and as the cofactor of all above the root
        sums[small::small] += weights[small]
        sums[small * (root + 1) :: small] += weights[root + 1 : last // small + 1]
    counts = {"A2": 6.0, "D4": 24.0, "E8": 240.0}[name] * sums
    counts[0] = 1.0
    return unit * np.arange(last + 1.0), counts
