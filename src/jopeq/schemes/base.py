"""What every scheme offers, and the walk from update to payload and back that all schemes share.

A scheme says how one chunk of scaled samples becomes letters and how letters become samples.
Scaling, chunking, seeds, packing and checks happen here, once.
"""

from __future__ import annotations

import json
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.channel.channel import Channel
from jopeq.errors import PayloadError
from jopeq.kernels.device import DeviceEntries, can_code, common_device, decode_body, tensor_of
from jopeq.kernels.recipe import Recipe
from jopeq.lattice.codebook import Codebook
from jopeq.lattice.lattices import Lattice
from jopeq.noise import Law
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import (
    NONCE_BYTES,
    SEED_BYTES,
    PrivateStream,
    SharedStream,
    describe_secret,
    fresh_seed,
    private_stream,
)
from jopeq.schemes.opened import Opened
from jopeq.schemes.parameters import as_annotated, inherit_parameter_docs, to_json
from jopeq.wire.coders import Coder
from jopeq.wire.entries import Entries, Limits, as_float_array, is_short_float, sent
from jopeq.wire.payload import MAX_TENSORS, Envelope, Header, open_payload, seal
from jopeq.wire.samples import SampleReader, SampleWriter
from jopeq.wire.scaling import Scale, Scaling, is_statistic

Array = NDArray[np.float64]
OnInvalid = Literal["replace", "raise"]

MORE_TENSORS = 16  # than expected are still read, so that the error can name one
_LOG = logging.getLogger("jopeq")


@dataclass(frozen=True)
class Statistics:
    """What happened to one update on its way to bytes."""

    entries: int
    samples: int
    clipped: int  # samples moved into the unit ball
    overloaded: int  # samples beyond the codebook, sent as its nearest letter
    payload_bytes: int
    body_bytes: int
    invalid: int = 0  # entries that were NaN, infinite or too large, and were replaced

    @property
    def bits_per_entry(self) -> float:
        """Measured, header aside."""
        return 8.0 * self.body_bytes / self.entries if self.entries else 0.0


def warn_of_invalid(counted: Statistics) -> None:
    """Say on this client how many entries were replaced."""
    if counted.invalid:
        _LOG.warning(
            "%d of %d entries of an update were NaN, infinite or too large and were replaced",
            counted.invalid,
            counted.entries,
        )


class Letters(NamedTuple):
    """The letters of one chunk of samples, and how many samples were out of bounds."""

    values: NDArray[Any]
    clipped: int = 0
    overloaded: int = 0


class Body(NamedTuple):
    """The coded samples of one update, and how many samples were out of bounds."""

    parts: list[bytes]
    samples: int
    clipped: int
    overloaded: int


