"""The weighted sum of many payloads, decoded and added up in one pass.

In kernels every thread takes a range of entries and goes through all payloads for it, so that a
chunk of the sum stays in the cache while thousands of updates are added to it, and no update is
ever whole in memory. The plain path decodes one update after the other. The result is the same,
bit for bit, and does not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

import numpy as np

from jopeq.errors import DesignError, PayloadError
from jopeq.kernels.device import add_body, can_code, tensor_of
from jopeq.randomness import SharedStream
from jopeq.scaling import Scale
from jopeq.schemes import Scheme, written_scheme
from jopeq.wire import Header, open_payload

_TOGETHER = 256  # payloads opened at a time, of however many an iterator yields


def aggregate(
    payloads: Iterable[bytes],
    weights: Sequence[float] | None = None,
    *,
    scheme: Scheme | None = None,
    key: bytes | None = None,
    device: Any = None,
) -> Any:
    """Σ weight·update as float64, in the updates' shape (a dict of arrays for states).

    Without ``weights`` the mean. All payloads must be of one scheme and shape: that of ``scheme``,
    else of the first. The first bad one raises ``PayloadError`` naming its place, and nothing is
    returned. Payloads may come from an iterator, which is read a few hundred at a time.

    Give ``scheme`` where clients are not trusted: without it the first payload names one, which
    may take seconds and a gigabyte to prepare (a channel to be designed, a codebook of E8). Of
    whole updates (``response`` with ``unit="update"``), no more than the default ``max_entries``
    are accepted then.

    With ``device`` the sum is a torch tensor there, and updates are decoded there.

    >>> import jopeq
    >>> s = jopeq.scheme("none")
    >>> payloads = [s.encode(np.full(3, value, np.float32)) for value in (1.0, 2.0)]
    >>> aggregate(payloads, [0.25, 0.75])
    array([1.75, 1.75, 1.75])
    """
    shares = None if weights is None else _checked(weights)
    total: _Total | None = None
    count = 0
    stream = iter(payloads)
    while batch := list(islice(stream, _TOGETHER)):
        opened: list[_Opened] = []
        for payload in batch:
            one = _open(payload, scheme, key, count + len(opened), total)
            scheme = one.scheme if scheme is None else scheme
            total = _Total(one.header, device) if total is None else total
            opened.append(one)
        assert total is not None  # a batch is never empty
        stop = count + len(opened)
        if shares is not None and stop > len(shares):
            raise ValueError(f"weights has {len(shares)} numbers for more payloads: give one each")
        _add(opened, [1.0] * len(opened) if shares is None else shares[count:stop], total, count)
        count = stop
    if total is None:
        raise ValueError("payloads is empty: there is nothing to aggregate")
    if shares is not None and count < len(shares):
        raise ValueError(f"weights has {len(shares)} numbers for {count} payloads: give one each")
    if shares is None:
        total.flat /= count
    return total.shaped()


@dataclass(frozen=True)
class _Opened:
    """A payload that was verified, its body not yet decoded."""

    scheme: Scheme
    header: Header
    body: memoryview
    scales: list[Scale]
    shared: SharedStream

    def add_to(self, total: _Total, share: float) -> None:
        """Decode, on the sum's device where that is known how, and add."""
        scheme = self.scheme
        parts = (self.body, self.header.sizes, self.scales, self.shared)
        if total.device is None:
            total.flat += share * scheme._entries_of(*parts).astype(np.float64)
        elif not scheme.rotate and can_code(scheme._recipe):
            add_body(total.flat, scheme._known_recipe, *parts, share)
        else:
            total.flat += share * tensor_of(scheme._entries_of(*parts), total.device).double()


class _Total:
    """The sum, and what every payload must look like."""

    def __init__(self, header: Header, device: Any) -> None:
        self.names, self.shapes = header.names, header.shapes
        self.device = device
        self.flat: Any = np.zeros(sum(header.sizes))
        if device is not None:
            self.flat = tensor_of(self.flat, device)

    def shaped(self) -> Any:
        if self.names == ("",):
            return self.flat.reshape(self.shapes[0])
        sizes = list(map(math.prod, self.shapes))
        return {
            name: self.flat[end - size : end].reshape(shape)
            for name, shape, size, end in zip(
                self.names, self.shapes, sizes, accumulate(sizes), strict=True
            )
        }


def _checked(weights: Sequence[float]) -> list[float]:
    shares = [float(weight) for weight in weights]
    for place, share in enumerate(shares):
        if not math.isfinite(share):
            raise ValueError(f"weights[{place}] is {share}: weights must be finite numbers")
    return shares


def _open(
    payload: bytes, scheme: Scheme | None, key: bytes | None, place: int, total: _Total | None
) -> _Opened:
    try:
        header, body = open_payload(payload, key)
        chosen = _named(header.scheme) if scheme is None else scheme
        scales = chosen._check(header)
        if total is not None and (header.names, header.shapes) != (total.names, total.shapes):
            raise PayloadError(f"it holds {_described(header)}, the others {_described(total)}")
        if len(set(header.names)) != len(header.names):
            raise PayloadError("it names a tensor twice")
        chosen._check_size(len(body), sum(header.sizes))  # before anything is allocated or read
        return _Opened(chosen, header, body, scales, chosen._shared(header, key))
    except PayloadError as error:
        raise type(error)(f"payload {place}: {error}") from error


def _named(spec: str) -> Scheme:
    try:
        return written_scheme(spec)
    except (ValueError, DesignError) as error:  # a specification that names no scheme
        raise PayloadError(str(error)) from error


def _short(name: str) -> str:
    return repr(name[:50])[1:-1]  # no line breaks or control characters of a client's


def _described(header: Header | _Total) -> str:
    named = zip(header.names, header.shapes, strict=True)
    listed = ", ".join(f"{_short(name)}{shape}" for name, shape in islice(named, 10))
    return listed if len(header.names) <= 10 else f"{listed}, … ({len(header.names)} tensors)"


def _add(opened: list[_Opened], shares: list[float], total: _Total, place: int) -> None:
    """Add these payloads to the sum."""
    recipe = opened[0].scheme._fused(len(total.flat) * len(opened))
    if recipe is not None and total.device is None:
        from jopeq.kernels.cpu_aggregate import add_bodies

        bodies = [(one.body, one.scales, one.shared) for one in opened]
        failed = add_bodies(recipe, bodies, shares, opened[0].header.sizes, total.flat)
        if failed is not None:
            index, error = failed
            raise PayloadError(f"payload {place + index}: {error}") from error
        return
    for index, (one, share) in enumerate(zip(opened, shares, strict=True)):
        try:
            one.add_to(total, share)
        except PayloadError as error:
            raise PayloadError(f"payload {place + index}: {error}") from error
