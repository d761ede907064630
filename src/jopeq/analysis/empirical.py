"""A lower bound on ε from running the real sampler, which finds mistakes that a proof cannot see.

The attacker fixes the worst dither, feeds one of two inputs, and bets on an event. If the event has
probability p under one input and q under the other, then ε ≥ ln((p − δ)/q), with the confidence of
the Clopper–Pearson limits for p and q. One half of the draws chooses the event, the other half
judges it. Three pairs of inputs are tried: the ends of the ball; samples far outside the ball,
which the scheme must clip; two neighbouring samples of which one changes, because shared noise
would show in the other. Finally the attacker runs ``encode`` and ``decode`` with random dithers and
checks that two payloads of one update differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.checks import check_count
from jopeq.random.streams import PrivateStream, SharedStream, private_stream
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_DITHER_WORDS = (0x0000, 0x7FFF, 0x8000, 0xFFFF, 0x4000, 0xC000)  # ends and middles of the cell
_OUTSIDE = 4.0  # so far outside the unit ball that not clipping shows
CERTAIN = 1.0 - 1e-6
NO_BET = "none better than guessing"
_REPEATS_BELOW = 6.0  # above, thousands of entries may well come out alike twice
_ENCODE_LANE = 1 << 24
_CODEBOOKS = 4  # of a sphere that are attacked
_SINGLES, _CUTS = 32, 24
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class FixedDither(SharedStream):
    """A shared stream whose every 16-bit word is the same."""

    def __init__(self, word: int) -> None:
        super().__init__(bytes(32))
        self._word = word

    def words16(self, *, lane: int, start: int, count: int) -> NDArray[np.uint16]:
        return np.full(count, self._word, dtype=np.uint16)


@dataclass(frozen=True)
class EmpiricalEpsilon:
    """A lower bound on ε per sample with this confidence; ``event`` names the inputs that show it.

    ``certain`` is the bound at confidence 1 − 10⁻⁶: above the proven ε, the scheme is broken.
    """

    lower: float
    certain: float
    confidence: float
    draws: int
    event: str

    def or_bet(self, event: str, lower: float, certain: float) -> EmpiricalEpsilon:
        """The larger of this bound and another bet's."""
        certain = max(certain, self.certain)
        if lower <= self.lower:
            return replace(self, certain=certain)
        return replace(self, lower=lower, certain=certain, event=event)


def check_effort(draws: int, confidence: float) -> int:
    """The number of draws as an int, or ``ValueError`` if draws or confidence are out of range."""
    if not 0.5 <= confidence < 1.0:
        raise ValueError(f"confidence must be from 0.5 to below 1, got {confidence}")
    return check_count("draws", draws, 1000)


def empirical_epsilon(
    scheme: Scheme | Sphere,
    *,
    draws: int = 200_000,
    confidence: float = 0.95,
    noise: PrivateStream | None = None,
) -> EmpiricalEpsilon:
    """The bound of the best bet found."""
    draws = check_effort(draws, confidence)
    best = EmpiricalEpsilon(0.0, 0.0, confidence, draws, NO_BET)
    attacks: Any = _report_attacks if isinstance(scheme, Sphere) else _attacks
    for label, ours, theirs, bets in attacks(scheme, draws, private_stream(noise)):
        # all bets together have the confidence requested
        limits = 1.0 - (1.0 - confidence) / bets, 1.0 - (1.0 - CERTAIN) / bets
        best = best.or_bet(label, *bet(ours, theirs, limits))
    if not isinstance(scheme, Sphere) and _repeats(scheme):
        event = "two payloads of one update are the same"
        return replace(best, lower=math.inf, certain=math.inf, event=event)
    return best


Attacks = Iterator[tuple[str, Integers, Integers, int]]
"""(label, letters seen under one input, under the other, the number of bets)."""


def _attacks(scheme: Scheme, draws: int, private: PrivateStream) -> Attacks:
    bets = list(_bets(scheme))
    shares = len(bets) + 1  # the last one bets on ``encode``
    each, place = draws // shares, 0
    for label, word, *pair in bets:
        seen = []
        for inputs in pair:
            seen.append(_draw(scheme, inputs, word, each, private, place))
            place += each * len(inputs)
        yield label, seen[0], seen[1], shares
    if scheme.guarantee.unit == "sample" and scheme.codec.is_scaled:
        ends = (_encode_ends(scheme, sign, each, private, place) for sign in (1.0, -1.0))
        yield "encode", next(ends), next(ends), shares


