"""What a client tells of its own coding: to its log freely, to the server by a private channel.

``diagnostics=ε`` sends the share s of samples that the clip cut. It travels in the reply's config
record as ``FIELD``: a payload of ``response`` at ε for the one number 2s − 1. It is unbiased,
exactly ε-private against the server, and charged beside the update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from logging import DEBUG, INFO, WARNING, getLogger
from typing import Any

import numpy as np
from flwr.app import ConfigRecord
from flwr.common.logger import log

from jopeq.entries.channelled import Response
from jopeq.errors import PayloadError
from jopeq.privacy import Guarantee
from jopeq.schemes.base import Scheme, Statistics

FIELD = "clipped-share"
_CHUNK = 1 << 16
_TOO_MANY = 0.5  # of the samples cut: what is left of the update is mostly signs


@lru_cache(maxsize=4)
def channel(epsilon: float) -> Response:
    """The scheme that a share travels with."""
    return Response(epsilon=epsilon, rate=2.0, clip=1.0)


def guarantee(epsilon: float) -> Guarantee:
    """Of one share, for the ledger and beside the update's."""
    return channel(epsilon).guarantee.for_update(1)


def noised(share: float, epsilon: float) -> bytes:
    """The client's side: a share from 0 to 1."""
    return channel(epsilon).encode(np.array([2.0 * share - 1.0]))


def read_share(record: Mapping[str, Any], epsilon: float) -> float | None:
    """The server's side: an unbiased estimate, which may lie outside [0, 1]; None without one.

    >>> shares = [read_share({FIELD: noised(0.3, 8.0)}, 8.0) for _ in range(200)]
    >>> bool(abs(np.mean(shares) - 0.3) < 0.1)
    True
    """
    found = record.get(FIELD)
    if found is None:
        return None
    if not isinstance(found, bytes):
        raise PayloadError(f"the clipped share must be bytes, got {type(found).__name__}")
    return (1.0 + float(channel(epsilon).decode(found, like=np.zeros(1))[0])) / 2.0


def clipped_share(scheme: Scheme, counted: Statistics) -> float:
    """The share of samples that lost something: those beyond the clip, or beyond the codebook."""
    is_overload = scheme.is_whole or not scheme.is_private
    lost = counted.overloaded if is_overload else counted.clipped
    return lost / counted.samples if counted.samples else 0.0


def report(scheme: Scheme, update: Mapping[str, Any], payload: bytes, counted: Statistics) -> None:
    """Log what coding did to this update. Nothing of it leaves the client."""
    if not getLogger("flwr").isEnabledFor(INFO):
        return
    try:
        share = clipped_share(scheme, counted)
        told = "JoPEQMod: sent %d bytes (%.2f bits an entry), %.1f%% of the update clipped, SNR %s"
        ratio = _signal_to_noise(scheme, update, payload)
        log(INFO, told, len(payload), counted.bits_per_entry, 100.0 * share, ratio)
        if share > _TOO_MANY and scheme.clip is not None:
            remedy = (
                "JoPEQMod: the clip %g cuts most of this update: raise it, or use clip='layers'"
            )
            log(WARNING, remedy, scheme.clip)
    except Exception:  # a log must not cost the reply
        log(DEBUG, "JoPEQMod: the coding could not be described", exc_info=True)


def _signal_to_noise(scheme: Scheme, update: Mapping[str, Any], payload: bytes) -> str:
    """Σh²/Σ(h̃ − h)² in dB, of the payload as the server will decode it."""
    decoded = scheme.decode(payload, like=update)
    signal = noise = 0.0
    with np.errstate(all="ignore"):
        for name, value in update.items():
            before, after = value.reshape(-1), decoded[name].reshape(-1)
            for start in range(0, before.size, _CHUNK):  # no copy of a whole tensor
                piece = np.nan_to_num(before[start : start + _CHUNK].astype(np.float64))
                signal += float(np.square(piece).sum())
                noise += float(np.square(after[start : start + _CHUNK] - piece).sum())
    if not (0.0 < signal < math.inf and 0.0 < noise < math.inf):
        return "undefined"
    return f"{10.0 * math.log10(signal / noise):.1f} dB"


def record_of(share: float, epsilon: float | None) -> ConfigRecord:
    """The reply's own record, with the noised share where it is asked for."""
    return ConfigRecord() if epsilon is None else ConfigRecord({FIELD: noised(share, epsilon)})
