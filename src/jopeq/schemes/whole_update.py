"""``response`` with ``unit="update"``: ε for the whole update, not for each of its entries.

    encode  clip to ‖h‖ ≤ C; pad to n = 2ᵐ entries; g = the orthonormal Hadamard transform of ±h;
            keep k of the n coordinates, each divided by βC and sent through a response of ε/k
    decode  put (n/k)·βC·(value − dither) at the kept coordinates; rotate back; cut the padding

Signs, kept coordinates and dither come from the shared seed. Privacy needs none of them, nor the
clip: it rests on the k channels alone (see ``UpdateResponse``). What they buy is a small error.

**The bound β.** Each g_i is a sum of d terms ±h_j/√n with independent signs, hence sub-Gaussian of
variance ‖h‖²/n ≤ C²/n (Hoeffding): P(|g_i| > τC/√n) ≤ 2·exp(−τ²/2). Which coordinates are kept
is drawn from another lane than the signs, so the union need only run over the k kept ones:
τ² = 2·ln(2k/10⁻⁶) leaves less than 10⁻⁶ per update. No coordinate exceeds the norm, so
β = min(1, τ/√n). Coordinates beyond are clamped, and counted.

**The error.** Let g′ hold n/k times the decoded coordinates at the k kept places, 0 elsewhere. Then
E g′ = g, and as the places are drawn without replacement, with c = (n−k)/(k(n−1)) and with
v_i = β²C²·D(g_i/βC) the error of the channel and the dither,

    Cov g′ = c·(n·diag(g²) − g·gᵀ) + (n/k)·diag(v) .

Rotated back and cut to d entries, a diagonal matrix keeps d/n of its trace and g·gᵀ all of it:

    E‖h̃ − h‖² = (d−1)·(n−k)/(k(n−1)) · ‖h‖² + (d/k) · Σ_i v_i ,   exactly, for any signs.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from jopeq.channel.channel import MAX_LETTERS, TOTAL
from jopeq.errors import PayloadError, UpdateError
from jopeq.lattice.codebook import letters_for_rate
from jopeq.privacy.accounting import Composition, Mechanism
from jopeq.privacy.calibration import check_epsilon
from jopeq.privacy.guarantee import Guarantee
from jopeq.random import portable
from jopeq.random.rational import MAX_EPSILON, log_ceiling
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Array, Body, Letters, Scheme
from jopeq.schemes.channelled import Response
from jopeq.wire.coders import Coder
from jopeq.wire.entries import Entries
from jopeq.wire.packing import Packing
from jopeq.wire.samples import MAX_BLOCK, rotate_block, unrotate_block
from jopeq.wire.scaling import Scale

CLAMPED_CHANCE = 1e-6  # that some kept coordinate of an update is beyond the bound
_CHOICE_LANE = 2
_LARGE = 1 << 20  # the update that figures speak of when no dimension is given
_MAX_ENTRIES = 1 << 31
_QUANTILES = 256  # of one entry of a random direction, which its error is averaged over
_TOP = Fraction(TOTAL - 1)  # no letter is more likely, relative to another row
# (i + ½)/16 quantiles of |N(0, 1)|, written out so that both ends choose alike on any machine
_NORMAL = (
    *(0.0392, 0.1178, 0.1971, 0.2777, 0.3601, 0.4451, 0.5334, 0.6261),
    *(0.7245, 0.8305, 0.9468, 1.0775, 1.2299, 1.4178, 1.6759, 2.1539),
)


@dataclass(frozen=True)
class Choice:
    """How an update of one dimension is coded: n, k, β, and the response of each coordinate."""

    dimension: int
    padded: int
    kept: int
    bound: float
    response: Response

    def choose(self, shared: SharedStream) -> NDArray[np.int64]:
        """The kept coordinates, in ascending order, every set of k equally likely.

        The first m distinct values of w mod n, over the 64-bit words w of lane 2 (exactly uniform,
        as n is a power of two), are those kept if m = k ≤ n/2, else those left out, m = n − k.
        """
        leaves_out = 2 * self.kept > self.padded
        wanted = self.padded - self.kept if leaves_out else self.kept
        drawn = wanted + wanted // 2
        while True:
            words = shared.words64(lane=_CHOICE_LANE, start=0, count=drawn)
            values, first = np.unique(words & np.uint64(self.padded - 1), return_index=True)
            if len(values) >= wanted:
                break
            drawn = 2 * drawn + 1
        chosen = np.sort(values[np.argsort(first)[:wanted]]).astype(np.int64)
        return np.delete(np.arange(self.padded), chosen) if leaves_out else chosen


@lru_cache(maxsize=1024)
def best_choice(epsilon: float, rate: float, k: int | None, dimension: int) -> Choice:
    """The choice of least expected error, or the one with ``k`` coordinates."""
    padded = 1 << (dimension - 1).bit_length()
    counts = np.array(counts_to_try(epsilon, dimension) if k is None else [k])
    letters = np.arange(2, min(letters_for_rate(rate, 1), MAX_LETTERS) + 1)
    errors = expected_errors(epsilon, dimension, padded, counts[:, None], letters[None, :])
    row, column = divmod(int(np.argmin(errors)), len(letters))  # ties: fewest coordinates, letters
    kept, levels = int(counts[row]), int(letters[column])
    response = Response(
        epsilon=_each(epsilon, kept), rate=rate, channel="randomized", levels=levels, clip=1.0
    )
    bound = math.sqrt(float(_square_bound(counts, padded)[row]))
    return Choice(dimension, padded, kept, bound, response)


def counts_to_try(epsilon: float, dimension: int) -> list[int]:
    """Values of k to try, ascending. Beyond 2ε each coordinate's ε is below ½: never worth it."""
    most = max(1, math.floor(min(float(dimension), 2.0 * epsilon)))
    tried = {most, *range(1, min(most, 32) + 1)}
    for zeros in range(most.bit_length()):
        tried.update(digits << zeros for digits in range(32, 64) if digits << zeros <= most)
    return sorted(tried)


