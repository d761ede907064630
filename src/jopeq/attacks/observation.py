"""What the server gets to see: the gradients of single images, through real payloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from jopeq.attacks.gradients import GradientMap
from jopeq.attacks.labels import checked_labels
from jopeq.attacks.likelihood import Likelihood, likelihood
from jopeq.federated.vector import ModelVector
from jopeq.random.streams import PrivateStream
from jopeq.schemes import Scheme
from jopeq.schemes.state import decode_state


@dataclass(frozen=True, eq=False)
class Observation:
    """The payloads of one image each, their schemes, and the gradients (N, d) decoded from them."""

    schemes: tuple[Scheme, ...]
    payloads: tuple[bytes, ...]
    gradients: torch.Tensor

    def __len__(self) -> int:
        return len(self.payloads)

    def likelihood(self) -> Likelihood:
        """What the payloads say to whoever knows scheme, seed and scale."""
        return likelihood(self.schemes, self.payloads)

    @classmethod
    def joined(cls, parts: Sequence[Observation]) -> Observation:
        """Several as one, to be attacked together."""
        return cls(
            tuple(scheme for part in parts for scheme in part.schemes),
            tuple(payload for part in parts for payload in part.payloads),
            torch.cat([part.gradients for part in parts]),
        )


def true_gradients(
    gradient_map: GradientMap,
    images: torch.Tensor,
    labels: torch.Tensor,
    which: torch.Tensor | None = None,
) -> torch.Tensor:
    """The gradients (N, d) that clients with one image each would send."""
    if images.ndim != 4 or not len(images):
        raise ValueError(
            f"images must be (N, C, H, W) with at least one image, got shape {tuple(images.shape)}"
        )
    labels = checked_labels(labels, len(images), gradient_map.classes)
    device, dtype = gradient_map.device, gradient_map.dtype
    with torch.no_grad():
        found = gradient_map(
            images.to(device, dtype),
            gradient_map.one_hot(labels),
            None if which is None else which.to(device),
        )
    if not bool(found.isfinite().all()):
        raise ValueError("the model's gradients are not finite: its weights or images are not")
    return found


def observe(
    scheme: Scheme,
    gradients: torch.Tensor,
    layout: ModelVector,
    noise: Sequence[PrivateStream] | None = None,
) -> Observation:
    """Encode and decode each row. ``noise`` fixes the noise, for tests only."""
    if gradients.ndim != 2 or not len(gradients):
        raise ValueError(
            "gradients must be (N, d), one row for each of at least one image, got shape "
            f"{tuple(gradients.shape)}"
        )
    rows = list(gradients.double().cpu().numpy())
    streams = [None] * len(rows) if noise is None else noise
    sent = [_sent(scheme, row, layout, stream) for row, stream in zip(rows, streams, strict=True)]
    payloads, decoded = zip(*sent, strict=True)
    return Observation(
        (scheme,) * len(rows), payloads, torch.stack([torch.from_numpy(back) for back in decoded])
    )


def _sent(
    scheme: Scheme,
    gradient: NDArray[np.float64],
    layout: ModelVector,
    noise: PrivateStream | None,
) -> tuple[bytes, NDArray[np.float32]]:
    if scheme.per != "tensor":
        payload = scheme.encode(gradient, noise=noise, on_invalid="raise")
        return payload, scheme.decode(payload)
    pieces = np.split(gradient, np.cumsum(layout.sizes)[:-1])
    named = zip(layout.names, layout.shapes, pieces, strict=True)
    state = {name: piece.reshape(shape) for name, shape, piece in named}
    payload = scheme.encode(state, noise=noise, on_invalid="raise")
    back = decode_state(scheme, payload, like=state).values()
    return payload, np.concatenate([piece.reshape(-1) for piece in back]).astype(np.float32)
