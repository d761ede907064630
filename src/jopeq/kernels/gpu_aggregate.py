"""Many payloads into one weighted sum on a GPU: decoded and added in the same pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from jopeq.errors import PayloadError
from jopeq.kernels.gpu_decode import decode_into, is_safe
from jopeq.kernels.recipe import Recipe
from jopeq.scaling import Scale

Opened = tuple[bytes | memoryview, Sequence[Scale], bytes | None]
"""Body, scales and dither key of one payload."""


def aggregate(
    recipe: Recipe,
    bodies: Iterable[Opened],
    weights: Iterable[float],
    sizes: Sequence[int],
    device: torch.device,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Σ weight·update over all payloads; never holds a decoded update beside the sum."""
    total = torch.zeros(sum(sizes), dtype=dtype, device=device)
    for (body, scales, key), weight in zip(bodies, weights, strict=True):
        add_body(total, recipe, body, sizes, scales, key, weight)
    return total


def add_body(
    total: torch.Tensor,
    recipe: Recipe,
    body: bytes | memoryview,
    sizes: Sequence[int],
    scales: Sequence[Scale],
    shared_key: bytes | None,
    weight: float,
) -> None:
    """Add weight·update to a flat float64 or float32 sum; nothing is added when the body is bad.

    Each entry counts as the float32 that ``decode`` gives; the product and the sum are float64,
    rounded once to the type of the sum.
    """
    if not is_safe(recipe, scales):
        raise PayloadError("the payload holds numbers too large for float32")
    decode_into(total, recipe, body, sizes, scales, shared_key, weight)