def _square_bound(counts: NDArray[np.int64], padded: int) -> Array:
    """β²."""
    tail = 2.0 * portable.log(2.0 / CLAMPED_CHANCE * counts.astype(np.float64))
    return np.minimum(1.0, tail / padded)


def expected_errors(
    epsilon: float,
    dimension: int,
    padded: int,
    counts: NDArray[np.int64],
    letters: NDArray[np.int64],
) -> Array:
    """E‖h̃ − h‖²/C² at ‖h‖ = C, the coordinates taken as Gaussian."""
    square_bound = _square_bound(counts, padded)
    square = 1.0 / (padded * square_bound)  # mean square of a coordinate, in units of β²C²
    reach = np.sqrt(square)
    rounding = np.zeros(np.broadcast_shapes(counts.shape, letters.shape))
    for quantile in _NORMAL:
        place = (np.minimum(quantile * reach, 1.0) + 1.0) * (letters - 1) * 0.5
        rest = place - np.floor(place)
        rounding += rest * (1.0 - rest)
    spacing = 4.0 / ((letters - 1) * (letters - 1))  # Δ²
    level = square + spacing * (rounding * (1.0 / len(_NORMAL)))  # E v_j²
    ratio = portable.exp(np.minimum(epsilon / counts, MAX_EPSILON))
    gain = (ratio + (letters - 1)) / (ratio - 1.0)
    all_levels = letters * (letters + 1) / (3.0 * (letters - 1))  # Σ_j v_j²
    channel = gain * (all_levels / (ratio - 1.0) + level) - level + spacing / 12.0
    sampling = (dimension - 1.0) * (padded - counts) / (counts * max(padded - 1.0, 1.0))
    errors: Array = sampling + (dimension / counts) * (padded * square_bound) * channel
    return errors


def _each(epsilon: float, kept: int) -> float:
    """The largest ε′ with kε′ ≤ ε, exactly."""
    each = epsilon / kept
    return each if Fraction(each) * kept <= Fraction(epsilon) else math.nextafter(each, 0.0)