def _report_attacks(scheme: Sphere, draws: int, private: PrivateStream) -> Attacks:
    """Reports of a one-entry update, to an attacker who knows the codebook."""
    bets = [(number, length) for number in range(_CODEBOOKS) for length in (1.0, _OUTSIDE)]
    for place, (number, length) in enumerate(bets):
        terms, seen = scheme.round(dimension=1, seed=bytes([number]) * 32), []
        for sign in (1.0, -1.0):
            update, own = np.array([sign * length * scheme.clip]), 2 * place + (sign > 0)
            drawn = terms.draws(update, count=draws // len(bets), noise=_branch(private, own))
            seen.append(drawn[:, None])
        yield f"codebook {number}, length {length:g} times the clip", seen[0], seen[1], len(bets)


def _branch(private: PrivateStream, number: int) -> PrivateStream:
    """A separate stream of noise, from words that no letter is drawn with."""
    key = private.read(lane=_ENCODE_LANE, start=64 * number, count=32).tobytes()
    return PrivateStream.reproducible(key)


def _plain(scheme: Scheme) -> Scheme:
    """The scheme with a public clip of 1, so that ``encode`` takes the ends of the ball."""
    return replace(scheme, clip=1.0, center=False, per="update")


def _encode_ends(
    scheme: Scheme, sign: float, count: int, private: PrivateStream, place: int
) -> Integers:
    """The decoded first entries of samples at one end of the ball, with random dithers."""
    plain = _plain(scheme)
    samples = np.zeros((count, plain.dimension))
    samples[:, 0] = sign
    noise = _branch(private, place + (sign > 0))
    decoded = plain.decode(plain.encode(samples, noise=noise)).reshape(count, -1)
    return np.asarray(np.rint(decoded[:, :1] * 2.0**12)).astype(np.int64)


def _repeats(scheme: Scheme) -> bool:
    """True if two payloads under one seed are equal, so that the noise is not fresh."""
    promised = scheme.guarantee
    if not (promised.unit == "sample" and scheme.codec.is_scaled and promised.nominal is not None):
        return False
    if not promised.epsilon <= _REPEATS_BELOW:
        return False
    plain = _plain(scheme)
    update = np.zeros(4096 * plain.dimension)
    seed = bytes(32) if plain.codec.has_dither else None
    return plain.encode(update, seed=seed) == plain.encode(update, seed=seed)


def _bets(scheme: Scheme) -> Iterator[tuple[str, int, Array, Array]]:
    """(label, dither word, inputs, other inputs), with one or two samples of which one differs."""
    size = scheme.dimension
    axis = np.zeros((1, size))
    axis[0, 0] = 1.0
    directions = {"axis": axis}
    if size > 1:
        directions["diagonal"] = np.full((1, size), 1.0 / math.sqrt(size))
    words = _DITHER_WORDS if scheme.codec.has_dither else (0,)
    for name, direction in directions.items():
        for word in words:
            yield f"{name}, dither word {word:#06x}", word, direction, -direction
    yield "outside the ball", words[0], _OUTSIDE * axis, -_OUTSIDE * axis
    for word in words[:2]:
        label = f"one of two samples, dither word {word:#06x}"
        yield label, word, np.concatenate((axis, -axis)), np.concatenate((-axis, -axis))


def _draw(
    scheme: Scheme, inputs: Array, word: int, count: int, private: PrivateStream, place: int
) -> Integers:
    """Letters of ``count`` draws; for two samples, both in one number and their difference."""
    samples = np.tile(inputs, (count, 1))
    dither = FixedDither(word)
    letters = np.asarray(scheme.codec.to_letters(samples, place, dither, private).values)
    if scheme.dimension > 1:  # on lattices: how far along the input the decoded point lies
        decoded = scheme.codec.to_samples(letters, place, dither) @ np.sign(np.abs(inputs[0]))
        letters = np.rint(decoded * 2.0**16)
    seen = letters.astype(np.int64).reshape(count, len(inputs))
    if len(inputs) == 1:
        return seen
    return np.stack(((seen[:, 0] << 32) + seen[:, 1], seen[:, 0] - seen[:, 1]), axis=1)


def bet(
    first: Integers, second: Integers, limits: tuple[float, float], delta: float = 0.0
) -> tuple[float, float]:
    """Choose an event on the first half of the draws, judge it on the second at both limits."""
    half = len(first) // 2
    best, shown = 0.0, (0.0, 0.0)
    for column in range(first.shape[1]):
        ours, theirs = first[:, column], second[:, column]
        is_pair = column < first.shape[1] - 1  # of letters: only the last column is in order
        for low, high in _events(ours[:half], theirs[:half], is_pair):
            for chosen, other in ((ours, theirs), (theirs, ours)):
                hits, misses = _count(chosen[:half], low, high), _count(other[:half], low, high)
                score = _lower(hits, misses, half, limits[0], delta)
                if score > best:
                    best, rest = score, len(first) - half
                    hits, misses = _count(chosen[half:], low, high), _count(other[half:], low, high)
                    found = (max(0.0, _lower(hits, misses, rest, at, delta)) for at in limits)
                    shown = next(found), next(found)
    return shown


def _events(ours: Integers, theirs: Integers, is_pair: bool) -> Iterator[tuple[int, int]]:
    """Each of the most common values; unless they are pairs, also all values beyond a cut."""
    values, counts = np.unique(np.concatenate((ours, theirs)), return_counts=True)
    for index in np.argsort(-counts, kind="stable")[:_SINGLES]:
        yield int(values[index]), int(values[index])
    if is_pair:
        return
    for cut in np.unique(np.linspace(0, len(values) - 1, _CUTS).astype(int)):
        yield _LOWEST, int(values[cut])
        yield int(values[cut]), _HIGHEST


def _count(letters: Integers, low: int, high: int) -> int:
    return int(np.count_nonzero((letters >= low) & (letters <= high)))


def _lower(hits: int, misses: int, draws: int, confidence: float, delta: float) -> float:
    """ln of the lower limit for p, less δ, over the upper limit for q."""
    low = limits_of(hits, draws, confidence)[0]
    return math.log((low - delta) / limits_of(misses, draws, confidence)[1]) if low > delta else 0.0


def limits_of(hits: int, draws: int, confidence: float) -> tuple[float, float]:
    """The Clopper–Pearson interval for a probability."""
    from scipy.special import betaincinv

    tail = (1.0 - confidence) / 2.0
    low = float(betaincinv(hits, draws - hits + 1, tail)) if hits else 0.0
    return low, float(betaincinv(hits + 1, draws - hits, 1.0 - tail)) if hits < draws else 1.0
