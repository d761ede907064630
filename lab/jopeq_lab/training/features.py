"""Public features: fixed maps of an image that every person computes at home, as rows of length 1.

Nothing in them was fitted to anybody's data, so they cost no privacy. They matter because a private
mean has the same noise in every direction: what counts is how far apart the classes lie on the unit
sphere.

| name | is |
|---|---|
| pixels | the pixels, less their mean |
| hog | histograms of gradient directions over cells, 4×4 and 7×7, less what cells share |
| table | measurements from 0 to 1, moved to [−1, 1] |
| rows | features that somebody has computed, as they are |
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

CONSTANT = 0.3  # the last entry, before the row is scaled to length 1: its weight is the bias
_CHUNK = 2000
_CELLS = (4, 7)  # of a side
_ANGLES = 8
_HARMONICS = (
    0.0,
    0.6,
    1.0,
    0.6,
    0.4,
)  # weights: the second is a line's direction, without its sign


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
    if not len(images):  # cuFFT takes no empty batch
        return features(images.new_zeros((1, *images.shape[1:])), kind)[:0]
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


def _table(images: torch.Tensor) -> torch.Tensor:
    return unit(2.0 * images.flatten(1) - 1.0)


def _hog(images: torch.Tensor) -> torch.Tensor:
    """Histograms of gradient directions, spread linearly between neighbours in place and angle.

    Over cells of two sizes. Their square roots lose the mean over a cell's angles and over a map's
    cells: what all images have in common is of no use, and takes up room on the sphere.
    """
    if min(images.shape[-2:]) < max(_CELLS):
        raise ValueError(
            f"features 'hog' need images of at least {max(_CELLS)}×{max(_CELLS)} pixels, got "
            f"{tuple(images.shape[-2:])}: take 'table' or 'pixels'"
        )
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    across = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    strength = torch.hypot(across, down)
    place = torch.atan2(down, across) / (2.0 * math.pi) % 1.0 * _ANGLES
    part = place - place.floor()
    first = place.long() % _ANGLES
    directed = strength.new_zeros((*strength.shape, _ANGLES))
    directed.scatter_(-1, first[..., None], (strength * (1.0 - part))[..., None])
    directed.scatter_add_(-1, ((first + 1) % _ANGLES)[..., None], (strength * part)[..., None])
    weights = torch.tensor(_HARMONICS).to(strength)
    found = []
    for cells in _CELLS:
        rows, columns = (_tents(side, cells).to(strength) for side in images.shape[-2:])
        maps = torch.einsum("ai,ncijo,bj->ncabo", rows, directed, columns).sqrt()
        waves = torch.fft.rfft(maps - maps.mean((2, 3), keepdim=True), dim=-1)
        found.append(unit(torch.fft.irfft(waves * weights, n=_ANGLES, dim=-1).flatten(1)))
    return unit(torch.cat(found, 1))


def _tents(side: int, cells: int) -> torch.Tensor:
    """Weights (cells, side) of pixels in cells: linear between two centres, all of it outside."""
    place = (torch.arange(side) + 0.5) / side * cells - 0.5
    place = place.clamp(0.0, cells - 1.0)
    return (1.0 - (place - torch.arange(cells)[:, None]).abs()).clamp_min(0.0)


KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pixels": _pixels,
    "hog": _hog,
    "table": _table,
    "rows": lambda images: unit(images.flatten(1)),
}
