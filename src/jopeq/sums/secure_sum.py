"""``sum``: a client's (ε, δ) against a server that learns only the sum of a cohort's integers.

    encode  clip to ‖h‖ ≤ C; rotate; keep k of d coordinates; round each to a grid of 1/256 of a
            step so that ‖Y‖ ≤ B in integers; draw q from the discrete Gaussian about Y/256; mod 2^b
    (sum)   somebody else adds the shares of at least ``threshold`` clients, mod 2^b, under masks
    decode  centre the sum; multiply by the step; divide by the number of clients; rotate back

The noise is the quantizer: no rounding comes before it, so rounding costs no sensitivity.

``jopeq.sums.shares`` has the rotation, ``jopeq.sums.sum_plan`` the plan of a dimension: k, b, σ, B
and the step.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.kernels.device import DeviceEntries, common_device, encode_share, has_kernels
from jopeq.kernels.recipe import Share
from jopeq.noise.gaussian_rounding import GRID, ROUND_LANE
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import PrivateStream, SharedStream, private_stream
from jopeq.sums.shares import (
    MAX_ENTRIES,
    centre,
    check_clients,
    check_dimension,
    check_terms,
    draw_share,
    layers,
    rotate_back,
    shared_stream,
    spec_of,
)
from jopeq.sums.sum_plan import MAX_BITS, SumPlan, errors_of, mu_of, plan_for, room_for
from jopeq.wire.entries import (
    LARGEST,
    READ_CHUNK,
    Entries,
    Limits,
    as_float_array,
    is_short_float,
    lane_sum,
    select_sent,
)
from jopeq.wire.rotation import rotate_block

Array = NDArray[np.float64]

_LOG = logging.getLogger("jopeq")


@dataclass(frozen=True, kw_only=True)
class SecureSum:
    """(ε, δ) for a client against whoever sees only the sum of at least ``threshold`` clients.

    A single share has almost no privacy and decodes to nothing: all rests on the secure sum, which
    ``jopeq.circle`` is one way to take. The proof is in docs/guarantees.md.

    >>> s = SecureSum(epsilon=4.0, delta=1e-5, clip=1.0, clients=10, threshold=8)
    >>> updates = [np.full(1000, 0.01 * i) for i in range(10)]
    >>> seed = bytes(32)  # of the round, known to all
    >>> shares = [s.encode(update, seed=seed) for update in updates]
    >>> total = sum(share.astype(int) for share in shares)  # in secret
    >>> s.decode(total, seed=seed, dimension=1000, clients=10).shape
    (1000,)
    >>> round(s.expected_error(1000) / s.central_error(1000), 2)  # 10/(8 − 1), and 3%
    1.47

    Parameters
    ----------
    epsilon, delta : float
        Privacy asked for, of all that a client sends in ``participations`` rounds.
    clip : float
        Public bound C on the update's Euclidean norm. Longer updates are scaled down.
    clients : int
        How many take part in a round at most.
    threshold : int
        How many must be in a sum at least. Sums of fewer must never be opened.
    colluding : int, default 1
        How many of them may tell the server their shares, or be curious themselves: who subtracts
        the own share from a sum faces less noise. ``threshold − colluding`` shares carry the noise,
        at least 2.
    participations : int, default 1
        In how many rounds one client takes part at most.
    bits : int, optional
        b, of an entry of a share. By default the plan of least payload whose error is within 5% of
        the central Gaussian's, with as much noise as the missing and colluding leave over. Fewer
        bits let sums wrap around: ``plan(d).price`` says what that costs, and where it costs more
        than half of the noise they are refused.
    kept : float, optional
        Share of the turned coordinates that is sent, above 0 and at most 1. By default as above.
    largest_mean : float, default 1.0
        How long the mean of the updates is at most, in units of C: above 0 and at most 1. At 1 the
        sum always fits. Updates of clients point in different directions, so their mean is
        shorter, and a smaller ``largest_mean`` needs fewer bits. Where the mean is longer,
        entries of the sum wrap around and are off by 2^bits steps: the mean is then wrong,
        (ε, δ) holds all the same.
    neighbours : {"zeroed", "replaced"}
        What ε compares: the client's update against none (zero), or against any other update.
    """

    name: ClassVar[str] = "sum"

    epsilon: float
    delta: float = 1e-5
    clip: float
    clients: int
    threshold: int
    colluding: int = 1
    participations: int = 1
    bits: int | None = None
    kept: float | None = None
    largest_mean: float = 1.0
    neighbours: Literal["zeroed", "replaced"] = "zeroed"

    def __post_init__(self) -> None:
        check_terms(self, MAX_BITS)
        if not 1 <= self.participations <= MAX_ENTRIES:
            raise ValueError(
                f"participations must be from 1 to {MAX_ENTRIES}, got {self.participations}"
            )
        if self.kept is not None and not 0.0 < self.kept <= 1.0:
            raise ValueError(f"kept must be above 0 and at most 1, got {self.kept}")
        if self.neighbours not in ("zeroed", "replaced"):
            raise ValueError(f"neighbours must be 'zeroed' or 'replaced', got {self.neighbours!r}")

    # Figures

    @property
    def honest(self) -> int:
        """h: shares whose noise the server surely does not know."""
        return self.threshold - self.colluding

    @property
    def guarantee(self) -> Guarantee:
        """What holds for updates of any dimension; ``plan`` has the exact ε of each."""
        other = "no contribution" if self.neighbours == "zeroed" else "any other update"
        opened = (
            f"if no sum of fewer than {self.threshold} clients is opened, at most "
            f"{self.colluding} of whom, other participants included, collude, and nothing but sums "
            "is"
        )
        rounds = "1 round" if self.participations == 1 else f"{self.participations} rounds"
        return Guarantee(
            epsilon=self.epsilon,
            nominal=self.epsilon,
            delta=self.delta,
            unit="client",
            adversary="sum",
            assumptions=(f"a client's updates in at most {rounds} compared with {other}", opened),
        )

    @cached_property
    def spec(self) -> str:
        """Name and parameters that are not defaults, as JSON."""
        return spec_of(self)

    def spec_for(self, dimension: int) -> str:
        """``spec`` for updates of one dimension, which the noise of a share depends on too.

        All who make shares of a sum must agree on it.
        """
        return f"{self.spec} of {dimension} entries"

    def plan(self, dimension: int) -> SumPlan:
        """What both ends use for updates of this dimension.

        >>> s = SecureSum(epsilon=4.0, delta=1e-5, clip=1.0, clients=100, threshold=67, bits=8)
        >>> plan = s.plan(100_000)
        >>> plan.kept, plan.bits, plan.sigma, plan.wrap < 1e-5, plan.epsilon <= 4.0
        (77110, 8, 2.578125, True, True)
        """
        return plan_for(self, check_dimension(dimension))

    def bits_for(self, dimension: int) -> int:
        """Bits of one share."""
        return self.plan(dimension).payload_bits

    def expected_error(
        self, dimension: int, *, norm: float | None = None, clients: int | None = None
    ) -> float:
        """E‖decoded − mean‖²/C², where the mean of the updates has length ``norm``·C.

        ``norm`` is by default ``largest_mean``; ``clients`` is how many took part, by default all.
        """
        plan, count = self.plan(dimension), check_clients(self, clients)
        norm = self.largest_mean if norm is None else norm
        if not 0.0 <= norm <= 1.0:
            raise ValueError(f"norm is in units of clip, from 0 to 1, got {norm!r}")
        integers = (plan.kept, plan.sigma, plan.bound, plan.bits)
        return float(errors_of(dimension, *integers, norm, count).total)

    def central_error(self, dimension: int, *, clients: int | None = None) -> float:
        """That of a trusted server that adds Gaussian noise of the same (ε, δ) to the sum."""
        check_dimension(dimension)
        return dimension / (check_clients(self, clients) * mu_of(self)) ** 2

    # Coding

    def encode(
        self, update: Any, *, seed: bytes, noise: PrivateStream | None = None
    ) -> NDArray[Any]:
        """The share of an update or a state: ``plan(d).kept`` integers below 2^bits.

        ``seed`` (32 bytes) is the round's, public and the same for all clients. ``noise`` is for
        tests. Whatever the floats are, a share comes: NaN counts as 0, ±inf and what float32 cannot
        hold as ±C. Send the share only under a mask.
        """
        names, values = select_sent(update) if isinstance(update, Mapping) else (("",), (update,))
        shared, private = shared_stream(seed), private_stream(noise)
        device = common_device(values)
        entries: Entries | DeviceEntries
        if device is not None and has_kernels(device) and all(map(is_short_float, values)):
            entries = DeviceEntries(names, values)
        else:
            entries = Entries(names, tuple(map(as_float_array, values, names)))
        if not entries.count:
            return np.empty(0, dtype=np.uint8)
        plan = self.plan(entries.count)
        with np.errstate(all="ignore"):  # an error would tell about the entries
            share = self.recipe(plan, shared)
            if isinstance(entries, DeviceEntries):
                found, is_done, invalid = encode_share(share, entries.tensors, shared, private)
            else:
                found, is_done, invalid = _encode(share, entries, shared, private)
            if invalid:
                _LOG.warning("%d entries were NaN or too large, and were replaced", invalid)
            if is_done:
                return found
            places = within(place(found, plan.bound, private), plan.bound)
            return draw_share(plan, places, private)

    def recipe(self, plan: SumPlan, shared: SharedStream) -> Share:
        """What kernels need for a share in the round of that seed."""
        return Share(
            law=plan.law,
            bound=plan.bound,
            bits=plan.bits,
            clip=self.clip,
            scale=GRID / plan.step,
            room=math.sqrt(room_for(plan.kept, plan.bound)),
            layers=layers(plan.dimension),
            chosen=plan.choose(shared),
        )

    def decode(
        self, total: Any, *, seed: bytes, dimension: int, clients: int
    ) -> NDArray[np.float32]:
        """The mean update of the ``clients`` whose shares ``total`` is the sum of, mod 2^bits."""
        count = check_clients(self, clients)
        shared = shared_stream(seed)
        if dimension == 0 and np.size(total) == 0:
            return np.empty(0, dtype=np.float32)
        plan = self.plan(dimension)
        values = centre(total, plan.bits, plan.kept, dimension) * (plan.step / count)
        chosen = plan.choose(shared)
        if chosen is not None:
            turned = np.zeros(dimension)
            np.add.at(turned, chosen, values * (dimension / plan.kept))
            values = turned
        rotate_back(values, shared)
        return values.astype(np.float32)


# The plain path


def _encode(
    share: Share, entries: Entries, shared: SharedStream, private: PrivateStream
) -> tuple[NDArray[Any], bool, int]:
    """As ``encode_share``: the share where kernels draw it, else the turned coordinates."""
    kernels.note(entries.count)
    is_compiled = kernels.are_loaded()
    turned = kernels.rotate_entries if is_compiled else _turn
    flat = turned(share, entries, shared)
    if share.chosen is not None:
        flat = flat[share.chosen]
        flat *= share.second_factor(_energy(flat, is_compiled))
    if is_compiled:
        found = kernels.draw_share(flat, share.law, share.bound, share.bits, private)
        if found is not None:
            return found, True, entries.invalid
    return flat, False, entries.invalid


def _turn(share: Share, entries: Entries, shared: SharedStream) -> Array:
    """As ``kernels.rotate_entries``: the entries clipped, scaled and turned."""
    entries.screen(Limits(LARGEST, share.clip))
    pieces = [piece for _, piece in entries.read(0, entries.count)]
    flat = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)  # copies either way
    flat *= share.factor(_energy(flat, is_compiled=False))
    for first, last, start in share.layers:
        flat[first:last] = rotate_block(flat[first:last], start, shared)
    return flat


def _energy(flat: Array, is_compiled: bool) -> float:
    """‖flat‖², added up in the one order."""
    if is_compiled:
        return math.fsum(kernels.chunk_sums(flat, 0.0))
    starts = range(0, len(flat), READ_CHUNK)
    return math.fsum(lane_sum(np.square(flat[start : start + READ_CHUNK])) for start in starts)


def place(values: Array, bound: int, private: PrivateStream) -> NDArray[np.int64]:
    """⌊v + (byte + ½)/256⌋ within ±bound: unbiased rounding to the grid, by private bytes."""
    bytes_ = private.read(lane=ROUND_LANE, start=0, count=len(values))
    places = np.floor(values + (bytes_ + 0.5) * (1.0 / 256.0))
    return np.clip(places, -float(bound), float(bound)).astype(np.int64)


def within(places: NDArray[np.int64], bound: int) -> NDArray[np.int64]:
    """Places with Σ Y² ≤ B², in integers: the guarantee rests on this.

    Where the sum is too large, places move towards 0 by one, from the first on, until it is not.
    """
    while True:
        chunks = range(0, len(places), READ_CHUNK)
        squares = (np.square(places[start : start + READ_CHUNK]).sum() for start in chunks)
        excess = sum(map(int, squares)) - bound * bound
        if excess <= 0:
            return places
        gained = np.cumsum(np.maximum(2 * np.abs(places) - 1, 0))
        moved = int(np.searchsorted(gained, excess)) + 1
        places[:moved] -= np.sign(places[:moved])
