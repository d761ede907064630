"""The engine behind every scheme: the walk from an update to a payload and back.

    encode   update → entries → scales → samples → letters → body → payload
    decode   payload → header and body → letters → samples → entries → update

A family of schemes turns chunks of scaled samples into letters and back. All else happens here.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.errors import PayloadError, StateMismatchError
from jopeq.kernels.device import can_code, common_device, tensor_of
from jopeq.kernels.threads import in_threads
from jopeq.random.streams import (
    NONCE_BYTES,
    SEED_BYTES,
    PrivateStream,
    SharedStream,
    describe_secret,
    private_stream,
)
from jopeq.wire.entries import (
    Entries,
    Limits,
    as_float_array,
    is_left_out,
    is_short_float,
    is_tensor,
    select_sent,
)
from jopeq.wire.payload import Header, open_payload, seal
from jopeq.wire.scaling import Scale, is_statistic, read_scaled, unscale

if TYPE_CHECKING:
    from jopeq.channel.channel import Channel
    from jopeq.kernels.gpu.entries import DeviceEntries
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


@dataclass(frozen=True)
class Counts:
    """Counts for one update on its way to bytes."""

    entries: int
    samples: int
    clipped: int  # samples moved into the unit ball
    overloaded: int  # samples beyond the codebook, sent as its nearest letter
    payload_bytes: int
    body_bytes: int
    invalid: int = 0  # entries that were NaN, infinite or too large, and were replaced

    @property
    def bits_per_entry(self) -> float:
        """Bits per entry as measured, without the header."""
        return 8.0 * self.body_bytes / self.entries if self.entries else 0.0


class Letters(NamedTuple):
    """The letters of one chunk of samples, and how many samples were out of bounds."""

    values: NDArray[Any]
    clipped: int = 0
    overloaded: int = 0


class Body(NamedTuple):
    """The coded samples of one update, and how many samples were out of bounds."""

    parts: list[Any]  # bytes, or arrays of them
    clipped: int
    overloaded: int


class Codec(ABC, Generic[S]):
    """How one scheme codes; the scheme makes it as a ``cached_property``.

    Your own scheme defines ``coder``, ``to_letters`` and ``to_samples``. Chunks of samples come in
    any order and in several threads. Read all randomness from the two streams at the places of the
    samples (``first`` and on): the dither from ``shared``, which the server knows, noise from
    ``private``, which nobody else knows. Beyond what ε allows, a sample must influence neither
    what is sent, nor whether, nor how long it takes: bring samples into the ball that the guarantee
    is about, and raise nothing.
    """

    is_scaled: ClassVar[bool] = True  # whether entries are scaled by clip or norm first
    has_dither: ClassVar[bool] = True  # whether a payload carries a seed for ``shared``

    def __init__(self, scheme: S) -> None:
        self.scheme = scheme
        self.dimension = scheme.dimension
        self.scaling = scheme.scaling

    # What a family defines

    @property
    @abstractmethod
    def coder(self) -> Coder:
        """How letters become the bytes of a body."""

    @abstractmethod
    def to_letters(
        self, samples: Array, first: int, shared: SharedStream, private: PrivateStream
    ) -> Letters:
        """The letters of scaled samples (count, L), beginning with sample ``first``."""

    @abstractmethod
    def to_samples(self, letters: NDArray[Any], first: int, shared: SharedStream) -> Array:
        """The scaled samples (count, L) that the server decodes from letters."""

    # What a family may define

    is_subtractive: bool = True  # whether the decoder subtracts the dither
    is_bounded: bool = True  # whether samples outside the unit ball are brought inside

    recipe: Recipe | None = None  # for fused kernels; None: only the plain path codes this scheme
    noise: Law | None = None  # added to every sample
    cells: Lattice | None = None  # that noisy samples are rounded to, at its final magnification
    codebook: Codebook | None = None  # the lattice points that a letter can name
    channel: Channel | None = None  # with integer probabilities, which draws each letter

    def distortion_for(self, sigma: float) -> float:
        """The mean of ``distortion`` over Gaussian entries of standard deviation σ, clipped."""
        return self.scheme.distortion

    def errors_at(self, norms: Array) -> tuple[Array, Array] | None:
        """(Mean error outwards, mean squared error per entry) of samples with these norms ≤ 1.

        None if the mean error is 0 everywhere: ``distortion_for`` then tells everything.
        """
        return None

    def bias(self) -> float:
        """E[decoded] − x at the edge of the ball, outwards."""
        return 0.0

    def log_channel(self, dither: float, inputs: Array) -> Array | None:
        """log P(letter | x) for scalar inputs x (rows), given the dither in units of the step.

        None if the letters cannot be listed.
        """
        return None

    # From an update to a payload

    @cached_property
    def _limits(self) -> Limits:
        return self.scaling.limits(self.dimension) if self.is_scaled else Limits()

    def limits(self, on_invalid: OnInvalid | None = None) -> Limits | None:
        """Replacements for invalid entries; None to refuse them."""
        if on_invalid not in (None, "replace", "raise"):
            raise ValueError(f"on_invalid must be 'replace' or 'raise', got {on_invalid!r}")
        if on_invalid == "raise" or (on_invalid is None and not self.scheme.is_private):
            return None
        return self._limits

    def read(self, update: Any) -> Entries | DeviceEntries:
        """Find the layout of an update or a state, without reading a value."""
        if isinstance(update, np.ndarray):
            return Entries(("",), (as_float_array(update, ""),))
        names, values = select_sent(update)
        device = common_device(values)
        if device is not None and all(map(is_short_float, values)) and self.choose(0, device):
            from jopeq.kernels.gpu import DeviceEntries

            return DeviceEntries(names, values)
        return Entries(names, tuple(map(as_float_array, values, names)))

    def choose(self, entries: int, device: Any = None) -> Recipe | None:
        """The recipe for kernels, of the CPU or of a GPU ``device``; None: NumPy codes."""
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
        """Make the payload of entries that ``read`` found, and count what happened."""
        own_seed, private = self._seed(seed, secret is not None), private_stream(noise)
        recipe = self.choose(entries.count) if isinstance(entries, Entries) else None
        samples = -(-entries.count // self.dimension)
        scaling = self.scaling if self.is_scaled else None
        # An app may have called np.seterr(all="raise"): an error would tell about the entries.
        with np.errstate(all="ignore"):
            scales = kernels.measure(entries, scaling, self.dimension, limits)
            header = Header(
                *(self.scheme.spec, entries.names, entries.shapes, own_seed, secret is not None),
                scales=tuple(scales) if scaling is not None and scaling.is_sent else (),
                is_centered=scaling is not None and scaling.center,
                has_statistics=self.scales_apart(entries.names),
            )
            if header.has_statistics:
                scales = self.scaling.of_tensors(entries.names, scales)
            given = scales, header.shared_stream(secret), private
            if not isinstance(entries, Entries):  # ``read`` asked whether kernels know the scheme
                from jopeq.kernels.gpu import encode_body

                packed, *bad = encode_body(cast("Recipe", self.recipe), entries, *given, limits)
                body = Body([packed], *bad)
            elif recipe is not None:
                out = np.zeros(recipe.packing.size(samples), dtype=np.uint8)
                body = Body([out], *kernels.cpu.encode_body(recipe, entries, *given, out))
            else:
                body = self.to_body(entries, *given)
            payload = seal(header.to_bytes(), body.parts, secret)
        if entries.invalid:
            _LOG.warning(
                "%d of %d entries of an update were NaN, infinite or too large and were replaced",
                *(entries.invalid, entries.count),
            )
        sizes = len(payload), sum(map(len, body.parts))
        return payload, Counts(entries.count, samples, *body[1:], *sizes, entries.invalid)

    def _seed(self, seed: bytes | None, is_keyed: bool) -> bytes:
        length = NONCE_BYTES if is_keyed else SEED_BYTES
        if not self.has_dither:
            if seed is not None or is_keyed:
                raise ValueError(f"{self.scheme.name} shares no randomness: drop seed and secret")
            return b""
        if seed is None:
            return os.urandom(length)
        if not isinstance(seed, bytes) or len(seed) != length:
            kind = "seed (a nonce when a secret is given)" if is_keyed else "seed"
            raise ValueError(f"{kind} must be {length} bytes, got {describe_secret(seed)}")
        return seed

    def scales_apart(self, names: tuple[str, ...]) -> bool:
        """True if some of these tensors are running statistics with a scale of their own."""
        may_differ = self.is_scaled and self.scheme.per != "layers"
        return may_differ and any(map(is_statistic, names))

    def to_body(
        self, entries: Entries, scales: list[Scale], shared: SharedStream, private: PrivateStream
    ) -> Body:
        """Code all samples on the plain path, a chunk at a time, in threads."""
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

        done = list(chain(*in_threads(work, samples, coder.chunk, size)))
        parts, clipped, overloaded = zip(*done, strict=True) if done else ((), (), ())
        # a scheme may count in NumPy's integers
        return Body(list(parts), int(sum(clipped)), int(sum(overloaded)))

    # From a payload to an update

    def open(self, payload: bytes, secret: bytes | None, most_tensors: int) -> Opened:
        """Verify a payload and read its header; raises ``PayloadError``."""
        header, body = open_payload(payload, secret, most_tensors=most_tensors)
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
        scales = list(header.scales)
        if self.is_scaled and scheme.clip is not None:
            scales = scaling.public(header.names)
            if is_sent and tuple(scales) != header.scales:
                raise PayloadError("the payload's clips are not those that both ends agreed on")
        if are_apart:
            scales = scaling.of_tensors(header.names, scales)
        shared = header.shared_stream(secret)
        return Opened(self, header, header.sizes, body, scales, shared)

    def from_body(
        self, body: memoryview, sizes: tuple[int, ...], scales: list[Scale], shared: SharedStream
    ) -> NDArray[np.float32]:
        """Decode a body that ``to_body`` wrote."""
        coder, samples = self.coder, -(-sum(sizes) // self.dimension)
        ends, flat = list(accumulate(sizes)), np.empty(sum(sizes), dtype=np.float32)

        def work(begin: int, end: int) -> None:
            keep_memory()
            # the caller refuses what leaves float32, and an app may have called np.seterr
            with np.errstate(all="ignore"):
                for first in range(begin, end, coder.chunk):
                    count, start = min(coder.chunk, end - first), first * self.dimension
                    letters = coder.decode(body, first, count)
                    found = self.to_samples(letters, first, shared).reshape(-1)
                    values = found[: len(flat) - start]  # without what filled the last sample
                    unscale(values, start, ends, scales)
                    flat[start : start + len(values)] = values

        in_threads(work, samples, coder.chunk, self.dimension)
        return flat


@dataclass(frozen=True)
class Opened:
    """A payload that ``Scheme.open`` verified; its body is not decoded yet.

    A header may name far more entries than the body has bytes: compare it with what you expect.
    """

    codec: Codec[Any]
    header: Header
    sizes: tuple[int, ...]  # entries of each tensor
    body: memoryview
    scales: list[Scale]
    shared: SharedStream

    def check_size(self) -> None:
        """Raise ``PayloadError`` unless the body can hold as many entries as the header names."""
        self.codec.coder.check(len(self.body), -(-sum(self.sizes) // self.codec.dimension))

    def decode(self, device: Any = None) -> Any:
        """All entries in one row, each finite: a float32 array, or a tensor on ``device``."""
        body = self.body, self.sizes, self.scales, self.shared
        recipe = self.codec.choose(sum(self.sizes), device)
        if recipe is not None and device is not None:
            from jopeq.kernels.gpu import decode_body

            return decode_body(recipe, *body, device)
        self.check_size()  # before memory is taken
        if recipe is not None:
            return kernels.cpu.decode_body(recipe, *body)
        flat = self.codec.from_body(*body)
        if not np.isfinite((flat.min(initial=0.0), flat.max(initial=0.0))).all():
            raise PayloadError("the payload holds numbers too large for float32")
        return flat if device is None else tensor_of(flat, device)

    def decode_like(self, like: Mapping[str, Any]) -> dict[str, Any]:
        """Decode a state with names, shapes, types and devices of ``like``; integers become 0."""
        sent = {name: value for name, value in like.items() if not is_left_out(value)}
        expected = {name: tuple(np.shape(value)) for name, value in sent.items()}
        self.check_fits(expected)
        pieces = self.header.arrange(self.decode(common_device(sent.values())))
        if not isinstance(pieces, dict):
            pieces = {"": pieces}
        with np.errstate(all="ignore"):
            return {name: _as_type_of(v, pieces.get(name), name) for name, v in like.items()}

    def check_fits(self, expected: Mapping[str, tuple[int, ...]]) -> None:
        """Raise ``StateMismatchError`` unless the header names these tensors, each once."""
        received = dict(zip(self.header.names, self.header.shapes, strict=True))
        if len(received) != len(self.header.names):
            raise StateMismatchError("the payload names a tensor twice")
        for name in expected:
            if name not in received:
                raise StateMismatchError(f"the payload lacks tensor {name!r}")
        for name, shape in received.items():
            if name not in expected:
                raise StateMismatchError(f"the payload holds tensor {name!r:.80}, not expected")
            if shape != expected[name]:
                raise StateMismatchError(
                    f"tensor {name!r} has shape {shape} in the payload, expected {expected[name]}"
                )


def _as_type_of(example: Any, values: Any, name: str) -> Any:
    """Convert finite float32 ``values`` to the kind of array that ``example`` is; None: zeros."""
    library: Any = sys.modules["torch"] if is_tensor(example) else np
    if values is None:
        return library.zeros_like(example)
    if is_tensor(example):
        copied = values.clone() if is_tensor(values) else library.from_numpy(values.copy())
        result = copied.to(dtype=example.dtype, device=example.device)
    else:
        result = values.astype(np.asarray(example).dtype)
    if result.dtype != library.float32 and not bool(library.isfinite(result).all()):
        raise PayloadError(f"tensor {name!r} holds numbers too large for {result.dtype}")
    return result


def keep_memory() -> None:
    """Free two large arrays, so that glibc keeps pages for the smaller arrays of this thread.

    Otherwise it returns a chunk's arrays to the system and gets them back page by page, which takes
    longer than the arithmetic. The second array lies in what is kept, in huge pages.
    """
    if not getattr(_THREAD, "keeps_memory", False):
        np.empty(_KEPT_BYTES, dtype=np.uint8)
        np.empty(_KEPT_BYTES - (1 << 16), dtype=np.uint8)
        _THREAD.keeps_memory = True
