"""Images to attack: crops of the two photographs that scikit-learn ships."""

from __future__ import annotations

import numpy as np
import torch

PHOTOS = 6  # crops: three of each photograph
_SIDE, _BLOCK = 32, 6  # pixels of a crop, and pixels of the photograph averaged for each
_PLACES = ((0.0, 0.5, 1.0), (0.25, 0.5, 0.75))  # from left to right; the flower fills the middle


def photos(count: int = PHOTOS) -> torch.Tensor:
    """Colour crops of 32×32 pixels from scikit-learn's two sample photographs (N, 3, 32, 32).

    >>> photos(2).shape
    torch.Size([2, 3, 32, 32])
    """
    if not 1 <= count <= PHOTOS:
        raise ValueError(
            f"count must be from 1 to {PHOTOS}, as many crops are bundled, got {count}: give a "
            "data set for more"
        )
    from sklearn.datasets import load_sample_images

    pictures = load_sample_images().images
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
