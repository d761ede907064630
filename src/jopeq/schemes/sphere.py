"""``sphere``: ε for a whole update, against the server, in about ten bits a client.

    encode  clip to ‖h‖ ≤ C; rotate; score every vector of the client's codebook against its block;
            draw a codeword, members with the counts of ``weights``, all others alike
    decode  put the codeword's draws on its blocks; rotate back; multiply by the plan's scale

Rotation and codebook come from shared randomness: the seed of the payload, or the key of a round
that clients and server agree on once (see ``jopeq.schemes.round``). The server knows both.

**Privacy** rests on ``SpherePlan.allowed`` and on one private word alone: the clip, the rotation,
the arithmetic of floats, NaN and the seed cannot break it. Docs: guarantees.md.

**Unbiased.** Given the blocks, the scores t_i = ⟨u_i, x_b⟩/‖x_b‖ are independent and normal whatever
the update is, E[u_i | t] = t_i·x_b/‖x_b‖, and the weight g_i of a member has the mean √(n/k)·‖x_b‖
given its own block b. What the uniform part adds cancels, as codewords come with both signs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.errors import PayloadError, UpdateError
from jopeq.privacy.guarantee import Guarantee
from jopeq.random import normal
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Array, Body, Letters, Scheme
from jopeq.schemes.sphere_plan import MOST_BITS, WORD, SpherePlan, plan_for
from jopeq.wire.coders import LetterCoder
from jopeq.wire.entries import Entries
from jopeq.wire.samples import hadamard
from jopeq.wire.scaling import Scale

MOST_CLIENTS = (1 << 32) - 2  # each has a lane of the shared stream; the last two hold the signs
LEAST_EPSILON, MOST_EPSILON = 1.0 / 64.0, 24.0
_LARGE = 1 << 20  # the update that figures speak of when no dimension is given
_MAX_ENTRIES = 1 << 28
_ONE = float(1 << 30)  # rotated updates as whole numbers, so that scores are exact
_CHUNK = 1 << 17
_FRACTION = 52  # bits of a weight


@dataclass(frozen=True, kw_only=True)
class Sphere(Scheme):
    """ε-LDP for the update as a whole, against the server, in 4 to 22 bits; unbiased.

    The error is within 7% of the best mechanism known (PrivUnitG) up to ε = 8, and within 17% at
    ε = 16. ``expected_error`` says how large that is: divide it by the number of clients.

    ``Statistics``: ``clipped`` counts weights that were cut (expected: in fewer than one of a
    million updates), ``overloaded`` is 1 when the update was longer than ``clip``. Decoded updates
    are unbiased as long as neither happens.

    >>> scheme = Sphere(epsilon=8.0, clip=1.0)
    >>> scheme.bits_for(7850), round(scheme.expected_error(7850) / 10_000, 3)
    (10, 0.111)
    >>> scheme.decode(scheme.encode(np.full(1000, 0.03))).shape
    (1000,)
    >>> print(scheme.guarantee)
    ε ≤ 8 per update against the server, who knows payload, dither, scale and scheme.

    Parameters
    ----------
    epsilon : float
        Privacy asked for, of the whole update: from 1/64 to 24.
    clip : float
        Public bound on the update's Euclidean norm. Required.
    bits : int, optional
        The most bits that one client sends, up to 24. By default the plan chooses: 4 to 10 up to
        ε = 8, 22 at ε = 16.
    draws : int, optional
        How many normal draws a client makes for its codebook: more draws, less error. By default
        2¹⁹, and 2²⁰ above ε = 10. Both ends must say the same.
    max_entries : int, default 2²²
        The largest update that is decoded. A few bytes can stand for an update of any size.
    """

    name: ClassVar[str] = "sphere"

    epsilon: float
    bits: int | None = None
    draws: int | None = None
    max_entries: int = 1 << 22

    def __post_init__(self) -> None:
        if self.clip is None:
            raise ValueError(
                "sphere needs clip, a public bound on the update's ℓ2 norm: without it the norm "
                "would travel in the clear; set clip to what an update's norm usually is"
            )
        if self.rotate or self.per != "update" or self.center:
            raise ValueError(
                "sphere always rotates the whole update: drop rotate, center and per='tensor'"
            )
        super().__post_init__()
        if not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            raise ValueError(
                f"epsilon must be from 1/64 to {MOST_EPSILON:g} for scheme 'sphere', got "
                f"{self.epsilon}: for more, send several reports of a smaller ε each"
            )
        limits = {"bits": MOST_BITS, "draws": 1 << 26, "max_entries": _MAX_ENTRIES}
        for name, most in limits.items():
            value = getattr(self, name)
            if value is not None and not 1 <= value <= most:
                raise ValueError(f"{name} must be from 1 to {most}, got {value}")
        self._plan(1)  # refuses draws that are too few

    # Figures

    def plan_for(self, dimension: int) -> SpherePlan | None:
        """Codebook and integers of updates of this dimension; None where nothing is sent."""
        if isinstance(dimension, bool) or not hasattr(dimension, "__index__") or dimension < 0:
            raise ValueError(f"dimension must be a number of entries, got {dimension!r}")
        dimension = operator.index(dimension)
        if dimension > self.max_entries:
            raise UpdateError(
                f"the update has {dimension} entries, more than max_entries={self.max_entries}: "
                "raise max_entries on both ends"
            )
        return self._plan(dimension) if dimension else None

    def _plan(self, dimension: int) -> SpherePlan:
        is_large = self.epsilon > 10.0
        bits = self.bits or (22 if is_large else 11)
        draws = self.draws or (1 << 20 if is_large else 1 << 19)
        return plan_for(self.epsilon, dimension, bits, draws)

    @property
    def guarantee(self) -> Guarantee:
        """What holds for updates of any dimension; ``guarantee_for`` has the exact ratio."""
        return Guarantee(epsilon=self.epsilon, nominal=self.epsilon, unit="update")

    def guarantee_for(self, dimension: int) -> Guarantee:
        """ε of the integers that updates of this dimension are drawn with."""
        plan = self.plan_for(dimension)
        epsilon = 0.0 if plan is None else plan.epsilon
        return Guarantee(epsilon=epsilon, nominal=self.epsilon, unit="update")

    def expected_error(self, dimension: int, norm: float = 1.0) -> float:
        """E‖h̃ − h‖²/C² of an update of this dimension and of length ``norm``·C.

        The mean over K clients has 1/K of it.

        >>> round(Sphere(epsilon=4.0, clip=1.0).expected_error(1000), 1)
        436.7
        """
        if not (math.isfinite(norm) and 0.0 <= norm <= 1.0):
            raise ValueError(f"norm is in units of clip, from 0 to 1, got {norm!r}")
        plan = self.plan_for(dimension)
        return 0.0 if plan is None else plan.error(norm)

    def bits_for(self, dimension: int) -> int:
        """What one client sends, in all."""
        plan = self.plan_for(dimension)
        return 0 if plan is None else plan.bits

    @property
    def distortion(self) -> float:
        """Per entry of a large update that is zero, in units of C²; see ``expected_error``."""
        return self._plan(_LARGE).error(0.0) / _LARGE

    @property
    def bits_per_entry(self) -> float:
        """Of a large update; see ``bits_for``."""
        return self._plan(_LARGE).bits / _LARGE

    # Coding

    def draw(
        self,
        update: Array,
        plan: SpherePlan,
        shared: SharedStream,
        private: PrivateStream,
        client: int = 0,
    ) -> tuple[int, int, bool]:
        """(index, weights that were cut, whether the update was too long) of a scaled update."""
        norm = math.sqrt(float(update @ update))
        if norm > 1.0:
            update = update / norm
        members, counts, cut = weights(rotated(update, plan, shared), plan, shared, client)
        words = private.words64(lane=0, start=0, count=2)
        (index,) = _drawn(members, counts, plan, words)
        return int(index), cut, norm > 1.0 + 1e-9

    def to_body(
        self, entries: Entries, scales: list[Scale], shared: SharedStream, private: PrivateStream
    ) -> Body:
        plan = self.plan_for(entries.count)
        if plan is None:
            return Body([], 0, 0, 0)
        index, cut, is_long = self.draw(scaled(entries, scales), plan, shared, private)
        return Body([to_bytes(index, plan)], 1, cut, int(is_long))

    def from_body(
        self,
        body: memoryview,
        sizes: tuple[int, ...],
        scales: list[Scale],
        shared: SharedStream,
    ) -> NDArray[np.float32]:
        self.check_size(len(body), sum(sizes))
        plan = self.plan_for(sum(sizes))
        if plan is None:
            return np.empty(0, dtype=np.float32)
        total = np.zeros(plan.padded, dtype=np.int64)
        index = from_bytes(body, plan)
        add_codewords(np.zeros(1, np.int64), np.array([index]), plan, shared, total)
        with np.errstate(over="ignore"):  # the caller refuses what leaves float32
            return scales[0].undo(decoded(total, plan, shared)).astype(np.float32)

    def check_size(self, body_bytes: int, entries: int) -> None:
        try:
            plan = self.plan_for(entries)
        except UpdateError as error:
            raise PayloadError(f"no such payload can be decoded: {error}") from error
        expected = 0 if plan is None else report_bytes(plan)
        if body_bytes != expected:
            raise PayloadError(
                f"an update of {entries} entries takes {expected} bytes; the body has {body_bytes}"
            )

    def explanation(self, epsilon: float) -> str:
        return (
            "Every index has a chance between two integers over M·2⁶⁴, whatever the update is; "
            "ε is the logarithm of their ratio."
        )

    # One sample: an update of one entry, all with client 0's codebook

    @property
    def coder(self) -> LetterCoder:
        return LetterCoder(self._plan(1).codewords)

    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        plan = self._plan(1)
        words = private.words64(lane=0, start=2 * first, count=2 * len(samples)).reshape(-1, 2)
        letters = np.empty(len(samples), dtype=np.int64)
        values, places = np.unique(np.clip(samples[:, 0], -1.0, 1.0), return_inverse=True)
        for number, value in enumerate(values):
            members, counts, _ = weights(
                rotated(np.array([value]), plan, shared), plan, shared, client=0
            )
            letters[places == number] = _drawn(members, counts, plan, words[places == number])
        return Letters(letters, clipped=int(np.count_nonzero(np.abs(samples) > 1.0)))

    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        plan = self._plan(1)
        values, places = np.unique(letters, return_inverse=True)
        found = np.empty(len(values))
        for number, index in enumerate(values):
            total = np.zeros(plan.padded, dtype=np.int64)
            add_codewords(np.zeros(1, np.int64), np.array([index]), plan, shared, total)
            found[number] = decoded(total, plan, shared)[0]
        return found[places][:, None]

    def log_channel(self, dither: float, inputs: Array) -> Array:
        """log P(index | x) for updates of one entry; ``dither`` chooses the codebook."""
        plan = self._plan(1)
        shared = SharedStream(np.float64(dither).tobytes() * 4)
        return np.array(
            [
                np.log([float(chance) for chance in chances(np.array([value]), plan, shared)])
                for value in inputs
            ]
        )


def scaled(entries: Entries, scales: list[Scale]) -> Array:
    """All entries in units of ``clip``, in one row."""
    pieces = [piece for _, piece in entries.read(0, entries.count)]
    return scales[0].apply(np.concatenate(pieces))


def report_bytes(plan: SpherePlan) -> int:
    """What an index takes: little-endian."""
    return -(-plan.bits // 8)


def to_bytes(index: int, plan: SpherePlan) -> bytes:
    return index.to_bytes(report_bytes(plan), "little")


def from_bytes(body: bytes | memoryview, plan: SpherePlan) -> int:
    """The index in a report; raises ``PayloadError`` where no codeword has that index."""
    if len(body) != report_bytes(plan):
        raise PayloadError(f"a report has {report_bytes(plan)} bytes, this one has {len(body)}")
    index = int.from_bytes(body, "little")
    if index >= plan.codewords:
        raise PayloadError(f"index {index} is beyond the {plan.codewords} codewords")
    return index


# The rotation: x′ = H·D₂·H·D₁·x


@lru_cache(maxsize=8)
def _signs(key: bytes, padded: int) -> tuple[Array, Array]:
    shared = SharedStream(key)
    first, second = (
        1.0
        - 2.0
        * np.unpackbits(
            shared.read(lane=lane, start=0, count=padded // 8), bitorder="little"
        ).astype(np.float64)
        for lane in (MOST_CLIENTS, MOST_CLIENTS + 1)
    )
    return first, second


def rotated(update: Array, plan: SpherePlan, shared: SharedStream) -> NDArray[np.int32]:
    """The update as whole multiples of 2⁻³⁰, after two rounds of signs and Hadamard."""
    first, second = _signs(shared.key_words.tobytes(), plan.padded)
    padded = np.zeros(plan.padded)
    padded[: len(update)] = update
    turned = _transformed(second * _transformed(first * padded))
    return np.floor(turned * _ONE + 0.5).astype(np.int32)


def decoded(total: NDArray[np.int64], plan: SpherePlan, shared: SharedStream) -> Array:
    """A sum of codewords' draws, rotated back and multiplied by the plan's scale."""
    first, second = _signs(shared.key_words.tobytes(), plan.padded)
    turned = first * _transformed(second * _transformed(total.astype(np.float64)))
    return turned[: plan.dimension] * plan.scale


def _transformed(values: Array) -> Array:
    if kernels.are_loaded():
        return kernels.hadamard(values)
    return hadamard(values)


# The codebook: lane c of the shared stream is client c's


def _blocks_bytes(plan: SpherePlan) -> int:
    """A 32-bit word for the block of every vector comes first, then the vectors' draws."""
    return -(-4 * plan.vectors // 64) * 64


def _vector_draws(
    plan: SpherePlan, shared: SharedStream, client: int, first: int, count: int
) -> NDArray[np.int16]:
    """Vectors first…first + count of a client, in rows."""
    start = _blocks_bytes(plan) // 2 + first * plan.block
    words = shared.words16(lane=client, start=start, count=count * plan.block)
    return normal.draws()[words].reshape(count, plan.block)


def _vector_blocks(plan: SpherePlan, shared: SharedStream, client: int) -> NDArray[np.int64]:
    words = shared.words32(lane=client, start=0, count=plan.vectors)
    return (words & np.uint32(plan.blocks - 1)).astype(np.int64)


def scores(
    turned: NDArray[np.int32], plan: SpherePlan, shared: SharedStream, client: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(⟨u, x_b⟩, the first draw, the block) of every vector; exact whole numbers."""
    blocks = _vector_blocks(plan, shared, client)
    if kernels.are_used(plan.vectors * plan.block):
        products, firsts = kernels.codeword_scores(
            turned, blocks, plan.block, _blocks_bytes(plan), shared, client
        )
        return products, firsts, blocks
    rows = turned.reshape(plan.blocks, plan.block)
    products, firsts = np.empty((2, plan.vectors), dtype=np.int64)
    step = max(1, _CHUNK // plan.block)
    for first in range(0, plan.vectors, step):
        here = slice(first, min(first + step, plan.vectors))
        draws = _vector_draws(plan, shared, client, first, here.stop - first).astype(np.int64)
        products[here] = np.einsum("ij,ij->i", draws, rows[blocks[here]])
        firsts[here] = draws[:, 0]
    return products, firsts, blocks


def add_codewords(
    clients: NDArray[np.int64],
    indices: NDArray[np.int64],
    plan: SpherePlan,
    shared: SharedStream,
    total: NDArray[np.int64],
) -> None:
    """total += the ±draws of the codewords that so many clients name, each on its block."""
    signed = _parts(indices, plan)  # (reports, L)
    vectors = (signed >> 1) + plan.pairs * np.arange(plan.lists)
    if kernels.are_used(clients.size * plan.lists * plan.block):
        kernels.add_codewords(
            np.repeat(clients, plan.lists).astype(np.uint32),
            vectors.ravel(),
            (signed & 1).ravel().astype(np.bool_),
            plan.block,
            _blocks_bytes(plan),
            shared,
            total,
        )
        return
    rows = total.reshape(plan.blocks, plan.block)
    for client, own, signs in zip(clients.tolist(), vectors, signed & 1, strict=True):
        blocks = _vector_blocks(plan, shared, client)
        for vector, is_negative in zip(own.tolist(), signs.tolist(), strict=True):
            draws = _vector_draws(plan, shared, client, vector, 1)[0]
            rows[blocks[vector]] += -draws if is_negative else draws


def _parts(indices: NDArray[np.int64], plan: SpherePlan) -> NDArray[np.int64]:
    """Which signed vector of each list an index names; the last list has the lowest bits."""
    width = plan.pairs.bit_length()
    shifts = width * np.arange(plan.lists - 1, -1, -1)
    return (indices[:, None] >> shifts) & (2 * plan.pairs - 1)


# Weights and the draw


def weights(
    turned: NDArray[np.int32], plan: SpherePlan, shared: SharedStream, client: int
) -> tuple[NDArray[np.int64], list[int], int]:
    """(indices of the combinations of members, their counts, how many counts were cut)."""
    products, firsts, blocks = scores(turned, plan, shared, client)
    rows = turned.reshape(plan.blocks, plan.block).astype(np.int64)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows).astype(np.float64))
    own = lengths[blocks]
    # a block of zeros scores as any direction would
    score = np.where(own > 0.0, products / np.where(own > 0.0, own, 1.0), firsts)
    mean = _left_to_right(lengths) / plan.blocks
    weight, index = np.array([mean]), np.zeros(1, dtype=np.int64)
    for number in range(plan.lists):
        of_list = slice(number * plan.pairs, (number + 1) * plan.pairs)
        order = np.argsort(-np.abs(score[of_list]), kind="stable")[: plan.members]
        length = own[of_list][order]
        if plan.members > 1:
            others = (_left_to_right(length) - length) / (plan.members - 1)
        else:
            others = np.array([mean])
        weight = np.add.outer(weight, length - others).ravel()
        signed = 2 * order + (score[of_list][order] < 0.0)
        index = np.add.outer(index << plan.pairs.bit_length(), signed).ravel()
    weight *= math.sqrt(plan.blocks) / _ONE
    counts = [
        int(fixed) * plan.unit >> _FRACTION
        for fixed in (np.clip(weight, -4.0, 4.0) * float(1 << _FRACTION)).tolist()
    ]
    kept = plan.allowed(counts)
    rounding = plan.unit >> 20
    cut = sum(abs(count - after) > rounding for count, after in zip(counts, kept, strict=True))
    return index, kept, cut


def _left_to_right(values: Array) -> float:
    return float(np.add.accumulate(values)[-1])


def _drawn(
    members: NDArray[np.int64],
    counts: Sequence[int],
    plan: SpherePlan,
    words: NDArray[np.uint64],
) -> NDArray[np.int64]:
    """Indices drawn with pairs of private words: the first chooses a member or none, then all."""
    words = words.reshape(-1, 2)
    total, ends = 0, []
    for count in counts:
        total += count
        ends.append(total)  # at most ``most_sum``, below 2⁶⁴
    places = np.searchsorted(np.array(ends, dtype=np.uint64), words[:, 0], side="right")
    uniform = (words[:, 1] & np.uint64(plan.codewords - 1)).astype(np.int64)
    return np.where(places < len(members), members[places % len(members)], uniform)


def chances(update: Array, plan: SpherePlan, shared: SharedStream, client: int = 0) -> list[Any]:
    """The exact chance of every index, as fractions of 1."""
    from fractions import Fraction

    members, counts, _ = weights(rotated(update, plan, shared), plan, shared, client)
    rest = Fraction(WORD - sum(counts), WORD * plan.codewords)
    found = [rest] * plan.codewords
    for index, count in zip(members.tolist(), counts, strict=True):
        found[index] += Fraction(count, WORD)
    return found
