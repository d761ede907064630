"""``Groups``: other schemes for some tensors of a state, by patterns of names, in one payload.

    header   names, shapes, seed and scales of all tensors, those of the first group first
    body     for each group its length in bytes (64 bits), then the bodies, one after the other

Groups come in the order of the patterns; the tensors that no pattern names are the last group. A
group without tensors is left out. Every group has a shared and a private stream of its own, keyed
by HMAC-SHA256 of the payload's key and the group's place: nothing random is used twice.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, reduce
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NoReturn

import numpy as np

from jopeq.errors import PayloadError
from jopeq.kernels.device import DeviceEntries, tensor_of
from jopeq.privacy.guarantee import Guarantee
from jopeq.random.streams import ChaChaStream, PrivateStream, SharedStream, derive, private_stream
from jopeq.schemes.base import Scheme, Statistics, warn_of_invalid
from jopeq.schemes.opened import Opened
from jopeq.wire.entries import Entries, Limits
from jopeq.wire.payload import MAX_TENSORS, Header, open_payload, seal
from jopeq.wire.scaling import Scale

_LENGTH = struct.Struct("<Q")
_BASE_ALONE = ("spread", "per", "center", "rotate", "statistics")

Part = tuple[Scheme, list[int]]  # a scheme and its tensors' places


@dataclass(frozen=True)
class Groups(Scheme):
    """``base`` for most tensors, and another scheme for those whose names match a pattern.

    The first pattern that fits counts (shell wildcards, as in ``fnmatch``; "*" also matches dots
    and slashes). A pattern's value is a scheme, or a number: ``base`` with that clip, or a mapping:
    ``base`` with those parameters.

    ``cost`` counts exactly: the sum over groups of samples × ε. ``guarantee`` is of one sample of
    the group with the largest ε. Each scheme in ``members`` can be audited by itself.

    >>> import jopeq
    >>> base = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.05)
    >>> scheme = Groups(base, {"fc.*": 0.01, "embed*": {"epsilon": 2.0}})
    >>> scheme.cost({"conv.weight": 10, "fc.weight": 5, "embed.weight": 100}).epsilon <= 260.0
    True
    >>> update = {"conv.weight": np.zeros(10), "fc.weight": np.zeros(5)}
    >>> sorted(scheme.decode(scheme.encode(update), like=update))
    ['conv.weight', 'fc.weight']

    Parameters
    ----------
    base : Scheme
        For tensors that no pattern names. All other parameters are those of its scheme.
    groups : mapping
        Patterns of names and what replaces ``base`` for them.
    """

    name: ClassVar[str] = "groups"

    base: Scheme = None  # type: ignore[assignment]  # required: fields of Scheme have defaults
    groups: Any = ()

    def __post_init__(self) -> None:
        if not isinstance(self.base, Scheme):
            raise ValueError(f"base must be a scheme, got {self.base!r:.50}")
        for name in _BASE_ALONE:
            if getattr(self, name) != getattr(Scheme, name):
                raise ValueError(f"{name} belongs to the schemes of the groups: give it to base")
        if self.clip is not None and self.clip != self.base.clip:  # an adaptive clip moves it
            object.__setattr__(self, "base", replace(self.base, clip=self.clip))
        given = self.groups.items() if isinstance(self.groups, Mapping) else self.groups
        found = tuple((str(pattern), self._member(value)) for pattern, value in given)
        if not found:
            raise ValueError("groups must name at least one pattern: else use base alone")
        object.__setattr__(self, "groups", found)
        for member in self.members:
            if isinstance(member, Groups) or member.is_whole or member.per == "layers":
                raise ValueError(
                    f"{member.spec} cannot be the scheme of a group: it codes all tensors together"
                )
            if member.center:
                raise ValueError("center=True is not for groups: drop it")
            if member.is_private != self.base.is_private:
                raise ValueError(
                    f"groups mix {self.base.spec}, and {member.spec}, of which one names no ε: its "
                    "tensors would travel in the clear; give every group an ε, or none"
                )
        clips = [member.clip for member in self.members]
        object.__setattr__(self, "clip", None if None in clips else self.base.clip)
        super().__post_init__()

    def _member(self, value: Any) -> Scheme:
        if isinstance(value, Scheme):
            return value
        return replace(self.base, **(value if isinstance(value, Mapping) else {"clip": value}))

    @property
    def members(self) -> tuple[Scheme, ...]:
        """The schemes of all groups, ``base`` last."""
        return (*(scheme for _, scheme in self.groups), self.base)

    def member(self, name: str) -> int:
        """The place in ``members`` of the scheme that codes a tensor of this name."""
        own = name.rpartition("/")[2]  # without the record's name that Flower puts before it
        for place, (pattern, _) in enumerate(self.groups):
            if fnmatchcase(name, pattern) or fnmatchcase(own, pattern):
                return place
        return len(self.groups)

    def parts(self, names: tuple[str, ...]) -> list[Part]:
        """The groups that have tensors, each with the tensors' places."""
        found: dict[int, list[int]] = {}
        for index, name in enumerate(names):
            found.setdefault(self.member(name), []).append(index)
        return [(self.members[place], found[place]) for place in sorted(found)]

    # Figures

    @property
    def is_private(self) -> bool:  # type: ignore[override]  # here it depends on the groups
        return self.base.is_private

    @property
    def is_seeded(self) -> bool:
        return any(member.is_seeded for member in self.members)

    @cached_property
    def spec(self) -> str:
        members = [[pattern, json.loads(scheme.spec)] for pattern, scheme in self.groups]
        content = {"base": json.loads(self.base.spec), "groups": members}
        return json.dumps([self.name, content], separators=(",", ":"), sort_keys=True)

    @property
    def dimension(self) -> int:
        return self.base.dimension

    @property
    def guarantee(self) -> Guarantee:
        """Of one sample of the group with the largest ε: a bound for samples of all groups.

        Samples count as single entries: groups of odd sizes make more pairs than their sum does.
        """
        found = [member.guarantee for member in self.members]
        worst = max(found, key=lambda one: one.epsilon)
        are_alike = all(one.mechanisms == worst.mechanisms for one in found)
        return replace(
            worst,
            delta=max(one.delta for one in found),
            is_exact=worst.is_exact and are_alike,
            sample_size=1,
            assumptions=tuple(dict.fromkeys(text for one in found for text in one.assumptions)),
            gaussian_mu=worst.gaussian_mu if are_alike else None,
        )

    def cost(self, sizes: Mapping[str, int]) -> Guarantee:
        """The sum over groups of what their samples cost."""
        parts = self.parts(tuple(sizes))
        names = list(sizes)
        costs = [
            scheme.cost({names[i]: sizes[names[i]] for i in indices}) for scheme, indices in parts
        ]
        return reduce(Guarantee.together_with, costs) if costs else self.base.cost({})

    def sends(self, name: str) -> bool:
        return self.members[self.member(name)].sends(name)

    @property
    def distortion(self) -> float:
        """That of ``base``, in its own scaled units."""
        return self.base.distortion

    @property
    def bits_per_entry(self) -> float:
        """Of the group that spends most."""
        return max(member.bits_per_entry for member in self.members)

    def scales_sent(self, names: tuple[str, ...]) -> int:
        return sum(s.scales_sent(_picked(names, indices)) for s, indices in self.parts(names))

    def scales_apart(self, names: tuple[str, ...]) -> bool:
        return any(s.scales_apart(_picked(names, indices)) for s, indices in self.parts(names))

    # Coding

    def _encode(
        self,
        entries: Entries | DeviceEntries,
        seed: bytes | None,
        key: bytes | None,
        noise: PrivateStream | None,
        limits: Limits | None,
    ) -> tuple[bytes, Statistics]:
        if not isinstance(entries, Entries):
            raise TypeError("groups are coded on the host: pass the state itself")
        own_seed = self.seed(seed, key)
        bare = Header(self.spec, entries.names, entries.shapes, own_seed, key is not None)
        shared, private = bare.shared_stream(key), private_stream(noise)
        scales: list[Scale] = []
        bodies, counts = [], np.zeros(4, dtype=np.int64)
        with np.errstate(all="ignore"):
            for number, (scheme, indices) in enumerate(self.parts(entries.names)):
                picked = _picked(entries.names, indices), _picked(entries.tensors, indices)
                piece = Entries(*picked)
                rules = scheme.limits("raise" if limits is None else "replace")
                sent, used = scheme.measured(piece, rules, scheme.scales_apart(piece.names))
                own_shared = SharedStream(_key(shared, number))
                own_private = PrivateStream.reproducible(_key(private, number))  # dropped below
                recipe = scheme.kernel_recipe(piece.count)
                body = scheme.coded(piece, used, own_shared, own_private, rules, recipe)
                scales += sent
                bodies.append(b"".join(body.parts))
                counts += (body.samples, body.clipped, body.overloaded, piece.invalid)
        header = bare._replace(
            scales=tuple(scales), has_statistics=self.scales_apart(entries.names)
        )
        lengths = b"".join(_LENGTH.pack(len(body)) for body in bodies)
        payload = seal(header.to_bytes(), [lengths, *bodies], key)
        samples, clipped, overloaded, invalid = counts.tolist()
        sizes = len(payload), len(lengths) + sum(map(len, bodies))
        counted = Statistics(entries.count, samples, clipped, overloaded, *sizes, invalid)
        warn_of_invalid(counted)
        return payload, counted

    def open(
        self, payload: bytes, *, key: bytes | None = None, most_tensors: int = MAX_TENSORS
    ) -> OpenedGroups:
        header, body = open_payload(payload, key, most_tensors=most_tensors)
        self.check_header(header)
        shared = header.shared_stream(key)
        found: list[tuple[list[int], Scheme, Opened]] = []
        parts = self.parts(header.names)
        bodies, scales = _bodies(body, len(parts)), iter(header.scales)
        for number, ((scheme, indices), piece) in enumerate(zip(parts, bodies, strict=True)):
            names = _picked(header.names, indices)
            own = header._replace(
                scheme=scheme.spec,
                names=names,
                shapes=_picked(header.shapes, indices),
                seed=header.seed if scheme.is_seeded else b"",
                scales=tuple(next(scales) for _ in range(scheme.scales_sent(names))),
                has_statistics=scheme.scales_apart(names),
            )
            stream = SharedStream(_key(shared, number))
            opened = Opened(scheme, own, piece, scheme.scales_of(own), stream)
            found.append((indices, scheme, opened))
        return OpenedGroups(self, header, body, [], shared, found)

    def _no_letters(self, *_: Any) -> NoReturn:
        raise TypeError("groups have no letters of their own: take each scheme of `members`")

    coder = property(_no_letters)
    to_letters = _no_letters  # type: ignore[assignment]
    to_samples = _no_letters  # type: ignore[assignment]


