"""The engine behind every scheme: the walk from an update to a payload and back.

    encode   update → entries → scales → samples → letters → body → payload
    decode   payload → header and body → letters → samples → entries → update

A family of schemes says how a chunk of scaled samples becomes letters, and how letters become
samples. Everything else happens here, once: reading, scaling, chunking, seeds, packing, checks, and
the choice of who codes a body (``Codec.choose``): NumPy, compiled kernels, or a GPU.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.errors import PayloadError
from jopeq.kernels.device import DeviceEntries, can_code, common_device, decode_body, tensor_of
from jopeq.kernels.threads import in_threads
from jopeq.random.streams import (
    NONCE_BYTES,
    SEED_BYTES,
    PrivateStream,
    SharedStream,
    describe_secret,
    private_stream,
)
from jopeq.schemes.opened import Opened
from jopeq.wire.entries import Entries, Limits, as_float_array, is_short_float, select_sent
from jopeq.wire.payload import Envelope, Header, open_payload, seal
from jopeq.wire.scaling import Scale, Scaling, is_statistic, read_scaled, unscale

if TYPE_CHECKING:
    from jopeq.channel.channel import Channel
    from jopeq.kernels.recipe import Recipe
    from jopeq.lattice.codebook import Codebook
    from jopeq.lattice.lattices import Lattice
    from jopeq.noise import Law
    from jopeq.schemes.base import Scheme
    from jopeq.wire.coders import Coder

Array = NDArray[np.float64]
OnInvalid = Literal["replace", "raise"]
S = TypeVar("S", bound="Scheme")

_LOG = logging.getLogger("jopeq")
_KEPT_BYTES = 1 << 23
_THREAD = threading.local()
_SLOWER = 4  # the plain path than kernels, at the least


@dataclass(frozen=True)
class Counts:
    """Counts of what happened to one update on its way to bytes."""

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


class Codec(ABC, Generic[S]):
    """How one scheme codes; a ``cached_property`` of the scheme makes it.

    A scheme of one's own defines ``coder``, ``to_letters`` and ``to_samples``, for chunks of
    samples that come in any order and in several threads. All randomness is read from the two
    streams at the places of the samples (``first`` and on): the dither from ``shared``, which the
    server knows, noise from ``private``, which nobody else does. What is sent of a sample, whether
    it is sent, and how long that takes must not depend on it but as the scheme's ε says: bring
    samples into the ball that the guarantee is about, and raise nothing.
    """

    is_scaled: ClassVar[bool] = True  # whether entries are scaled by clip or norm first
    has_dither: ClassVar[bool] = True  # whether a payload carries a seed for ``shared``

    def __init__(self, scheme: S) -> None:
        self.scheme = scheme
        self.dimension = scheme.dimension

    # What a family defines

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

    # What a family may define

    is_subtractive: bool = True  # whether the decoder subtracts the dither
    is_bounded: bool = True  # whether samples outside the unit ball are brought inside

    @property
    def recipe(self) -> Recipe | None:
        """The recipe for fused kernels; None when only the plain path can code this scheme."""
        return None

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
    def channel(self) -> Channel | None:
        """The channel with integer probabilities that draws each letter."""
        return None

    def distortion_for(self, sigma: float) -> float:
        """The mean of ``distortion`` over Gaussian entries of standard deviation σ, clipped."""
        return self.scheme.distortion

    def errors_at(self, norms: Array) -> tuple[Array, Array] | None:
        """(Mean error outwards, mean squared error per entry) of samples with these norms, up to 1.

        None where the mean error is 0 everywhere: ``distortion_for`` then says all.
        """
        return None

    def bias(self) -> float:
        """E[decoded] − x at the edge of the ball, outwards."""
        return 0.0

    def log_channel(self, dither: float, inputs: Array) -> Array | None:
        """log P(letter | x) for scalar inputs x (rows), given the dither in units of the step.

        None where the letters cannot be listed.
        """
        return None

    # From an update to a payload

    @cached_property
    def scaling(self) -> Scaling:
        """How entries are scaled, and what the scale sends along."""
        given = self.scheme
        return Scaling(given.clip, given.spread, given.per, given.center, dict(given.clips))

    @cached_property
    def _limits(self) -> Limits:
        return self.scaling.limits(self.dimension) if self.is_scaled else Limits()

    def limits(self, on_invalid: OnInvalid | None = None) -> Limits | None:
        """Replacements for invalid entries; None when they are to be refused."""
        if on_invalid not in (None, "replace", "raise"):
            raise ValueError(f"on_invalid must be 'replace' or 'raise', got {on_invalid!r}")
        if on_invalid == "raise" or (on_invalid is None and not self.scheme.is_private):
            return None
        return self._limits

    def read(self, update: Any) -> Entries | DeviceEntries:
        """An update or a state as ``encode`` takes it: its layout is known, no value is read."""
        if isinstance(update, np.ndarray):
            return Entries(("",), (as_float_array(update, ""),))
        names: tuple[str, ...] = ("",)
        values: tuple[Any, ...] = (update,)
        if isinstance(update, Mapping):
            names, values = select_sent(update)
        device = common_device(values)
        if device is not None and all(map(is_short_float, values)) and self.choose(0, device):
            return DeviceEntries(names, values)
        return Entries(names, tuple(map(as_float_array, values, names)))

    def choose(self, entries: int, device: Any = None) -> Recipe | None:
        """Who codes so many entries: kernels by this recipe, or NumPy where it is None.

        With ``device`` the kernels are that GPU's, else those of the CPU.
        """
        if device is None:
            kernels.note(entries)
            return self.recipe if entries and kernels.are_loaded() else None
        return self.recipe if can_code(self.recipe, device) else None

    def encode(
        self,
        entries: Entries | DeviceEntries,
        limits: Limits | None,
        *,
        seed: bytes | None = None,
        secret: bytes | None = None,
        noise: PrivateStream | None = None,
    ) -> tuple[bytes, Counts]:
        """The payload of what ``read`` has read, and what happened on the way."""
        own_seed, private = self._seed(seed, secret is not None), private_stream(noise)
        is_keyed, are_apart = secret is not None, self.scales_apart(entries.names)
        is_centered = self.is_scaled and self.scheme.center
        on_device = entries.device if isinstance(entries, DeviceEntries) else None
        recipe = self.choose(entries.count, on_device)
        samples = -(-entries.count // self.dimension)
        # An app may have called np.seterr(all="raise"): an error would tell about the entries.
        with np.errstate(all="ignore"):
            scaling = self.scaling if self.is_scaled else None
            scales = kernels.measure(entries, scaling, self.dimension, limits)
            carried = tuple(scales) if scaling is not None and scaling.is_sent else ()
            if are_apart:
                scales = self.scaling.of_tensors(entries.names, scales)
            header = Header(
                *(self.scheme.spec, entries.names, entries.shapes, own_seed),
                *(is_keyed, carried, is_centered, are_apart),
            )
            streams = header.shared_stream(secret), private
            envelope = None
            if isinstance(entries, DeviceEntries):
                if recipe is None:
                    raise TypeError(f"{self.scheme.spec} cannot be coded on {entries.device}")
                packed, *bad = entries.encode(recipe, scales, *streams, limits)
                body = Body([packed], samples, *bad)
            elif recipe is None:
                body = self.to_body(entries, scales, *streams)
            else:  # kernels write into the payload
                size = kernels.cpu.body_bytes(recipe, samples)
                envelope = Envelope(header.to_bytes(), size, secret)
                found = kernels.cpu.encode_body(recipe, entries, scales, *streams, envelope.body)
                body = Body([], samples, *found)
            size = sum(map(len, body.parts)) if envelope is None else len(envelope.body)
            payload = envelope.seal() if envelope else seal(header.to_bytes(), body.parts, secret)
        if entries.invalid:
            _LOG.warning(
                "%d of %d entries of an update were NaN, infinite or too large and were replaced",
                *(entries.invalid, entries.count),
            )
        return payload, Counts(entries.count, *body[1:], len(payload), size, entries.invalid)

    def _seed(self, seed: bytes | None, is_keyed: bool) -> bytes:
        length = NONCE_BYTES if is_keyed else SEED_BYTES
        if not self.has_dither:
            if seed is not None or is_keyed:
                name = self.scheme.name
                raise ValueError(f"scheme {name!r} shares no randomness: drop seed and secret")
            return b""
        if seed is None:
            return os.urandom(length)
        if not isinstance(seed, bytes) or len(seed) != length:
            kind = "seed (a nonce when a secret is given)" if is_keyed else "seed"
            raise ValueError(f"{kind} must be {length} bytes, got {describe_secret(seed)}")
        return seed

    def scales_apart(self, names: tuple[str, ...]) -> bool:
        """Whether some of these tensors are running statistics with a scale of their own."""
        may_differ = self.is_scaled and self.scheme.per != "layers"
        return may_differ and any(map(is_statistic, names))

    def to_body(
        self, entries: Entries, scales: list[Scale], shared: SharedStream, private: PrivateStream
    ) -> Body:
        """The plain path: all samples, a chunk at a time, in threads."""
        size, coder = self.dimension, self.coder
        samples = -(-entries.count // size)

        def work(begin: int, end: int) -> list[tuple[bytes, int, int]]:
            done = []
            keep_memory()
            with np.errstate(all="ignore"):  # a thread starts with NumPy's defaults
                for first in range(begin, end, coder.chunk):
                    last = min(first + coder.chunk, end)
                    stop = min(last * size, entries.count)
                    chunk = read_scaled(entries, scales, first * size, stop)
                    if stop < last * size:  # the last sample is filled up with zeros
                        chunk = np.append(chunk, np.zeros(last * size - stop))
                    letters = self.to_letters(chunk.reshape(-1, size), first, shared, private)
                    done.append((coder.encode(letters.values), *letters[1:]))
            return done

        done = list(chain(*in_threads(work, samples, coder.chunk, size, _SLOWER)))
        parts, clipped, overloaded = zip(*done, strict=True) if done else ((), (), ())
        counts = int(sum(clipped)), int(sum(overloaded))  # a scheme may count in NumPy's integers
        return Body(list(parts), samples, *counts)

    # From a payload to an update

    def open(self, payload: bytes, secret: bytes | None, most_tensors: int) -> Opened:
        """Verify a payload and read its header; raises ``PayloadError``."""
        header, body = open_payload(payload, secret, most_tensors=most_tensors)
        return Opened(self, header, body, self.scales_of(header), header.shared_stream(secret))

    def scales_of(self, header: Header) -> list[Scale]:
        """The scale of each of the header's tensors, or the only one; raises ``PayloadError``."""
        scheme, scaling = self.scheme, self.scaling
        if header.scheme != scheme.spec:
            raise PayloadError(
                f"the payload was made by scheme {header.scheme!r:.200}, this decoder is "
                f"{scheme.spec}"
            )
        are_apart, is_sent = self.scales_apart(header.names), self.is_scaled and scaling.is_sent
        if (
            bool(header.seed) != self.has_dither
            or len(header.scales) != (scaling.count(header.names) if is_sent else 0)
            or header.is_centered != (self.is_scaled and scheme.center)
            or header.has_statistics != are_apart
        ):
            raise PayloadError("the header's seed or scales are not those of its scheme")
        if not self.is_scaled:
            return []
        scales = list(header.scales)
        if scheme.clip is not None:
            scales = scaling.public(header.names)
            if is_sent and tuple(scales) != header.scales:
                raise PayloadError("the payload's clips are not those that both ends agreed on")
        return scaling.of_tensors(header.names, scales) if are_apart else scales

    def decode(self, opened: Opened, device: Any = None) -> Any:
        """All entries of a body, each finite: a float32 array, or a tensor on ``device``."""
        sizes = opened.header.sizes
        body = opened.body, sizes, opened.scales, opened.shared
        recipe = self.choose(sum(sizes), device)
        if recipe is None:
            flat = self.from_body(*body)
            if not np.isfinite((flat.min(initial=0.0), flat.max(initial=0.0))).all():
                raise PayloadError("the payload holds numbers too large for float32")
            return flat if device is None else tensor_of(flat, device)
        if device is not None:
            return decode_body(recipe, *body, device)
        self.check_size(len(opened.body), sum(sizes))
        return kernels.cpu.decode_body(recipe, *body)

    def from_body(
        self, body: memoryview, sizes: tuple[int, ...], scales: list[Scale], shared: SharedStream
    ) -> NDArray[np.float32]:
        """All entries of a body that ``to_body`` wrote."""
        coder, samples = self.coder, -(-sum(sizes) // self.dimension)
        coder.check(len(body), samples)  # before memory is taken
        keep_memory()
        ends, flat = list(accumulate(sizes)), np.empty(sum(sizes), dtype=np.float32)

        def work(begin: int, end: int) -> None:
            keep_memory()
            # the caller refuses what leaves float32
            with np.errstate(over="ignore", invalid="ignore"):
                for first in range(begin, end, coder.chunk):
                    count, start = min(coder.chunk, end - first), first * self.dimension
                    letters = coder.decode(body, first, count)
                    found = self.to_samples(letters, first, shared).reshape(-1)
                    values = found[: len(flat) - start]  # without what filled the last sample
                    unscale(values, start, ends, scales)
                    flat[start : start + len(values)] = values

        in_threads(work, samples, coder.chunk, self.dimension, _SLOWER)
        return flat

    def check_size(self, body_bytes: int, entries: int) -> None:
        """Raise ``PayloadError`` unless a body of so many bytes can hold so many entries."""
        self.coder.check(body_bytes, -(-entries // self.dimension))


def keep_memory() -> None:
    """Free two large arrays, so that glibc keeps pages for the smaller arrays of this thread.

    Without the first, it returns those of a chunk's arrays to the system and gets them back page by
    page, which takes longer than the arithmetic. The second lies in what is kept; NumPy asks the
    system for huge pages there, so that a first update waits for a few instead of hundreds. On
    other systems this does nothing.
    """
    if not getattr(_THREAD, "keeps_memory", False):
        np.empty(_KEPT_BYTES, dtype=np.uint8)
        np.empty(_KEPT_BYTES - (1 << 16), dtype=np.uint8)
        _THREAD.keeps_memory = True
