"""What all schemes share: parameters, the walk from update to payload and back.

A scheme says how one chunk of scaled samples becomes symbols and symbols become samples; scaling,
chunking, seeds, packing and checks happen here, once.
"""

from __future__ import annotations

import json
import logging
import numbers
import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, overload

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.errors import PayloadError
from jopeq.kernels.device import DeviceEntries, can_code, common_device, decode_body, tensor_of
from jopeq.kernels.recipe import Recipe
from jopeq.lattice.lattices import Lattice
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.portable import squares
from jopeq.random.streams import (
    NONCE_BYTES,
    SEED_BYTES,
    PrivateStream,
    SharedStream,
    describe_secret,
    fresh_seed,
    private_stream,
)
from jopeq.wire.coders import Coder
from jopeq.wire.entries import Entries, Limits, as_float_array, is_short_float
from jopeq.wire.payload import MAX_TENSORS, Envelope, Header, open_payload, seal
from jopeq.wire.samples import SampleReader, SampleWriter
from jopeq.wire.scaling import Scale, Scaling

# A scheme's parameters in the one form its specification has, whatever type they came as


def normal(name: str, kind: str, value: Any) -> Any:
    """``value`` as the plain bool, int or float that its annotation ``kind`` asks for."""
    if value is None and "None" in kind:
        return None
    if kind == "bool":
        if not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{name} must be True or False, got {value!r}")
        return bool(value)
    if "int" in kind:
        return _whole(name, value)
    return _real(name, value) if "float" in kind else value


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None