@dataclass(frozen=True, kw_only=True)
class UpdateResponse(Scheme):
    """ε-LDP for the update as a whole, against the server; ≤ R bits for each of k coordinates.

    k coordinates of the rotated update are sent, each through a ``Response`` of ε/k.

    **Proof.** The seed is independent of the update. Given it, letter i is drawn from the row of a
    channel that the i-th kept coordinate selects, with its own private word. Any two rows differ by
    a factor of at most e^ε′, kε′ ≤ ε, and the k letters are independent: for any two updates, in
    the ball or not, the probabilities of any payload differ by a factor of at most e^{kε′}. It is
    attained when k corners fit the ball, kβ² ≤ 1, as for k = 1. Docs: guarantees.md.

    ``Statistics``: ``samples`` is k, ``clipped`` counts clamped coordinates (expected: fewer than
    one in a million updates), ``overloaded`` is 1 when the update was longer than ``clip``.
    Decoded updates are unbiased as long as neither happens.

    >>> scheme = UpdateResponse(epsilon=8.0, rate=2.0, clip=1.0)
    >>> payload, counted = scheme.encode(np.full(1000, 0.03), statistics=True)
    >>> counted.samples, counted.body_bytes, scheme.bits_for(1000)
    (2, 1, 8)
    >>> print(scheme.guarantee)
    ε ≤ 8 per update against the server, who knows payload, dither, scale and scheme.

    Parameters
    ----------
    epsilon : float
        Privacy asked for, of the whole update.
    rate : float
        R, bits per kept coordinate: at most ⌊2^R⌋ letters.
    clip : float
        Public bound on the update's Euclidean norm. Required.
    k : int, optional
        How many coordinates are sent. By default the k of least expected error, which depends on
        the update's dimension, known to both ends.
    max_entries : int, default 2²²
        The largest update that is decoded. A few bytes can stand for an update of any size.
    unit : {"update"}
        What ε protects; ``jopeq.scheme("response", unit="update")`` makes this class.
    """

    name: ClassVar[str] = "response"

    epsilon: float
    rate: float
    k: int | None = None
    max_entries: int = 1 << 22
    # a factory is no default, so the specification always names the unit
    unit: Literal["update"] = field(default_factory=lambda: "update")

    def __post_init__(self) -> None:
        if self.unit != "update":
            raise ValueError(f"unit must be 'update' here, got {self.unit!r}: use Response")
        if self.clip is None:
            raise ValueError(
                "unit='update' needs clip, a public bound on the update's ℓ2 norm: without it the "
                "norm would travel in the clear; set clip to what an update's norm usually is"
            )
        if self.rotate or self.per != "update":
            raise ValueError(
                "unit='update' always rotates the whole update: drop rotate and per='tensor'"
            )
        super().__post_init__()
        check_epsilon(self.epsilon)
        for name, value in (("k", self.k), ("max_entries", self.max_entries)):
            if value is not None and not 1 <= value <= _MAX_ENTRIES:
                raise ValueError(f"{name} must be from 1 to {_MAX_ENTRIES}, got {value}")
        if self.k is not None and self.k > self.max_entries:
            raise ValueError(f"k={self.k} exceeds max_entries={self.max_entries}: lower k")
        letters_for_rate(self.rate, 1)
        self._usual  # noqa: B018 (refuses an ε/k too small for a channel)

    # Figures

    @property
    def guarantee(self) -> Guarantee:
        """What holds for updates of any dimension; ``guarantee_for`` is sharper."""
        most = (
            self.epsilon
            if self.k is None
            else min(self.epsilon, _product_up(self.k, log_ceiling(_TOP)))
        )
        return Guarantee(epsilon=most, nominal=self.epsilon, unit="update")

    def guarantee_for(self, dimension: int) -> Guarantee:
        """k times the exact ε of the channel that an update of this dimension meets."""
        choice = self.choice_for(dimension)
        if choice is None:
            return Guarantee(epsilon=0.0, nominal=self.epsilon, unit="update", is_exact=True)
        each = choice.response.guarantee.epsilon
        return Guarantee(
            epsilon=_product_up(choice.kept, each),
            nominal=self.epsilon,
            unit="update",
            is_exact=choice.kept * choice.bound**2 <= 1.0,
            composition=Composition.of(Mechanism(each), choice.kept),
        )

    def expected_error(self, dimension: int, norm: float = 1.0) -> float:
        """E‖h̃ − h‖²/C² of an update of this dimension and of length ``norm``·C.

        Exact but for the place of a coordinate between two levels, over which updates of random
        direction are averaged. The mean over K clients has 1/K of it.

        >>> scheme = UpdateResponse(epsilon=8.0, rate=2.0, clip=1.0)
        >>> round(scheme.expected_error(1000) / 1000, 2)
        1.87
        """
        if not (math.isfinite(norm) and 0.0 <= norm <= 1.0):
            raise ValueError(f"norm is in units of clip, from 0 to 1, got {norm!r}")
        choice = self.choice_for(dimension)
        if choice is None:
            return 0.0
        n, k, d = choice.padded, choice.kept, choice.dimension
        places = np.minimum(norm / choice.bound * math.sqrt(d / n) * _directions(d), 1.0)
        channel = math.fsum(map(choice.response.finite_channel.distortion, places.tolist())) / len(
            places
        )
        sampling = (d - 1) * (n - k) / (k * (n - 1)) if n > 1 else 0.0
        return sampling * norm**2 + d / k * n * choice.bound**2 * channel

    def bits_for(self, dimension: int) -> int:
        """What the body of such an update takes, in whole bytes."""
        choice = self.choice_for(dimension)
        if choice is None:
            return 0
        return 8 * Packing(choice.response.finite_channel.letters).size(choice.kept)

    @property
    def distortion(self) -> float:
        """Of one kept coordinate of a large update, in units of βC; see ``expected_error``."""
        return self._usual.distortion

    @property
    def bits_per_entry(self) -> float:
        """Per *kept* coordinate of a large update; see ``bits_for``."""
        return self._usual.bits_per_entry

    # Coding

    def choice_for(self, dimension: int) -> Choice | None:
        """n, k, β and channel for updates of this dimension; None where there is nothing to send.

        k and the number of letters are the pair of least expected error at ‖h‖ = C, of those on a
        grid: k up to 64, then numbers of six binary digits followed by zeros, at most d and 2ε.
        """
        if isinstance(dimension, bool) or not hasattr(dimension, "__index__") or dimension < 0:
            raise ValueError(f"dimension must be a number of entries, got {dimension!r}")
        dimension = operator.index(dimension)
        if dimension > self.max_entries:
            raise UpdateError(
                f"the update has {dimension} entries, more than max_entries={self.max_entries}: "
                "raise max_entries on both ends"
            )
        if dimension and self.k is not None and self.k > dimension:
            raise UpdateError(
                f"k={self.k} coordinates cannot be kept of an update of {dimension} entries: "
                "lower k, or leave it out"
            )
        return best_choice(self.epsilon, self.rate, self.k, dimension) if dimension else None

    @property
    def _usual(self) -> Response:
        """The response that coordinates of a large update meet."""
        return best_choice(self.epsilon, self.rate, self.k, max(_LARGE, self.k or 0)).response

    def to_body(
        self, entries: Entries, scales: list[Scale], shared: SharedStream, private: PrivateStream
    ) -> Body:
        choice = self.choice_for(entries.count)
        if choice is None:
            return Body([], 0, 0, 0)
        (scale,) = scales
        update = np.zeros(choice.padded)
        pieces = [piece for _, piece in entries.read(0, choice.dimension)]
        update[: choice.dimension] = scale.apply(np.concatenate(pieces))
        norm = math.sqrt(float(update @ update))
        if norm > 1.0:
            update /= norm
        turned = rotate_block(update, 0, shared)[choice.choose(shared)] / choice.bound
        clamped = int(np.count_nonzero(np.abs(turned) > 1.0 + 1e-9))
        letters = choice.response.to_letters(turned[:, None], 0, shared, private)
        body = choice.response.coder.encode(letters.values)
        return Body([body], choice.kept, clamped, int(norm > 1.0 + 1e-9))

    def from_body(
        self,
        body: memoryview,
        sizes: tuple[int, ...],
        scales: list[Scale],
        shared: SharedStream,
    ) -> NDArray[np.float32]:
        self.check_size(len(body), sum(sizes))
        choice = self.choice_for(sum(sizes))
        if choice is None:
            return np.empty(0, dtype=np.float32)
        letters, _ = choice.response.coder.decode(body, 0, choice.kept)
        values = choice.response.to_samples(letters, 0, shared)[:, 0]
        turned = np.zeros(choice.padded)
        turned[choice.choose(shared)] = values * (choice.bound * choice.padded / choice.kept)
        unrotate_block(turned, 0, shared)
        flat = np.empty(choice.dimension, dtype=np.float32)
        with np.errstate(over="ignore"):  # what leaves float32 is refused by the caller
            for first in range(0, choice.dimension, MAX_BLOCK):
                last = min(first + MAX_BLOCK, choice.dimension)
                flat[first:last] = scales[0].undo(turned[first:last])
        return flat

    def check_size(self, body_bytes: int, entries: int) -> None:
        try:
            choice = self.choice_for(entries)
        except UpdateError as error:
            raise PayloadError(f"no such payload can be decoded: {error}") from error
        if choice is not None:
            choice.response.coder.check(body_bytes, choice.kept)
        elif body_bytes:
            raise PayloadError(f"{body_bytes} bytes stand for no entries")

    def explanation(self, epsilon: float) -> str:
        return (
            "Each kept coordinate goes through a channel with integer probabilities and its "
            "share of ε; the shares add up to the ε of the update."
        )

    # One coordinate of a large update, as a sample

    @property
    def coder(self) -> Coder:
        return self._usual.coder

    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        return self._usual.to_letters(samples, first, shared, private)

    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        return self._usual.to_samples(letters, first, shared)


def _product_up(count: int, value: float) -> float:
    """The smallest float not below count·value."""
    product = count * value
    is_below = Fraction(product) < count * Fraction(value)
    return math.nextafter(product, math.inf) if is_below else product


@lru_cache(maxsize=64)
def _directions(dimension: int) -> Array:
    """Quantiles of |u|, one entry of a random unit vector, of mean square 1/d exactly."""
    if dimension == 1:
        return np.ones(1)
    from scipy.special import betaincinv

    chances = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    squares = betaincinv(0.5, 0.5 * (dimension - 1), chances)
    result: Array = np.sqrt(squares / (squares.mean() * dimension))
    return result
