"""The picture grid: originals on top, reconstructions below them, SSIM under each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq_lab.pictures.drawing import new_figure, save

_ALL, _MOST = 2.8, 1.15  # inches of all images side by side, and of one at most
_BESIDE = 4
_NAME, _CAPTION = 0.95, 0.22  # inches of a row's name, and of the line under an image
Pixels = NDArray[Any]  # (N, C, H, W), in [0, 1] or uint8


@dataclass(frozen=True, eq=False)
class Row:
    """Reconstructions with their name and their SSIM."""

    name: str
    images: Pixels
    ssim: Sequence[float]


def save_grid(originals: Pixels, rows: Sequence[Row], path: Path, title: str = "") -> None:
    """Draw one column per image and one row per attack; attacks on one image side by side."""
    count = len(originals)
    if count == 1:
        figure = _side_by_side([Row("original", originals, ()), *rows])
    else:
        cell = min(_MOST, _ALL / count)
        figure = new_figure((_NAME + cell * count, (cell + _CAPTION) * (1 + len(rows)) + 0.3))
        panels = figure.subplots(1 + len(rows), count, squeeze=False)
        for place in range(count):
            _show(panels[0][place], originals[place], "")
            for panel, row in zip(panels[1:, place], rows, strict=True):
                _show(panel, row.images[place], f"{row.ssim[place]:.2f}")
        names = ("original\n(SSIM below)", *(row.name for row in rows))
        for panel, name in zip(panels[:, 0], names, strict=True):
            panel.set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center", labelpad=4)
    figure.suptitle(title, fontsize=9)
    save(figure, path)


def _side_by_side(rows: Sequence[Row]) -> Any:
    """Four pictures next to each other, each under its name; a phone shows all four."""
    down = -(-len(rows) // _BESIDE)
    figure = new_figure((_MOST * _BESIDE, (_MOST + 2.5 * _CAPTION) * down + 0.3))
    panels = figure.subplots(down, _BESIDE, squeeze=False).reshape(-1)
    for panel, row in zip(panels, rows, strict=False):
        _show(panel, row.images[0], f"SSIM {row.ssim[0]:.2f}" if row.ssim else "")
        panel.set_title(row.name, fontsize=8)
    for panel in panels[len(rows) :]:
        panel.set_axis_off()
    return figure


def _show(panel: Any, image: Pixels, caption: str) -> None:
    pixels = image.astype(np.float64) / 255.0 if image.dtype == np.uint8 else image
    pixels = np.clip(np.nan_to_num(np.asarray(pixels, dtype=np.float64)), 0.0, 1.0)
    shown = pixels[0] if len(pixels) == 1 else pixels[:3].transpose(1, 2, 0)
    panel.imshow(shown, cmap="gray", vmin=0.0, vmax=1.0, interpolation="none")
    panel.set_xticks([])
    panel.set_yticks([])
    panel.set_xlabel(caption, fontsize=7, labelpad=1)
