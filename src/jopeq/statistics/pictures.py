"""Figures and JSON of answers. Matplotlib is imported when something is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

COLORS = ("#00875a", "#c4320a", "#175cd3", "#6941c6", "#b54708", "#475467")
BAR, ERROR = "#00a35a", "#000000"


def stack_panels(heights: Sequence[float], width: float = 5.4) -> tuple[Any, list[Any]]:
    """A Matplotlib figure and its panels, from top to bottom."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need Matplotlib: pip install 'jopeq[plots]'") from error
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, list(panels)


def plain(value: Any) -> Any:
    """Arrays, named tuples and dataclasses as JSON can hold them."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif hasattr(value, "__dataclass_fields__"):
        value = vars(value)
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, tuple | list) else value
