"""``sphere``: ε for a whole update, against the server, in about ten bits a client.

    encode  clip to ‖h‖ ≤ C; rotate; score every vector of the client's codebook against its block;
            draw a codeword, members with the counts of ``weights``, all others alike
    decode  put the codeword's draws on its blocks; rotate back; multiply by the plan's scale

Rotation and codebook come from shared randomness: the seed of the payload, or the seed of a
round that clients and server agree on once (see ``jopeq.sphere.round``). The server knows both.

**Privacy** rests on ``SpherePlan.allow`` and on one private word alone: the clip, the rotation,
the arithmetic of floats, NaN and the seed cannot break it. Docs: guarantees.md.

**Unbiased.** Given the blocks, the scores t_i = ⟨u_i, x_b⟩/‖x_b‖ are independent and normal,
whatever the update is. E[u_i | t] = t_i·x_b/‖x_b‖, and the weight g_i of a member has the mean
√(n/k)·‖x_b‖ given its own block b. The uniform part cancels: codewords come with both signs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from jopeq.checks import check_count
from jopeq.errors import PayloadError, UpdateError
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import PrivateStream, SharedStream
from jopeq.schemes.base import Scheme
from jopeq.schemes.codec import Array, Body, Codec, Letters
from jopeq.sphere import sphere_codebook as codebook
from jopeq.sphere.round import MOST_PEOPLE, Round
from jopeq.sphere.sphere_plan import MOST_BITS, SpherePlan, plan_for
from jopeq.wire.coders import Packing
from jopeq.wire.entries import Entries
from jopeq.wire.scaling import Scale

LEAST_EPSILON, MOST_EPSILON = 1.0 / 64.0, 24.0
_LARGE = 1 << 20  # the update that figures speak of when no dimension is given
_MAX_ENTRIES = 1 << 28


@dataclass(frozen=True, kw_only=True)
class Sphere(Scheme):
    """ε-LDP for the update as a whole, against the server, in at most 22 bits; unbiased.

    The error is within 7% of the best mechanism known (PrivUnitG) up to ε = 8, and within 17% at
    ε = 16. ``expected_error`` says how large that is: divide it by the number of clients.

    ``Counts``: ``clipped`` counts weights that were cut (expected: in fewer than one of a
    million updates), ``overloaded`` is 1 when the update was longer than ``clip``. Decoded updates
    are unbiased as long as neither happens.

    >>> scheme = Sphere(epsilon=8.0, clip=1.0)
    >>> scheme.bits_for(7850), round(scheme.expected_error(7850) / 10_000, 3)
    (11, 0.111)
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
        The most bits that one client sends, up to 24. By default 11, and 22 above ε = 10; the
        plan may take fewer (``bits_for``).
    draws : int, optional
        How many normal draws a client makes for its codebook: more draws, less error. By default
        2¹⁹, and 2²⁰ above ε = 10. Both ends must say the same.
    max_entries : int, default 2²²
        The largest update that is decoded. A few bytes can stand for an update of any size.
    """

    name: ClassVar[str] = "sphere"
    is_whole: ClassVar[bool] = True

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
        if self.per != "update" or self.center:
            raise ValueError("sphere takes the update as a whole: drop center and per")
        super().__post_init__()
        if not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            is_less = self.epsilon < LEAST_EPSILON
            few = "raise epsilon, 1 is strong and 8 is weak; for no privacy use scheme 'sdq'"
            many = "for more, send several reports of a smaller ε each"
            raise ValueError(
                f"epsilon must be from 1/64 to {MOST_EPSILON:g} for scheme 'sphere', got "
                f"{self.epsilon}: {few if is_less else many}"
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
        dimension = check_count("dimension", dimension)
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
        """The guarantee for updates of any dimension; ``guarantee_for`` has the exact ratio."""
        return Guarantee(epsilon=self.epsilon, nominal=self.epsilon, unit="update")

    def guarantee_for(self, dimension: int) -> Guarantee:
        """ε of the integers that updates of this dimension are drawn with."""
        plan = self.plan_for(dimension)
        epsilon = 0.0 if plan is None else plan.epsilon
        return replace(self.guarantee, epsilon=epsilon)

    def expected_error(self, dimension: int, norm: float = 1.0) -> float:
        """E‖h̃ − h‖²/C² of an update of this dimension and of length ``norm``·C.

        The mean over K clients has 1/K of it.

        >>> round(Sphere(epsilon=4.0, clip=1.0).expected_error(1000), 1)
        436.8
        """
        if not (math.isfinite(norm) and 0.0 <= norm <= 1.0):
            raise ValueError(f"norm is in units of clip, from 0 to 1, got {norm!r}")
        plan = self.plan_for(dimension)
        return 0.0 if plan is None else plan.error(norm)

    def bits_for(self, dimension: int) -> int:
        """Bits that one client sends, in all."""
        plan = self.plan_for(dimension)
        return 0 if plan is None else plan.bits

    @property
    def distortion(self) -> float:
        """Per entry of a large update that is zero, in units of C²; see ``expected_error``."""
        return self._plan(_LARGE).error(0.0) / _LARGE

    @property
    def bits_per_entry(self) -> float:
        """Bits per entry of a large update; see ``bits_for``."""
        return self._plan(_LARGE).bits / _LARGE

    # Coding

    def round(self, *, dimension: int, seed: bytes, people: int = MOST_PEOPLE) -> Round:
        """A round of updates of this dimension, whose reports are a few bytes.

        The seed is public: fresh random bytes for every round, ``os.urandom(32)``. ``people``
        bounds the clients' numbers, and with them the server's memory: a bit for each.
        """
        return Round(self, dimension, seed, people)

    @cached_property
    def codec(self) -> SphereCodec:
        return SphereCodec(self)


class SphereCodec(Codec[Sphere]):
    """A body is the index of one codeword."""

    def to_body(
        self, entries: Entries, scales: list[Scale], shared: SharedStream, private: PrivateStream
    ) -> Body:
        plan = self.scheme.plan_for(entries.count)
        if plan is None:
            return Body([], 0, 0, 0)
        inside, is_long = codebook.into_ball(codebook.scale_entries(entries, scales))
        members, counts, cut = codebook.weights(
            codebook.rotate(inside, plan, shared), plan, shared, client=0
        )
        words = private.words64(lane=0, start=0, count=2)
        (index,) = codebook.draw_indices(members, counts, plan, words)
        return Body([codebook.to_bytes(int(index), plan)], 1, int(cut), int(is_long))

    def from_body(
        self, body: memoryview, sizes: tuple[int, ...], scales: list[Scale], shared: SharedStream
    ) -> NDArray[np.float32]:
        self.check_size(len(body), sum(sizes))
        plan = self.scheme.plan_for(sum(sizes))
        if plan is None:
            return np.empty(0, dtype=np.float32)
        total = np.zeros(plan.padded, dtype=np.int64)
        index = codebook.from_bytes(body, plan)
        codebook.add_codewords(np.zeros(1, np.int64), np.array([index]), plan, shared, total)
        with np.errstate(over="ignore"):  # the caller refuses what leaves float32
            return scales[0].undo(codebook.decode_sum(total, plan, shared)).astype(np.float32)

    def check_size(self, body_bytes: int, entries: int) -> None:
        try:
            plan = self.scheme.plan_for(entries)
        except UpdateError as error:
            raise PayloadError(f"no such payload can be decoded: {error}") from error
        expected = 0 if plan is None else codebook.report_bytes(plan)
        if body_bytes != expected:
            raise PayloadError(
                f"an update of {entries} entries takes {expected} bytes; the body has {body_bytes}"
            )

    # One sample: an update of one entry, all with client 0's codebook

    @cached_property
    def _plan_of_one(self) -> SpherePlan:
        plan = self.scheme.plan_for(1)
        if plan is None:
            raise ValueError("an update of one entry has a plan")
        return plan

    @cached_property
    def coder(self) -> Packing:
        return Packing(self._plan_of_one.codewords)

    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        plan = self._plan_of_one
        words = private.words64(lane=0, start=2 * first, count=2 * len(samples)).reshape(-1, 2)
        letters = np.empty(len(samples), dtype=np.int64)
        values, places = np.unique(np.clip(samples[:, 0], -1.0, 1.0), return_inverse=True)
        for number, value in enumerate(values):
            members, counts, _ = codebook.weights(
                codebook.rotate(np.array([value]), plan, shared), plan, shared, client=0
            )
            letters[places == number] = codebook.draw_indices(
                members, counts, plan, words[places == number]
            )
        return Letters(letters, clipped=int(np.count_nonzero(np.abs(samples) > 1.0)))

    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        plan = self._plan_of_one
        values, places = np.unique(letters, return_inverse=True)
        found = np.empty(len(values))
        for number, index in enumerate(values):
            total = np.zeros(plan.padded, dtype=np.int64)
            codebook.add_codewords(np.zeros(1, np.int64), np.array([index]), plan, shared, total)
            found[number] = codebook.decode_sum(total, plan, shared)[0]
        return found[places][:, None]
