"""The picture grid: originals on top, reconstructions below them, SSIM under each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.analysis.drawing import new_figure, save

_ALL, _MOST = 2.8, 1.15  # inches of all images beside one another, and of one at most
_NAME, _CAPTION = 0.95, 0.22  # inches of a row's name, and of the line under an image
Pixels = NDArray[Any]  # (N, C, H, W), in [0, 1] or uint8


@dataclass(frozen=True, eq=False)
class Row:
    """Reconstructions beside their name, and their SSIM."""

    name: str
    images: Pixels
    ssim: Sequence[float]


def save_grid(originals: Pixels, rows: Sequence[Row], path: Path, title: str = "") -> None:
    """Draw one column per image and one row per attack."""
    count = len(originals)
    cell = min(_MOST, _ALL / count)
    figure = new_figure((_NAME + cell * count, (cell + _CAPTION) * (1 + len(rows)) + 0.3))
    panels = figure.subplots(1 + len(rows), count, squeeze=False)
    for place in range(count):
        _show(panels[0][place], originals[place], "")
        for panel, row in zip(panels[1:, place], rows, strict=True):
            _show(panel, row.images[place], f"{row.ssim[place]:.2f}")
    for panel, name in zip(
        panels[:, 0], ("original\n(SSIM below)", *(r.name for r in rows)), strict=True
    ):
        panel.set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center", labelpad=4)
    figure.suptitle(title, fontsize=9)
    save(figure, path)


def _show(panel: Any, image: Pixels, caption: str) -> None:
    pixels = image.astype(np.float64) / 255.0 if image.dtype == np.uint8 else image
    pixels = np.clip(np.nan_to_num(np.asarray(pixels, dtype=np.float64)), 0.0, 1.0)
    shown = pixels[0] if len(pixels) == 1 else pixels[:3].transpose(1, 2, 0)
    panel.imshow(shown, cmap="gray", vmin=0.0, vmax=1.0, interpolation="none")
    panel.set_xticks([])
    panel.set_yticks([])
    panel.set_xlabel(caption, fontsize=7, labelpad=1)
