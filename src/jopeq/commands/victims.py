"""Which images ``jopeq attack`` attacks: files, a data set, or the bundled photographs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from jopeq.commands.data_bar import load_with_bar

if TYPE_CHECKING:
    import torch

_PHOTOS = "photos"
_LEAST_SIDE = 3  # pixels: SSIM compares windows
_MOST_PIXELS = 1 << 20  # an attack keeps hundreds of copies of an image


def choose_victims(
    files: list[Path] | None,
    labels: list[int] | None,
    shape: str | None,
    data: str | None,
    data_dir: Path | None,
    images: int | None,
    classes: int | None,
    *,
    show: bool,
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Images, labels, and how many classes the model needs."""
    import torch
    from PIL import Image

    from jopeq.attacks.images import PHOTOS, photos, read_images

    count, known = 6 if images is None else images, 10 if classes is None else classes
    if files:
        if (data, data_dir, images) != (None, None, None):
            raise ValueError("--image replaces the data set: drop --data, --data-dir and --images")
        wanted = _parsed("3,32,32" if shape is None else shape)
        with warnings.catch_warnings():
            # Pillow warns of large pictures before ours are measured, and refused with a reason
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            found = read_images(files, wanted)
    elif (labels, shape, classes) != (None, None, None):
        raise ValueError("--label, --shape and --classes belong to --image: a data set has its own")
    elif data == _PHOTOS and data_dir is not None:
        raise ValueError(f"--data {_PHOTOS} is bundled: drop --data-dir, or name another data set")
    elif data == _PHOTOS or (data is None and data_dir is None):
        if count > PHOTOS:
            raise ValueError(
                f"--images must be at most {PHOTOS}, as many photographs are bundled, got {count}: "
                "give --data or --image for others"
            )
        found = photos(count)
    else:
        name = "cifar10" if data is None else data
        loaded = load_with_bar(name, None if data_dir is None else str(data_dir), show=show)
        if count > len(loaded.train_inputs):
            raise ValueError(
                f"--images must be at most {len(loaded.train_inputs)}, as many training images "
                f"has {name}, got {count}"
            )
        return loaded.train_inputs[:count], loaded.train_labels[:count], loaded.classes
    truths = list(range(len(found))) if labels is None else labels
    if len(truths) != len(found):
        raise ValueError(f"--label must be given once for each of {len(found)} images")
    if min(truths) < 0:
        raise ValueError(f"--label must be at least 0, got {min(truths)}")
    if labels is None:
        truths = [truth % known for truth in truths]
    return found, torch.tensor(truths), known


def _parsed(shape: str) -> tuple[int, int, int]:
    parts = [part.strip() for part in shape.split(",")]
    # longer numbers are beyond any image, and beyond what int() takes
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 20 for part in parts):
        raise ValueError(f"--shape must be C,H,W such as 3,32,32, got {shape!r}")
    channels, height, width = map(int, parts)
    if channels not in (1, 3):
        raise ValueError(f"--shape must begin with 1 (grey) or 3 (colour) channels, got {shape!r}")
    if min(height, width) < _LEAST_SIDE:
        raise ValueError(
            f"--shape must have sides of at least {_LEAST_SIDE} pixels, for SSIM to compare, "
            f"got {shape!r}"
        )
    if height * width > _MOST_PIXELS:
        raise ValueError(
            f"--shape must have at most {_MOST_PIXELS:,} pixels, got {shape!r}: give smaller sides"
        )
    return channels, height, width
