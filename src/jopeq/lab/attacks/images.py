"""Images to attack: files, or crops of the two photographs that scikit-learn ships."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from jopeq.errors import DataError
from jopeq.lab.training.data import shipping_module

Shape = tuple[int, int, int]
PHOTOS = 6  # crops: three of each photograph
_SIDE, _BLOCK = 32, 6  # pixels of a crop, and pixels of the photograph averaged for each
_PLACES = ((0.0, 0.5, 1.0), (0.25, 0.5, 0.75))  # from left to right; the flower fills the middle
_LARGEST = 1 << 26  # pixels of a file that is read


def read_images(paths: Sequence[Path], shape: Shape) -> torch.Tensor:
    """Image files as (N, C, H, W) in [0, 1]: the largest centred part of the right proportions,
    resampled.
    """
    return torch.stack([_read(path, shape) for path in paths])


def photos(count: int = PHOTOS) -> torch.Tensor:
    """Colour crops of 32×32 pixels from scikit-learn's two sample photographs (N, 3, 32, 32).

    >>> photos(2).shape
    torch.Size([2, 3, 32, 32])
    """
    if not 1 <= count <= PHOTOS:
        raise ValueError(
            f"count must be from 1 to {PHOTOS}, as many crops are bundled, got {count}: give image "
            "files or a data set for more"
        )
    pictures = shipping_module("sklearn.datasets", "scikit-learn").load_sample_images().images
    side = _SIDE * _BLOCK
    crops = []
    for picture, places in zip(pictures, _PLACES, strict=True):
        height, width = picture.shape[:2]
        top = (height - side) // 2
        for left in (int(place * (width - side)) for place in places):
            window = picture[top : top + side, left : left + side].astype(np.float64) / 255.0
            blocks = window.reshape(_SIDE, _BLOCK, _SIDE, _BLOCK, 3).mean(axis=(1, 3))
            crops.append(torch.from_numpy(blocks.transpose(2, 0, 1).astype(np.float32)))
    mixed = crops[::3] + crops[1::3] + crops[2::3]  # both photographs among the first two
    return torch.stack(mixed[:count])


def _read(path: Path, shape: Shape) -> torch.Tensor:
    from PIL import Image, ImageOps, UnidentifiedImageError

    channels, height, width = shape
    if channels not in (1, 3):
        raise ValueError(
            f"image files have 1 or 3 channels, the model takes {channels}: attack a data set, or "
            "call jopeq.lab.attacks from Python"
        )
    try:
        with Image.open(path) as opened:
            if opened.width * opened.height > _LARGEST:
                raise DataError(
                    f"{path} has {opened.width}×{opened.height} pixels, {_LARGEST:,} are read at "
                    "most: shrink it first"
                )
            if opened.mode[0] in "FI":  # floats, and 16 bits or more
                raise DataError(f"{path} has pixels of more than 8 bits: convert the image")
            is_grey = opened.mode in ("1", "L", "LA")
            picture = ImageOps.exif_transpose(opened).convert("L" if is_grey else "RGB")
    except (OSError, UnidentifiedImageError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path} cannot be read as an image ({error}): give a PNG or JPEG"
        ) from error
    found = 1 if is_grey else 3
    if found != channels:
        raise DataError(
            f"{path} has {found} channel(s) and the model takes {channels}: convert the image, or "
            f"give --shape {found},{height},{width}"
        )
    fitted = ImageOps.fit(picture, (width, height), Image.Resampling.LANCZOS)
    pixels = np.asarray(fitted, dtype=np.float32).reshape(height, width, channels) / 255.0
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