def _real(name: str, value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large, got {value!r:.20}…") from None


def plain(value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, Lattice):
        return value.name if value.generator is None else value.generator
    return value


# What all schemes share: parameters, the walk from update to payload and back


Array = NDArray[np.float64]

OnInvalid = Literal["replace", "raise"]

_LOG = logging.getLogger("jopeq")
_IS_STATE = "this payload holds a state of named tensors: use jopeq.decode_state"
_NOTHING_SHARED = SharedStream(bytes(SEED_BYTES))  # stands in where no shared bit is read


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


@dataclass(frozen=True)
class Symbols:
    """The symbols of one chunk of samples, and how many of them were out of bounds."""

    values: NDArray[Any]
    clipped: int = 0
    overloaded: int = 0


@dataclass(frozen=True)
class Body:
    """The coded samples of one update, and how many of them were out of bounds."""

    parts: list[bytes]
    samples: int
    clipped: int
    overloaded: int


@dataclass(frozen=True)
class Opened:
    """A payload that was verified and whose header was read, once; its body is not decoded yet.

    ``Scheme.open`` makes it. ``header`` says what the body claims to hold: compare it with what you
    expect before you decode, since a body may name far more entries than it has bytes.
    """

    scheme: Scheme
    header: Header
    body: memoryview
    scales: list[Scale]
    shared: SharedStream

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Entries of each tensor."""
        return self.header.sizes

    def check_size(self) -> None:
        """Raise ``PayloadError`` unless the body is as long as that many entries can take."""
        self.scheme._check_size(len(self.body), sum(self.sizes))

    def decode(self, device: Any = None) -> Any:
        """All entries in one row: a float32 array, or a tensor on ``device``."""
        scheme = self.scheme
        parts = (self.body, self.sizes, self.scales, self.shared)
        if device is None:
            return scheme._entries_of(*parts)
        if not scheme.rotate and can_code(scheme._recipe):
            return decode_body(scheme._known_recipe, *parts, device)
        return tensor_of(scheme._entries_of(*parts), device)


@dataclass(frozen=True, kw_only=True)
class Scheme(ABC):
    """Encode, decode, guarantee. Immutable, hashable, picklable, safe to share among threads.

    Scaling: ``clip`` is a public bound on a sample's norm; without it the paper's norm scaling
    applies, one unit being ``spread``·‖h‖/√M, per "update" or per "tensor", after removing the mean
    when ``center`` is set. ``rotate`` turns the scaled update by a random Hadamard transform that
    the seed determines, so that it looks Gaussian whatever it is.
    """

    name: ClassVar[str]
    has_dither: ClassVar[bool] = True
    is_scaled: ClassVar[bool] = True
    is_private: ClassVar[bool] = True  # whether it names an ε; encoding is then total

    clip: float | None = None
    spread: float = 3.0
    per: str = "update"
    center: bool = False
    rotate: bool = False

    def __post_init__(self) -> None:
        if self.rotate and self.per == "tensor":
            raise ValueError("rotate=True mixes all tensors, so it needs per='update'")
        for field in fields(self):  # so that 4 and 4.0 make equal schemes with equal specs
            value = getattr(self, field.name)
            object.__setattr__(self, field.name, normal(field.name, str(field.type), value))
        self._scaling  # noqa: B018 (validates its parameters)

    # What a scheme defines

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
    def _coder(self) -> Coder: ...

    @abstractmethod
    def _to_symbols(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Symbols: ...

    @abstractmethod
    def _to_samples(self, symbols: NDArray[Any], first: int, shared: SharedStream) -> Array: ...

    @property
    def _recipe(self) -> Recipe | None:
        """What fused kernels need; None when only the plain path can code this scheme."""
        return None

    @property
    def is_bounded(self) -> bool:
        """Whether samples outside the unit ball are brought inside, so that the spread matters."""
        return True

    def distortion_for(self, sigma: float) -> float:
        """The mean of ``distortion`` over Gaussian entries of standard deviation σ, clipped."""
        return self.distortion

    # What all share

    @property
    def is_seeded(self) -> bool:
        """Whether encoder and decoder share random bits, for a dither or a rotation."""
        return self.has_dither or self.rotate

    @cached_property
    def _scaling(self) -> Scaling:
        return Scaling(self.clip, self.spread, self.per, self.center)

    @cached_property
    def spec(self) -> str:
        """Name and parameters that are not defaults, as JSON: the scheme as a payload names it."""
        changed = {
            field.name: plain(getattr(self, field.name))
            for field in fields(self)
            if getattr(self, field.name) != field.default
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
        """The payload of an update: any float array or tensor, of any shape.

        ``key`` (32 bytes, agreed once) hides the dither from everyone else; without it the payload
        carries its own fresh seed. ``seed`` fixes that seed (or the nonce) and ``noise`` the noise:
        for tests only, since what repeats is not private.

        A scheme that names an ε encodes whatever the floats are, since a refusal would tell about
        them: NaN counts as 0, ±inf and what is too large as ±``clip``, or with norm scaling as ± a
        fixed bound (``Scaling.limits``). Such entries are logged here and counted in
        ``Statistics.invalid``. ``on_invalid="raise"`` raises ``UpdateError`` instead, for trusted
        use within one process; it is the default of the schemes without ε.

        >>> from jopeq import scheme
        >>> private = scheme("response", epsilon=4.0, rate=2.0, clip=0.5)
        >>> private.encode(np.array([np.nan, 0.1]), statistics=True)[1].invalid
        1
        """
        entries = self._entries(("",), (update,))
        payload, counted = self._encode(entries, seed, key, noise, self._limits(on_invalid))
        return (payload, counted) if statistics else payload

    def _limits(self, on_invalid: OnInvalid | None) -> Limits | None:
        """What replaces invalid entries; None when they are to be refused."""
        if on_invalid not in (None, "replace", "raise"):
            raise ValueError(f"on_invalid must be 'replace' or 'raise', got {on_invalid!r}")
        if on_invalid == "raise" or (on_invalid is None and not self.is_private):
            return None
        return self._scaling.limits(self.dimension) if self.is_scaled else Limits()

    def _entries(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Entries | DeviceEntries:
        """Arrays and tensors as they are read: on their GPU where that can code this scheme."""
        on_gpu = common_device(values) is not None and not self.rotate
        if on_gpu and all(map(is_short_float, values)) and can_code(self._recipe):
            return DeviceEntries(names, values)
        return Entries(names, tuple(map(as_float_array, values, names)))

    @overload
    def decode(
        self, payload: bytes, *, key: bytes | None = None, device: None = None
    ) -> NDArray[np.float32]: ...

    @overload
    def decode(self, payload: bytes, *, key: bytes | None = None, device: Any) -> Any: ...

    def decode(self, payload: bytes, *, key: bytes | None = None, device: Any = None) -> Any:
        """The update in a payload, float32 in its own shape; raises ``PayloadError``.

        A NumPy array, or a torch tensor on ``device`` when one is given. The payload chooses the
        shape, and entropy coding puts hundreds of entries into a byte: from somebody you do not
        trust, ``open`` it and look at the shape first. A payload that is sent again decodes again.
        """
        opened = self.open(payload, key=key, most_tensors=1)
        if opened.header.names != ("",):
            raise PayloadError(_IS_STATE)
        return opened.decode(device).reshape(opened.header.shapes[0])

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
        scales = self._check(header)
        return Opened(self, header, body, scales, self._shared(header, key))

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
            scaling = self._scaling if self.is_scaled else None
            scales = kernels.measured(entries, scaling, self.dimension, limits)
            header = Header(
                scheme=self.spec,
                names=entries.names,
                shapes=entries.shapes,
                seed=self._seed(seed, key),
                is_keyed=key is not None,
                scales=tuple(scales) if self.is_scaled and self._scaling.is_sent() else (),
                is_centered=self.is_scaled and self.center,
            )
            shared = self._shared(header, key)
            private = private_stream(noise)
            result = self._sealed(entries, scales, shared, private, header, key, limits)
        if entries.invalid:
            _LOG.warning(
                "%d of %d entries of an update were NaN, infinite or too large and were replaced",
                entries.invalid,
                entries.count,
            )
        return result

    def _sealed(
        self,
        entries: Entries | DeviceEntries,
        scales: list[Scale],
        shared: SharedStream,
        private: PrivateStream,
        header: Header,
        key: bytes | None,
        limits: Limits | None,
    ) -> tuple[bytes, Statistics]:
        """Header, coded samples and checks together, the fastest way there is."""
        samples = self._samples(entries.count)
        if isinstance(entries, DeviceEntries):
            coded, clipped, over = entries.encode(
                self._known_recipe, scales, shared, private, limits
            )
            size = len(coded)
            payload = seal(header.to_bytes(), [coded], key)
        elif (recipe := self._fused(entries.count)) is not None:
            from jopeq.kernels.cpu import codec as cpu

            size = cpu.body_bytes(recipe, samples)
            envelope = Envelope(header.to_bytes(), size, key)
            clipped, over = cpu.encode_body(recipe, entries, scales, shared, private, envelope.body)
            payload = envelope.seal()
        else:
            body = self._to_body(entries, scales, shared, private)
            samples, clipped, over = body.samples, body.clipped, body.overloaded
            size = sum(map(len, body.parts))
            payload = seal(header.to_bytes(), body.parts, key)
        counts = (entries.count, samples, clipped, over, len(payload), size, entries.invalid)
        return payload, Statistics(*counts)

    @property
    def _known_recipe(self) -> Recipe:
        if self._recipe is None:
            raise TypeError(f"scheme {self.name!r} has no recipe")
        return self._recipe

    def _fused(self, entries: int) -> Recipe | None:
        """The recipe, when compiled kernels are to code an update of that size."""
        if self.rotate or not entries or not kernels.are_used(entries):
            return None
        return self._recipe

    def _to_body(
        self, entries: Entries, scales: list[Scale], shared: SharedStream, private: PrivateStream
    ) -> Body:
        """The walk over all samples; a scheme that codes the update as a whole replaces it."""
        reader = SampleReader(entries, scales, shared if self.rotate else None)
        samples = self._samples(entries.count)
        parts, clipped, overloaded = [], 0, 0
        for first in range(0, samples, self._coder.chunk):
            last = min(first + self._coder.chunk, samples)
            chunk = reader.read(first, last, self.dimension)
            symbols = self._to_symbols(chunk, first, shared, private)
            parts.append(self._coder.encode(symbols.values))
            clipped += symbols.clipped
            overloaded += symbols.overloaded
        return Body(parts, samples, clipped, overloaded)

    def _seed(self, seed: bytes | None, key: bytes | None) -> bytes:
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

    def _samples(self, count: int) -> int:
        return -(-count // self.dimension)

    def _shared(self, header: Header, key: bytes | None) -> SharedStream:
        return header.shared_stream(key) if self.is_seeded else _NOTHING_SHARED

    def _entries_of(
        self, body: memoryview, sizes: tuple[int, ...], scales: list[Scale], shared: SharedStream
    ) -> NDArray[np.float32]:
        """All entries of a body, every one of them finite."""
        recipe = self._fused(sum(sizes))
        if recipe is not None:
            from jopeq.kernels.cpu import codec as cpu

            self._check_size(len(body), sum(sizes))
            return cpu.decode_body(recipe, body, sizes, scales, shared)
        flat = self._from_body(body, sizes, scales, shared)
        if not np.isfinite((flat.min(initial=0.0), flat.max(initial=0.0))).all():
            raise PayloadError("the payload holds numbers too large for float32")
        return flat

    def _from_body(
        self,
        body: memoryview,
        sizes: tuple[int, ...],
        scales: list[Scale],
        shared: SharedStream,
    ) -> NDArray[np.float32]:
        """All entries of a body that ``_to_body`` wrote."""
        self._check_size(len(body), sum(sizes))
        samples = self._samples(sum(sizes))
        coder = self._coder
        writer = SampleWriter(sizes, scales, shared if self.rotate else None)
        position = 0
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what leaves float32
            for first in range(0, samples, coder.chunk):
                last = min(first + coder.chunk, samples)
                symbols, position = coder.decode(body, position, last - first)
                writer.write(first, self._to_samples(symbols, first, shared))
            flat = writer.finish()
        if position != len(body):
            raise PayloadError(f"{len(body) - position} bytes follow the last sample")
        return flat

    def _check_size(self, body_bytes: int, entries: int) -> None:
        """Raise ``PayloadError`` unless a body of so many bytes can hold so many entries."""
        self._coder.check(body_bytes, self._samples(entries))

    def _check(self, header: Header) -> list[Scale]:
        """Raise unless the header is one this scheme writes; the scales of its tensor groups."""
        if header.scheme != self.spec:
            raise PayloadError(
                f"the payload was made by scheme {header.scheme!r:.200}, this decoder is "
                f"{self.spec}"
            )
        sends_scales = self.is_scaled and self._scaling.is_sent()
        groups = len(self._scaling.groups(len(header.shapes)))
        if (
            bool(header.seed) != self.is_seeded
            or len(header.scales) != (groups if sends_scales else 0)
            or header.is_centered != (self.is_scaled and self.center)
        ):
            raise PayloadError("the header's seed or scales are not those of its scheme")
        if not self.is_scaled:
            return []
        return list(header.scales) if sends_scales else self._scaling.public(len(header.shapes))


# The unit ball that privacy is proven for: who is moved into it, and what its scale gives away


def into_unit_ball(samples: Array) -> tuple[Array, int]:
    """Samples moved radially into the unit ball, and how many had to be."""
    if samples.shape[1] == 1:
        clipped = np.clip(samples, -1.0, 1.0)
        return clipped, int(np.count_nonzero(clipped != samples))
    norms = np.sqrt(squares(samples))
    outside = norms > 1.0
    # one part in 10¹² short, so that rounding cannot leave the ball
    factors = np.where(outside, (1.0 - 1e-12) / np.where(outside, norms, 1.0), 1.0)
    return samples * factors[:, None], int(outside.sum())


def scaling_assumptions(scheme: Scheme) -> tuple[str, ...]:
    """What the scale gives away, and what a sample is when the update is rotated."""
    found = []
    if scheme.clip is None:
        whose = "every tensor's" if scheme.per == "tensor" else "the update's"
        norm = "norm travels in the clear and is not covered"
        both = "norm and mean travel in the clear and are not covered"
        found.append(f"{whose} {both if scheme.center else norm}")
    if scheme.rotate:
        found.append(
            "a sample is one of the rotated update: an entry of the update itself touches all "
            "samples of its block, up to 65,536, so read ε per update"
        )
    return tuple(found)
