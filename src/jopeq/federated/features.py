"""Public features: fixed maps of an image that every person computes at home, as rows of length 1.

Nothing in them was fitted to anybody's data, so they cost no privacy. They matter because a private
mean has the same noise in every direction: what counts is how far apart the classes lie on the unit
sphere.

| name | is |
|---|---|
| pixels | the pixels, less their mean |
| hog | histograms of oriented gradients over cells, square roots, less their mean |
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

CONSTANT = 0.3  # the last entry, before the row is scaled to length 1: its weight is the bias
_CHUNK = 2000
_HOG = ((6, 9),)  # (cells a side, orientations)


def features(images: torch.Tensor, kind: str) -> torch.Tensor:
    """Features of images (N, C, H, W), as rows (N, p) of length 1 (zero rows stay zero).

    >>> features(torch.rand(3, 1, 28, 28), "pixels").shape
    torch.Size([3, 784])
    >>> round(float(features(torch.rand(3, 1, 28, 28), "hog")[0].norm()), 4)
    1.0
    """
    if kind not in KINDS:
        raise ValueError(f"features must be one of {', '.join(KINDS)}, got {kind!r}")
    if images.ndim != 4 or not images.is_floating_point():
        raise ValueError(f"images must be floats (N, C, H, W), got {tuple(images.shape)}")
    return torch.cat([KINDS[kind](some) for some in torch.split(images, _CHUNK)])


def unit(rows: torch.Tensor) -> torch.Tensor:
    """Rows of length 1; a row of zeros stays one."""
    lengths: torch.Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / lengths.clamp_min(1e-12)


def finished(rows: torch.Tensor, center: torch.Tensor | None = None) -> torch.Tensor:
    """Features as a model takes them: less ``center``, of length 1, with a constant entry."""
    if center is not None:
        rows = unit(rows - center)
    constant = torch.full_like(rows[:, :1], CONSTANT)
    return torch.cat((rows, constant), 1) / math.sqrt(1.0 + CONSTANT**2)


def _centered(rows: torch.Tensor) -> torch.Tensor:
    return unit(rows - rows.mean(1, keepdim=True))


def _pixels(images: torch.Tensor) -> torch.Tensor:
    return _centered(images.flatten(1))


def _hog(images: torch.Tensor) -> torch.Tensor:
    """Histograms of gradient directions, shared linearly between neighbours in place and angle."""
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    across = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    strength = torch.hypot(across, down)
    turns = torch.atan2(down, across) / (2.0 * math.pi) % 1.0
    maps = [_histograms(strength, turns, cells, angles) for cells, angles in _HOG]
    return unit(torch.cat([_centered(unit(one.sqrt())) for one in maps], 1))


def _histograms(
    strength: torch.Tensor, turns: torch.Tensor, cells: int, angles: int
) -> torch.Tensor:
    place = turns * angles
    low = place.floor()
    share = place - low
    first = low.long() % angles
    directed = strength.new_zeros((*strength.shape, angles))
    directed.scatter_(-1, first[..., None], (strength * (1.0 - share))[..., None])
    directed.scatter_add_(-1, ((first + 1) % angles)[..., None], (strength * share)[..., None])
    rows, columns = (_tents(side, cells).to(strength) for side in strength.shape[-2:])
    return torch.einsum("ai,ncijo,bj->ncabo", rows, directed, columns).flatten(1)


def _tents(side: int, cells: int) -> torch.Tensor:
    """Weights (cells, side) of pixels in cells: linear between two centres, all of it outside."""
    place = (torch.arange(side) + 0.5) / side * cells - 0.5
    place = place.clamp(0.0, cells - 1.0)
    return (1.0 - (place - torch.arange(cells)[:, None]).abs()).clamp_min(0.0)


KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"pixels": _pixels, "hog": _hog}
