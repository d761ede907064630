"""Updates on their way to the server: encoded to bytes, sent, decoded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jopeq.federated.vector import ModelVector
from jopeq.privacy.adaptive_clip import AdaptiveClip
from jopeq.random.streams import SEED_BYTES, PrivateStream, derive
from jopeq.schemes import Scheme, Statistics
from jopeq.schemes.state import decode_state

Vector = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Deliveries:
    """Updates as the server got them, and what they took."""

    decoded: list[Vector]
    statistics: list[Statistics]
    seconds: float


class Transport:
    """Real payloads, one for each client and round.

    Noise and dither come from the operating system's entropy. The dither of schemes that promise
    no privacy follows the run's seed, so that such runs repeat. Only with a ``noise_key``, for
    tests, is everything derived from it by HMAC, one key for each (seed, round, client).
    """

    def __init__(self, layout: ModelVector, seed: int, noise_key: bytes | None = None) -> None:
        self._layout, self._seed, self._noise_key = layout, seed, noise_key

    def send(
        self,
        scheme: Scheme,
        updates: Sequence[Vector],
        round_number: int,
        clients: Sequence[int],
    ) -> Deliveries:
        """Encode all, then decode all: what is done in a row is quicker than what alternates.

        All clients are in this process, so an update that diverged raises ``UpdateError``.
        """
        secrets = [self._secrets(scheme, round_number, client) for client in clients]
        start = time.perf_counter()
        if scheme.per == "tensor":  # scales are then measured tensor by tensor
            states = [self._named(update) for update in updates]
            sent = [
                scheme.encode(state, seed=seed, noise=noise, on_invalid="raise", statistics=True)
                for state, (seed, noise) in zip(states, secrets, strict=True)
            ]
            decoded = [
                _flat(decode_state(scheme, payload, like=state))
                for state, (payload, _) in zip(states, sent, strict=True)
            ]
        else:
            sent = [
                scheme.encode(update, seed=seed, noise=noise, on_invalid="raise", statistics=True)
                for update, (seed, noise) in zip(updates, secrets, strict=True)
            ]
            decoded = [scheme.decode(payload) for payload, _ in sent]
        seconds = time.perf_counter() - start
        return Deliveries(decoded, [statistics for _, statistics in sent], seconds)

    def _secrets(
        self, scheme: Scheme, round_number: int, client: int
    ) -> tuple[bytes | None, PrivateStream | None]:
        """Seed of the dither and noise; None where the scheme takes fresh ones."""
        seed = None
        if scheme.is_seeded and (self._noise_key is not None or not scheme.is_private):
            seed = self._derived(b"dither", round_number, client)
        return seed, self._stream(b"noise", round_number, client)

    def clip_bit(
        self,
        rule: AdaptiveClip,
        update: Vector,
        clip: float,
        dimension: int,
        round_number: int,
        client: int,
    ) -> int:
        """The client's private vote on the clip."""
        noise = self._stream(b"clip", round_number, client)
        return rule.bit(update, clip, dimension, noise)

    def _named(self, update: Vector) -> dict[str, Vector]:
        layout = self._layout
        ends = np.cumsum(layout.sizes)[:-1]
        pieces = np.split(update, ends)
        return {
            name: piece.reshape(shape)
            for name, shape, piece in zip(layout.names, layout.shapes, pieces, strict=True)
        }

    def _stream(self, purpose: bytes, round_number: int, client: int) -> PrivateStream | None:
        if self._noise_key is None:
            return None
        return PrivateStream.reproducible(self._derived(purpose, round_number, client))

    def _derived(self, purpose: bytes, round_number: int, client: int) -> bytes:
        if self._noise_key is None and purpose != b"dither":
            raise TypeError("no noise is derived without a key")
        key = bytes(SEED_BYTES) if self._noise_key is None else self._noise_key
        context = repr((self._seed, round_number, client)).encode()
        return derive(key, b"jopeq simulation " + purpose, context)


def _flat(state: Mapping[str, Vector]) -> Vector:
    return np.concatenate([piece.reshape(-1) for piece in state.values()])