@dataclass(frozen=True)
class OpenedGroups(Opened):
    """A verified payload of ``Groups``: an opened body for each group."""

    parts: list[tuple[list[int], Scheme, Opened]]  # places of tensors

    def check_size(self) -> None:
        for _, _, part in self.parts:
            part.check_size()

    def decode(self, device: Any = None) -> Any:
        flat = np.empty(sum(self.sizes), np.float32)
        self.check_size()
        for indices, _, part in self.parts:
            entries = part.decode()
            for place, own in zip(self.places(indices), _slices(part.sizes), strict=True):
                flat[place] = entries[own]
        return flat if device is None else tensor_of(flat, device)

    def places(self, indices: list[int]) -> list[slice]:
        """Where the entries of these tensors are in the update's one row."""
        slices = list(_slices(self.sizes))
        return [slices[i] for i in indices]


def _picked(values: tuple[Any, ...], indices: list[int]) -> tuple[Any, ...]:
    return tuple(values[i] for i in indices)


def _slices(sizes: tuple[int, ...]) -> Iterator[slice]:
    return (slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True))


def _key(stream: ChaChaStream, number: int) -> bytes:
    """The key of one group: HMAC-SHA256(key, "jopeq group" ‖ 0 ‖ the group's number)."""
    return derive(stream.key_words.tobytes(), b"jopeq group", number.to_bytes(4, "little"))


def _bodies(body: memoryview, count: int) -> list[memoryview]:
    """The bodies of so many groups."""
    start = count * _LENGTH.size
    if len(body) < start:
        raise PayloadError("the payload ends before the lengths of its groups")
    lengths = [int(length) for (length,) in _LENGTH.iter_unpack(body[:start])]
    if sum(lengths) != len(body) - start:
        raise PayloadError("the lengths of the groups do not add up to the payload's")
    ends = list(accumulate(lengths, initial=start))
    return [body[begin:end] for begin, end in pairwise(ends)]