@dataclass(frozen=True, kw_only=True)
class Scheme(ABC):
    """Encode, decode, guarantee. Immutable, hashable, picklable, safe to share among threads.

    Parameters
    ----------
    clip : float, optional
        Public bound on the Euclidean norm of a sample of L entries. Without ``clip`` the paper's
        norm scaling applies: one scaled unit is ``spread``·‖h‖/√M for M samples, and the norm
        travels in the clear. ``scheme(…, clip="layers")`` is per="layers" with a clip to start
        from.
    spread : float, default 3.0
        Width of the norm scaling. Ignored where ``clip`` is given.
    per : {"update", "tensor", "layers"}, default "update"
        Whether the whole update has one scale, or each tensor of a state its own. "layers" gives
        each tensor a public clip: ``clip`` until ``with_clips`` sets others (``LayerClips``).
    center : bool, default False
        Subtract the mean before scaling. The mean travels in the clear.
    rotate : bool, default False
        Turn the scaled update by a random Hadamard transform that the seed determines, so that its
        entries look Gaussian whatever the update is.
    statistics : {"sent", "local"}, default "sent"
        Whether a state's running means and variances of normalisation layers are part of its
        update, at a public clip of 1 in the coordinates of ``jopeq.state_update``, or stay where
        they are.
    """

    name: ClassVar[str]
    is_private: ClassVar[bool] = True  # whether the scheme names an ε; encoding is then total
    is_scaled: ClassVar[bool] = True
    has_dither: ClassVar[bool] = True
    is_subtractive: ClassVar[bool] = True  # whether the decoder subtracts the dither
    is_whole: ClassVar[bool] = False  # whether all tensors are one sample, with one scale

    clip: float | None = None
    spread: float = 3.0
    per: Literal["update", "tensor", "layers"] = "update"
    center: bool = False
    rotate: bool = False
    statistics: Literal["sent", "local"] = "sent"
    clips: tuple[tuple[str, float], ...] = field(default=(), init=False)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        inherit_parameter_docs(cls)

    def __post_init__(self) -> None:
        if self.rotate and self.per != "update":
            raise ValueError("rotate=True mixes all tensors, so it needs per='update'")
        if self.statistics not in ("sent", "local"):
            raise ValueError(f"statistics must be 'sent' or 'local', got {self.statistics!r}")
        for each in fields(self):  # so that 4 and 4.0 make equal schemes with equal specs
            if each.init:
                value = as_annotated(each.name, str(each.type), getattr(self, each.name))
                object.__setattr__(self, each.name, value)
        self.scaling  # noqa: B018 (validates its parameters)

    # What each scheme defines

    @property
    def dimension(self) -> int:
        """L: entries in one sample."""
        return 1

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What is proven of one sample, against the server."""

    @property
    @abstractmethod
    def distortion(self) -> float:
        """Mean squared error per entry in scaled units, at the centre of the ball."""

    @property
    @abstractmethod
    def bits_per_entry(self) -> float:
        """What the body of a payload spends per entry."""

    @property
    @abstractmethod
    def coder(self) -> Coder:
        """How letters become the bytes of a body."""

    @abstractmethod
    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        """The letters of scaled samples (count, L), the first of which is sample ``first``."""

    @abstractmethod
    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        """The scaled samples (count, L) that the server decodes from letters."""

    # What a scheme may define

    @property
    def noise(self) -> Law | None:
        """The law of the noise that is added to a sample; None where none is added."""
        return None

    @property
    def cells(self) -> Lattice | None:
        """The lattice that noisy samples are rounded to, at its final magnification."""
        return None

    @property
    def codebook(self) -> Codebook | None:
        """The lattice points that a letter can name."""
        return None

    @property
    def finite_channel(self) -> Channel | None:
        """The channel with integer probabilities that draws each letter."""
        return None

    @property
    def recipe(self) -> Recipe | None:
        """What fused kernels need; None when only the plain path can code this scheme."""
        return None

    @property
    def is_bounded(self) -> bool:
        """Whether samples outside the unit ball are brought inside, so that the spread matters."""
        return True

    def guarantee_for(self, dimension: int) -> Guarantee:
        """What is proven of a whole update of ``dimension`` entries, against the server."""
        return self.guarantee.for_update(dimension)

    def cost(self, sizes: Mapping[str, int]) -> Guarantee:
        """What one payload of tensors with these numbers of entries costs, against the server.

        >>> from jopeq import scheme
        >>> sizes = {"weight": 200, "bias": 10}
        >>> scheme("laplace", epsilon=4.0, clip=0.1).cost(sizes).epsilon
        840.0
        """
        cost = self.guarantee
        entries = sum(size for name, size in sizes.items() if self.sends(name))
        return cost.for_update(entries) if cost.unit == "sample" else cost

    def sends(self, name: str) -> bool:
        """Whether a tensor of this name is part of payloads: all but statistics that stay local."""
        return self.statistics == "sent" or not is_statistic(name)

    def with_clips(self, clips: Mapping[str, float]) -> Self:
        """The scheme with a public clip for each tensor, where ``per="layers"``.

        Both ends set the same clips before an update is looked at. A payload with any other clips
        is refused.

        >>> from jopeq import scheme
        >>> scheme("response", epsilon=4.0, rate=2.0, clip="layers").with_clips({"w": 0.5}).clips
        (('w', 0.5),)
        """
        if self.per != "layers":
            raise ValueError(f"with_clips needs per='layers', this scheme has per={self.per!r}")
        bound = replace(self)
        rounded = tuple((name, float(np.float32(clip))) for name, clip in clips.items())
        object.__setattr__(bound, "clips", rounded)
        del bound.__dict__["scaling"]
        bound.scaling  # noqa: B018 (validates the clips)
        return bound

    def distortion_for(self, sigma: float) -> float:
        """The mean of ``distortion`` over Gaussian entries of standard deviation σ, clipped."""
        return self.distortion

    def errors_at(self, norms: Array) -> tuple[Array, Array] | None:
        """(Mean error outwards, mean squared error per entry) of samples with these norms, up to 1.

        None where the mean error is 0 everywhere: ``distortion_for`` then says all.
        """
        return None

    def bias(self) -> float:
        """E[decoded] − x at the edge of the ball, outwards: exact on Z, over fixed draws else."""
        return 0.0

    def log_channel(self, dither: float, inputs: Array) -> Array | None:
        """log P(letter | x) for scalar inputs x (rows), given the dither in units of the step.

        None where the letters cannot be listed.
        """
        return None

    def explanation(self, epsilon: float) -> str:
        """One sentence on why one sample has this ε against the server."""
        if math.isinf(epsilon):
            return "Nothing is added and nothing is randomized: some outputs exclude some inputs."
        return (
            "Each letter's probability is a ratio of integers that changes by at most e^ε "
            "between inputs, whatever the dither, so what was asked for is what holds."
        )

    # What all share

    @property
    def is_seeded(self) -> bool:
        """Whether encoder and decoder share random bits, for a dither or a rotation."""
        return self.has_dither or self.rotate

    @cached_property
    def scaling(self) -> Scaling:
        """How entries are scaled, and what the scale sends along."""
        return Scaling(self.clip, self.spread, self.per, self.center, dict(self.clips))

    @cached_property
    def spec(self) -> str:
        """Name and parameters that are not defaults, as JSON: the scheme as a payload names it."""
        changed = {
            each.name: to_json(getattr(self, each.name))
            for each in fields(self)
            if getattr(self, each.name) != each.default and each.name != "clips"
        }
        return json.dumps([self.name, changed], separators=(",", ":"), sort_keys=True)

    @overload
    def encode(
        self,
        update: Any,
        *,
        seed: bytes | None = None,
        key: bytes | None = None,
        noise: PrivateStream | None = None,
        on_invalid: OnInvalid | None = None,
        statistics: Literal[False] = False,
    ) -> bytes: ...

    @overload
    def encode(
        self,
        update: Any,
        *,
        seed: bytes | None = None,
        key: bytes | None = None,
        noise: PrivateStream | None = None,
        on_invalid: OnInvalid | None = None,
        statistics: Literal[True],
    ) -> tuple[bytes, Statistics]: ...

    def encode(
        self,
        update: Any,
        *,
        seed: bytes | None = None,
        key: bytes | None = None,
        noise: PrivateStream | None = None,
        on_invalid: OnInvalid | None = None,
        statistics: bool = False,
    ) -> bytes | tuple[bytes, Statistics]:
        """The payload of an update or a state.

        An update is a float array or tensor of any shape. A state is a mapping of them, such as a
        ``state_dict`` difference, of which integer and boolean arrays are not sent.

        ``key`` (32 bytes, agreed once) hides the dither from everyone else; without it the payload
        carries its own fresh seed. ``seed`` fixes that seed (or the nonce) and ``noise`` the noise:
        for tests only, since randomness that repeats is not private.

        A scheme that names an ε encodes whatever the floats are, since a refusal would tell about
        them: NaN counts as 0, ±inf and too large entries as ±``clip``, or with norm scaling as ± a
        fixed bound (``Scaling.limits``). Such entries are logged here and counted in
        ``Statistics.invalid``. ``on_invalid="raise"`` raises ``UpdateError`` instead, for trusted
        use within one process; it is the default of the schemes without ε.

        >>> from jopeq import scheme
        >>> private = scheme("response", epsilon=4.0, rate=2.0, clip=0.5)
        >>> private.encode(np.array([np.nan, 0.1]), statistics=True)[1].invalid
        1
        """
        limits = self.limits(on_invalid)
        entries = update if isinstance(update, (Entries, DeviceEntries)) else self.entries(update)
        payload, counted = self._encode(entries, seed, key, noise, limits)
        return (payload, counted) if statistics else payload

    def limits(self, on_invalid: OnInvalid | None = None) -> Limits | None:
        """What replaces invalid entries; None when they are to be refused."""
        if on_invalid not in (None, "replace", "raise"):
            raise ValueError(f"on_invalid must be 'replace' or 'raise', got {on_invalid!r}")
        if on_invalid == "raise" or (on_invalid is None and not self.is_private):
            return None
        return self._limits

    @cached_property
    def _limits(self) -> Limits:
        return self.scaling.limits(self.dimension) if self.is_scaled else Limits()

    def entries(self, update: Any) -> Entries | DeviceEntries:
        """An update or a state as ``encode`` reads it: its layout is known, no value is read yet.

        ``encode`` takes the result in place of the update.
        """
        names: tuple[str, ...] = ("",)
        values: tuple[Any, ...] = (update,)
        if isinstance(update, Mapping):
            names, values = sent({n: value for n, value in update.items() if self.sends(n)})
        device = common_device(values)
        if (
            device is not None
            and all(map(is_short_float, values))
            and self.device_recipe(device) is not None
        ):
            return DeviceEntries(names, values)
        return Entries(names, tuple(map(as_float_array, values, names)))

    @overload
    def decode(
        self, payload: bytes, *, like: None = None, key: bytes | None = None, device: None = None
    ) -> NDArray[np.float32]: ...

    @overload
    def decode(
        self, payload: bytes, *, like: Mapping[str, Any], key: bytes | None = None
    ) -> dict[str, Any]: ...

    @overload
    def decode(
        self, payload: bytes, *, like: Any = None, key: bytes | None = None, device: Any = None
    ) -> Any: ...

    def decode(
        self, payload: bytes, *, like: Any = None, key: bytes | None = None, device: Any = None
    ) -> Any:
        """The update or the state in a payload; raises ``PayloadError``.

        ``like`` is an update or a state with the layout that you expect. The result has its names,
        shapes, types and devices; integer and boolean arrays of a state are 0, since no update
        changes them. Any other layout raises ``StateMismatchError`` before the body is decoded.

        Without ``like`` the payload must hold a single update and chooses its shape: the result is
        a float32 array, or a torch tensor on ``device``. Entropy coding puts hundreds of entries
        into a byte, so give ``like`` where you do not trust the sender. A payload that is sent
        again decodes again.

        >>> from jopeq import scheme
        >>> state = {"weight": np.ones((2, 3), np.float32)}
        >>> scheme("none").decode(scheme("none").encode(state), like=state)["weight"].shape
        (2, 3)
        """
        if like is None:
            opened = self.open(payload, key=key, most_tensors=1)
            if opened.header.names != ("",):
                raise PayloadError(
                    "this payload holds a state of named tensors: give like=, or use "
                    "jopeq.decode_state"
                )
            return opened.decode(device).reshape(opened.header.shapes[0])
        if device is not None:
            raise ValueError("like says on which device the result lies: drop device")
        state = like if isinstance(like, Mapping) else {"": like}
        opened = self.open(payload, key=key, most_tensors=len(state) + MORE_TENSORS)
        result = opened.decode_like(state)
        return result if isinstance(like, Mapping) else result[""]

    def open(
        self, payload: bytes, *, key: bytes | None = None, most_tensors: int = MAX_TENSORS
    ) -> Opened:
        """Verify a payload and read its header, without decoding; raises ``PayloadError``.

        ``most_tensors`` is how many you expect. The checksum, and the tag where ``key`` is given,
        are verified before anything is read. The tag does not detect replay: a recorded payload
        that somebody sends again is accepted again. Every keyed payload has its own nonce,
        ``header.seed``: remember those you accepted and refuse their copies, or change the key
        every round.

        >>> from jopeq import scheme
        >>> opened = scheme("sdq", rate=2.0).open(scheme("sdq", rate=2.0).encode(np.ones((2, 3))))
        >>> opened.header.shapes, len(opened.header.seed), opened.decode().shape
        (((2, 3),), 32, (6,))
        """
        header, body = open_payload(payload, key, most_tensors=most_tensors)
        scales = self.scales_of(header)
        return Opened(self, header, body, scales, header.shared_stream(key))

    def _encode(
        self,
        entries: Entries | DeviceEntries,
        seed: bytes | None,
        key: bytes | None,
        noise: PrivateStream | None,
        limits: Limits | None,
    ) -> tuple[bytes, Statistics]:
        # An app may have called np.seterr(all="raise"): an error would tell about the entries.
        with np.errstate(all="ignore"):
            are_apart = self.scales_apart(entries.names)
            sent, scales = self.measured(entries, limits, are_apart)
            kinds = self.is_scaled and self.center, are_apart
            layout = entries.names, entries.shapes
            header = Header(self.spec, *layout, self.seed(seed, key), key is not None, sent, *kinds)
            streams = header.shared_stream(key), private_stream(noise)
            if isinstance(entries, Entries) and (recipe := self.kernel_recipe(entries.count)):
                samples = self.samples_of(entries.count)
                size = kernels.body_bytes(recipe, samples)
                envelope = Envelope(header.to_bytes(), size, key)  # the kernels write into it
                counts = kernels.encode_body(recipe, entries, scales, *streams, envelope.body)
                body, payload = Body([], samples, *counts), envelope.seal()
            else:
                body = self.coded(entries, scales, *streams, limits)
                size, payload = sum(map(len, body.parts)), seal(header.to_bytes(), body.parts, key)
        counted = Statistics(entries.count, *body[1:], len(payload), size, entries.invalid)
        warn_of_invalid(counted)
        return payload, counted

    def measured(
        self, entries: Entries | DeviceEntries, limits: Limits | None, are_apart: bool
    ) -> tuple[tuple[Scale, ...], list[Scale]]:
        """The scales that a header carries, and the scale of each tensor, or the only one."""
        scaling = self.scaling if self.is_scaled else None
        found = kernels.measured(entries, scaling, self.dimension, limits)
        sent = tuple(found) if scaling is not None and scaling.is_sent() else ()
        return sent, self.scaling.of_tensors(entries.names, found) if are_apart else found

    def coded(
        self,
        entries: Entries | DeviceEntries,
        scales: list[Scale],
        shared: SharedStream,
        private: PrivateStream,
        limits: Limits | None,
        recipe: Recipe | None = None,
    ) -> Body:
        """The coded samples: by compiled kernels where their ``recipe`` is given."""
        samples = self.samples_of(entries.count)
        if isinstance(entries, DeviceEntries):
            on_device = self.device_recipe(entries.device)
            if on_device is None:
                raise TypeError(f"scheme {self.name!r} cannot be coded on {entries.device}")
            coded, clipped, over = entries.encode(on_device, scales, shared, private, limits)
            return Body([coded], samples, clipped, over)
        if recipe is None:
            return self.to_body(entries, scales, shared, private)
        out = np.empty(kernels.body_bytes(recipe, samples), np.uint8)
        counts = kernels.encode_body(recipe, entries, scales, shared, private, out)
        return Body([out.tobytes()], samples, *counts)

    def kernel_recipe(self, entries: int) -> Recipe | None:
        """The recipe, when compiled kernels are to code that many entries on the CPU."""
        if self.rotate or not entries or not kernels.are_used(entries):
            return None
        return self.recipe

    def device_recipe(self, device: Any) -> Recipe | None:
        """The recipe, when GPU kernels can code this scheme on the device."""
        return None if self.rotate or not can_code(self.recipe, device) else self.recipe

    def to_body(
        self, entries: Entries, scales: list[Scale], shared: SharedStream, private: PrivateStream
    ) -> Body:
        """The walk over all samples; a scheme that codes the update as a whole replaces it."""
        reader = SampleReader(entries, scales, shared if self.rotate else None)
        samples = self.samples_of(entries.count)
        coder, parts, clipped, overloaded = self.coder, [], 0, 0
        for first in range(0, samples, coder.chunk):
            last = min(first + coder.chunk, samples)
            chunk = reader.read(first, last, self.dimension)
            letters = self.to_letters(chunk, first, shared, private)
            parts.append(coder.encode(letters.values))
            clipped += letters.clipped
            overloaded += letters.overloaded
        return Body(parts, samples, clipped, overloaded)

    def seed(self, seed: bytes | None, key: bytes | None) -> bytes:
        length = SEED_BYTES if key is None else NONCE_BYTES
        if not self.is_seeded:
            if seed is not None or key is not None:
                raise ValueError(f"scheme {self.name!r} shares no randomness: drop seed and key")
            return b""
        if seed is None:
            return fresh_seed(length)
        if not isinstance(seed, bytes) or len(seed) != length:
            kind = "seed" if key is None else "seed (a nonce when a key is given)"
            raise ValueError(f"{kind} must be {length} bytes, got {describe_secret(seed)}")
        return seed

    def samples_of(self, entries: int) -> int:
        """How many samples so many entries make."""
        return -(-entries // self.dimension)

    def dither_words(self, first: int, count: int, shared: SharedStream) -> NDArray[np.uint16]:
        """The shared words (count, L) that the dither of samples ``first``… is made of."""
        size = self.dimension
        words = shared.words16(lane=0, start=first * size, count=count * size)
        return words.reshape(count, size)

    def scales_sent(self, names: tuple[str, ...]) -> int:
        """How many scales a header of these tensors carries."""
        return self.scaling.count(names) if self.is_scaled and self.scaling.is_sent() else 0

    def scales_apart(self, names: tuple[str, ...]) -> bool:
        """Whether some of these tensors are running statistics with a scale of their own."""
        may_differ = self.is_scaled and not self.is_whole and self.per != "layers"
        return may_differ and any(map(is_statistic, names))

    def entries_of(
        self,
        body: memoryview,
        sizes: tuple[int, ...],
        scales: list[Scale],
        shared: SharedStream,
        device: Any = None,
    ) -> Any:
        """All entries of a body, each finite: a float32 array, or a tensor on ``device``."""
        if device is not None:
            recipe = self.device_recipe(device)
            if recipe is not None:
                return decode_body(recipe, body, sizes, scales, shared, device)
            return tensor_of(self.entries_of(body, sizes, scales, shared), device)
        recipe = self.kernel_recipe(sum(sizes))
        if recipe is not None:
            self.check_size(len(body), sum(sizes))
            return kernels.decode_body(recipe, body, sizes, scales, shared)
        flat = self.from_body(body, sizes, scales, shared)
        if not np.isfinite((flat.min(initial=0.0), flat.max(initial=0.0))).all():
            raise PayloadError("the payload holds numbers too large for float32")
        return flat

    def from_body(
        self,
        body: memoryview,
        sizes: tuple[int, ...],
        scales: list[Scale],
        shared: SharedStream,
    ) -> NDArray[np.float32]:
        """All entries of a body that ``to_body`` wrote."""
        self.check_size(len(body), sum(sizes))
        samples = self.samples_of(sum(sizes))
        coder = self.coder
        writer = SampleWriter(sizes, scales, shared if self.rotate else None)
        position = 0
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what leaves float32
            for first in range(0, samples, coder.chunk):
                last = min(first + coder.chunk, samples)
                letters, position = coder.decode(body, position, last - first)
                writer.write(first, self.to_samples(letters, first, shared))
            flat = writer.finish()
        if position != len(body):
            raise PayloadError(f"{len(body) - position} bytes follow the last sample")
        return flat

    def check_size(self, body_bytes: int, entries: int) -> None:
        """Raise ``PayloadError`` unless a body of so many bytes can hold so many entries."""
        self.coder.check(body_bytes, self.samples_of(entries))

    def check_header(self, header: Header) -> None:
        """Raise ``PayloadError`` unless this scheme writes headers of this kind."""
        if header.scheme != self.spec:
            raise PayloadError(
                f"the payload was made by scheme {header.scheme!r:.200}, this decoder is "
                f"{self.spec}"
            )
        if (
            bool(header.seed) != self.is_seeded
            or len(header.scales) != self.scales_sent(header.names)
            or header.is_centered != (self.is_scaled and self.center)
            or header.has_statistics != self.scales_apart(header.names)
        ):
            raise PayloadError("the header's seed or scales are not those of its scheme")

    def scales_of(self, header: Header) -> list[Scale]:
        """The scale of each of the header's tensors, or the only one; raises ``PayloadError``."""
        self.check_header(header)
        if not self.is_scaled:
            return []
        scales = list(header.scales)
        if self.clip is not None:
            scales = self.scaling.public(header.names)
            if self.scaling.is_sent() and tuple(scales) != header.scales:
                raise PayloadError("the payload's clips are not those that both ends agreed on")
        are_apart = header.has_statistics
        return self.scaling.of_tensors(header.names, scales) if are_apart else scales
