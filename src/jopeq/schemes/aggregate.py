"""The weighted sum of many payloads, decoded and added up in one pass.

Kernels take a chunk of the sum through all payloads, so that no update is ever whole in memory. The
plain path decodes one update after another. Both give the same bits for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence, Sized
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq import kernels
from jopeq.errors import PayloadError
from jopeq.kernels.device import tensor_of
from jopeq.schemes.base import MORE_TENSORS, Scheme
from jopeq.schemes.codec import Opened
from jopeq.wire.entries import select_sent
from jopeq.wire.payload import MAX_TENSORS

_Layout = tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]

_TOGETHER = 256  # payloads opened at a time, of however many an iterator yields


def aggregate(
    payloads: Iterable[bytes],
    weights: Sequence[float] | None = None,
    *,
    scheme: Scheme,
    like: Any = None,
    secret: bytes | None = None,
    device: Any = None,
) -> Any:
    """Σ weight·update as float64, in the updates' shape (a dict of arrays for states).

    Without ``weights`` it is the mean. All payloads must be of ``scheme`` and of one shape: that of
    ``like`` (an update or a state), or else that of the first, which then chooses the memory. A bad
    payload raises ``PayloadError`` naming its place, and nothing is returned. An iterator of
    payloads is read a few hundred at a time. With ``device`` updates are decoded and added up
    there, and the sum is a torch tensor.

    >>> import jopeq
    >>> s = jopeq.scheme("none")
    >>> payloads = [s.encode(np.full(3, value, np.float32)) for value in (1.0, 2.0)]
    >>> aggregate(payloads, [0.25, 0.75], scheme=s)
    array([1.75, 1.75, 1.75])
    """
    if not isinstance(scheme, Scheme):
        raise TypeError(
            f"scheme must be the Scheme that the clients encode with, got {scheme!r:.50}: payloads "
            "do not choose it, since a hostile one could name a scheme that costs gigabytes"
        )
    shares = None if weights is None else [float(weight) for weight in weights]
    for place, share in enumerate(shares or ()):
        if not math.isfinite(share):
            raise ValueError(f"weights[{place}] is {share}: weights must be finite numbers")
    layout: _Layout | None = None
    if like is not None:
        names, values = select_sent(like)
        layout = names, tuple([tuple(np.shape(value)) for value in values])
    total: Any = None
    count = 0
    stream = iter(payloads)
    while batch := list(islice(stream, _TOGETHER)):
        opened: list[Opened] = []
        for payload in batch:
            one = _open(payload, scheme, secret, count + len(opened), layout)
            layout = one.header.names, one.header.shapes
            opened.append(one)
        if total is None:
            total = np.zeros(sum(opened[0].sizes))
            total = total if device is None else tensor_of(total, device)
        stop = count + len(opened)
        if shares is not None and stop > len(shares):
            many = len(payloads) if isinstance(payloads, Sized) else f"{stop} or more"
            raise ValueError(
                f"weights has {len(shares)} numbers for {many} payloads: give one each"
            )
        own = [1.0] * len(opened) if shares is None else shares[count:stop]
        _, failed = _add(scheme, opened, own, total, device)
        if failed:
            first = min(failed)
            raise PayloadError(f"payload {count + first}: {failed[first]}") from failed[first]
        count = stop
    if total is None:
        raise ValueError("payloads is empty: there is nothing to aggregate")
    if shares is not None and count < len(shares):
        raise ValueError(f"weights has {len(shares)} numbers for {count} payloads: give one each")
    if shares is None:
        total /= count
    return opened[0].header.arrange(total)


def add_share(total: NDArray[np.float64], update: NDArray[np.float32], share: float) -> float:
    """Add share·update to a sum, in the arithmetic of every average here; returns Σ entry²."""
    wide = update.astype(np.float64)
    energy = float(np.dot(wide, wide))
    wide *= share
    total += wide
    return energy


def _open(
    payload: bytes, scheme: Scheme, secret: bytes | None, place: int, layout: _Layout | None
) -> Opened:
    most = MAX_TENSORS if layout is None else len(layout[0]) + MORE_TENSORS
    try:
        opened = scheme.open(payload, secret=secret, most_tensors=most)
        header = opened.header
        found = header.names, header.shapes
        if layout is not None and found != layout:
            raise PayloadError(f"it holds {_describe(*found)}, expected {_describe(*layout)}")
        if len(set(header.names)) != len(header.names):
            raise PayloadError("it names a tensor twice")
        opened.check_size()  # before anything is allocated or read
        return opened
    except PayloadError as error:
        raise type(error)(f"payload {place}: {error}") from error


def _describe(names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> str:
    named = islice(zip(names, shapes, strict=True), 10)
    # ``repr`` lets no line break or control character of a client through
    listed = ", ".join(f"{repr(name[:50])[1:-1]}{shape}" for name, shape in named)
    return listed if len(names) <= 10 else f"{listed}, … ({len(names)} tensors)"


def weighted_sum(
    opened: Sequence[Opened], weights: Sequence[float], scheme: Scheme
) -> tuple[NDArray[np.float64], list[float], dict[int, PayloadError]]:
    """Σ weight·update of payloads of one layout, their norms, and the errors by place.

    Payloads with an error may be in the sum in part, so add up the others again.
    """
    total = np.zeros(sum(opened[0].sizes))
    energies: list[float] = []
    failed: dict[int, PayloadError] = {}
    for start in range(0, len(opened), _TOGETHER):
        stop = start + _TOGETHER
        found, bad = _add(scheme, opened[start:stop], weights[start:stop], total)
        energies += found
        failed.update({start + index: error for index, error in bad.items()})
    return total, [math.sqrt(energy) for energy in energies], failed


def _add(
    scheme: Scheme,
    opened: Sequence[Opened],
    shares: Sequence[float],
    total: Any,
    device: Any = None,
) -> tuple[list[float], dict[int, PayloadError]]:
    """Add payloads to the sum: Σ entry² of each (0 on a device), and the errors by place."""
    recipe = scheme.codec.choose(len(total) * len(opened), device)
    if recipe is not None and device is None:
        bodies = [(one.body, one.scales, one.shared) for one in opened]
        return kernels.cpu.add_bodies(recipe, bodies, list(shares), opened[0].sizes, total)
    energies, failed = [0.0] * len(opened), {}
    for index, (one, share) in enumerate(zip(opened, shares, strict=True)):
        try:
            if device is None:
                energies[index] = add_share(total, one.decode(), share)
            elif recipe is not None:
                from jopeq.kernels.gpu import add_body

                add_body(total, recipe, one.body, one.sizes, one.scales, one.shared, share)
            else:
                total += share * one.decode(device).double()
        except PayloadError as error:
            failed[index] = error
    return energies, failed
