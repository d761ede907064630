"""The pictures of docs/guarantees.md: the errors of ``response``, per sample and for whole updates.

    python -m jopeq.experiments.guarantee_figures docs/figures

All seeds are fixed, so that the same code draws the same pictures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jopeq.experiments.spread_curve import save_spread_curves
from jopeq.experiments.whole_update import draw_whole_update, whole_update_table


def save_guarantees(folder: Path) -> None:
    """Every figure as a PNG file."""
    folder.mkdir(parents=True, exist_ok=True)
    save_spread_curves(folder / "spread.png")
    draw_whole_update(whole_update_table(), folder / "whole_update.png")


if __name__ == "__main__":
    save_guarantees(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/figures"))
