"""The picture grid: originals on the left, reconstructions beside them, SSIM under each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jopeq.analysis.drawing import new_figure

_LINES, _LINE = 3, 0.14  # lines of a heading that fit; inches for each further line
Pixels = NDArray[Any]  # (N, C, H, W), in [0, 1] or uint8


@dataclass(frozen=True, eq=False)
class Column:
    """Reconstructions under a heading, and their SSIM."""

    title: str
    images: Pixels
    ssim: Sequence[float]


def save_grid(originals: Pixels, columns: Sequence[Column], path: Path, title: str = "") -> None:
    """Draw one row per image and one column per attack."""
    rows = len(originals)
    lines = max((1 + column.title.count("\n") for column in columns), default=1)
    size = (1.15 * (1 + len(columns)), 1.32 * rows + 0.75 + _LINE * max(0, lines - _LINES))
    figure = new_figure(size)
    panels = figure.subplots(rows, 1 + len(columns), squeeze=False)
    for row in range(rows):
        _show(panels[row][0], originals[row], "")
        for place, column in enumerate(columns, start=1):
            _show(panels[row][place], column.images[row], f"{column.ssim[row]:.2f}")
    panels[0][0].set_title("original", fontsize=8)
    panels[-1][0].set_xlabel("SSIM", fontsize=8)
    for place, column in enumerate(columns, start=1):
        panels[0][place].set_title(column.title, fontsize=8)
    if title:
        figure.suptitle(title, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _show(panel: Any, image: Pixels, caption: str) -> None:
    pixels = image.astype(np.float64) / 255.0 if image.dtype == np.uint8 else image
    pixels = np.clip(np.nan_to_num(np.asarray(pixels, dtype=np.float64)), 0.0, 1.0)
    shown = pixels[0] if len(pixels) == 1 else pixels[:3].transpose(1, 2, 0)
    panel.imshow(shown, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    panel.set_xticks([])
    panel.set_yticks([])
    panel.set_xlabel(caption, fontsize=8)
