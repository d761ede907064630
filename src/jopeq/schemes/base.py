"""What all schemes share: parameters, the walk from update to payload and back.

A scheme says how one chunk of scaled samples becomes symbols and symbols become samples; scaling,
chunking, seeds, packing and checks happen here, once.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, overload

import numpy as np
from numpy.typing import NDArray

from jopeq.coders import Coder
from jopeq.entries import Entries
from jopeq.errors import PayloadError
from jopeq.lattice import Lattice
from jopeq.privacy.guarantee import Guarantee
from jopeq.randomness import (
    NONCE_BYTES,
    SEED_BYTES,
    PrivateStream,
    SharedStream,
    describe_secret,
    fresh_seed,
)
from jopeq.scaling import Scale, Scaling
from jopeq.wire import Header, open_payload, seal

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """What happened to one update on its way to bytes."""

    entries: int
    samples: int
    clipped: int  # samples moved into the unit ball
    overloaded: int  # samples beyond the codebook, sent as its nearest letter
    payload_bytes: int
    body_bytes: int

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


@dataclass(frozen=True, kw_only=True)
class Scheme(ABC):
    """Encode, decode, guarantee. Immutable, hashable, picklable, safe to share among threads.

    Scaling: ``clip`` is a public bound on a sample's norm; without it the paper's norm scaling
    applies, one unit being ``spread``·‖h‖/√M, per "update" or per "tensor", after removing the mean
    when ``center`` is set.
    """

    name: ClassVar[str]
    has_dither: ClassVar[bool] = True
    is_scaled: ClassVar[bool] = True

    clip: float | None = None
    spread: float = 3.0
    per: str = "update"
    center: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):  # so that 4 and 4.0 make equal schemes with equal specs
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool) and "float" in field.type:
                object.__setattr__(self, field.name, float(value))
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

    # What all share

    @cached_property
    def _scaling(self) -> Scaling:
        return Scaling(self.clip, self.spread, self.per, self.center)

    @cached_property
    def spec(self) -> str:
        """Name and parameters that are not defaults, as JSON: the scheme as a payload names it."""
        changed = {
            field.name: _plain(getattr(self, field.name))
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
        statistics: Literal[True],
    ) -> tuple[bytes, Statistics]: ...

    def encode(
        self,
        update: Any,
        *,
        seed: bytes | None = None,
        key: bytes | None = None,
        noise: PrivateStream | None = None,
        statistics: bool = False,
    ) -> bytes | tuple[bytes, Statistics]:
        """The payload of an update: any float array or tensor, of any shape.

        ``key`` (32 bytes, agreed once) hides the dither from everyone else; without it the payload
        carries its own fresh seed. ``seed`` fixes that seed (or the nonce) and ``noise`` the noise:
        for tests only, since what repeats is not private.
        """
        payload, counted = self._encode(Entries.of_update(update), seed, key, noise)
        return (payload, counted) if statistics else payload

    def decode(self, payload: bytes, *, key: bytes | None = None) -> NDArray[np.float32]:
        """The update in a payload, float32 in its own shape; raises ``PayloadError``."""
        header, flat = self._decode(payload, key)
        if header.names != ("",):
            raise PayloadError(
                "this payload holds a state of named tensors: use jopeq.decode_state"
            )
        return flat.reshape(header.shapes[0])

    def _encode(
        self,
        entries: Entries,
        seed: bytes | None,
        key: bytes | None,
        noise: PrivateStream | None,
    ) -> tuple[bytes, Statistics]:
        entries.check_finite()
        scales = self._scaling.measure(entries, self.dimension) if self.is_scaled else []
        header = Header(
            scheme=self.spec,
            names=entries.names,
            shapes=entries.shapes,
            seed=self._seed(seed, key),
            is_keyed=self.has_dither and key is not None,
            scales=tuple(scales) if self.is_scaled and self._scaling.is_sent() else (),
            is_centered=self.is_scaled and self.center,
        )
        shared = header.shared_stream(key) if self.has_dither else SharedStream(bytes(SEED_BYTES))
        private = PrivateStream() if noise is None else noise
        samples = self._samples(entries.count)
        body, clipped, overloaded = [], 0, 0
        for first in range(0, samples, self._coder.chunk):
            last = min(first + self._coder.chunk, samples)
            chunk = self._read_scaled(entries, scales, first, last)
            symbols = self._to_symbols(chunk, first, shared, private)
            body.append(self._coder.encode(symbols.values))
            clipped += symbols.clipped
            overloaded += symbols.overloaded
        payload = seal(header.to_bytes(), body, key if header.is_keyed else None)
        body_bytes = sum(map(len, body))
        return payload, Statistics(
            entries.count, samples, clipped, overloaded, len(payload), body_bytes
        )

    def _seed(self, seed: bytes | None, key: bytes | None) -> bytes:
        length = SEED_BYTES if key is None else NONCE_BYTES
        if not self.has_dither:
            if seed is not None or key is not None:
                raise ValueError(f"scheme {self.name!r} has no dither: drop seed and key")
            return b""
        if seed is None:
            return fresh_seed(length)
        if not isinstance(seed, bytes) or len(seed) != length:
            kind = "seed" if key is None else "seed (a nonce when a key is given)"
            raise ValueError(f"{kind} must be {length} bytes, got {describe_secret(seed)}")
        return seed

    def _samples(self, count: int) -> int:
        return -(-count // self.dimension)

    def _read_scaled(self, entries: Entries, scales: list[Scale], first: int, last: int) -> Array:
        """Samples first…last in scaled units; the last one is filled up with zeros."""
        size = self.dimension
        flat = np.zeros((last - first) * size)
        filled = 0
        for tensor, piece in entries.read(first * size, last * size):
            if self.is_scaled:
                piece = scales[tensor if len(scales) > 1 else 0].apply(piece)
            flat[filled : filled + len(piece)] = piece
            filled += len(piece)
        return flat.reshape(-1, size)

    def _decode(self, payload: bytes, key: bytes | None) -> tuple[Header, NDArray[np.float32]]:
        header, body = open_payload(payload, key)
        scales = self._check(header)
        count = sum(header.sizes)
        samples = self._samples(count)
        coder = self._coder
        coder.check(len(body), samples)
        shared = header.shared_stream(key) if self.has_dither else SharedStream(bytes(SEED_BYTES))
        size = self.dimension
        flat = np.empty(count, dtype=np.float32)
        position = 0
        for first in range(0, samples, coder.chunk):
            last = min(first + coder.chunk, samples)
            symbols, position = coder.decode(body, position, last - first)
            start, stop = first * size, min(last * size, count)
            values = self._to_samples(symbols, first, shared).reshape(-1)[: stop - start]
            if self.is_scaled:
                _unscale(values, header.sizes, scales, start)
            flat[start:stop] = values
        if position != len(body):
            raise PayloadError(f"{len(body) - position} bytes follow the last sample")
        return header, flat

    def _check(self, header: Header) -> list[Scale]:
        """Raise unless the header is one this scheme writes; the scales of its tensor groups."""
        if header.scheme != self.spec:
            raise PayloadError(
                f"the payload was made by scheme {header.scheme}, this decoder is {self.spec}"
            )
        sends_scales = self.is_scaled and self._scaling.is_sent()
        groups = len(self._scaling.groups(len(header.shapes)))
        if (
            bool(header.seed) != self.has_dither
            or len(header.scales) != (groups if sends_scales else 0)
            or header.is_centered != (self.is_scaled and self.center)
        ):
            raise PayloadError("the header's seed or scales are not those of its scheme")
        if not self.is_scaled:
            return []
        return list(header.scales) if sends_scales else self._scaling.public(len(header.shapes))


def _unscale(values: Array, sizes: tuple[int, ...], scales: list[Scale], start: int) -> None:
    """Undo the scaling of the entries from ``start`` on, in place, tensor by tensor."""
    offset = 0
    for tensor, size in enumerate(sizes):
        low, high = max(offset - start, 0), min(offset + size - start, len(values))
        if low < high:
            scale = scales[tensor if len(scales) > 1 else 0]
            values[low:high] = scale.undo(values[low:high])
        offset += size


def _plain(value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, Lattice):
        return value.name if value.generator is None else value.generator
    return value
