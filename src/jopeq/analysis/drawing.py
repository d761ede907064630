"""Empty figures to draw on: no window, no global state, whatever backend is configured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


def new_figure(size: tuple[float, float]) -> Any:
    """A figure of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_panels(count: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """A figure, and its panels side by side; ``options`` are those of ``Figure.subplots``."""
    figure = new_figure(size)
    return figure, figure.subplots(1, count, squeeze=False, **options)[0]


def draw_mean_and_range(
    panel: Any,
    rounds: Sequence[Sequence[float]],
    *,
    color: str,
    label: str,
    linewidth: float = 1.5,
    alpha: float = 0.12,
) -> None:
    """Against rounds 1, 2, …: the mean of what each round holds as a line, the range as a band."""
    places = range(1, len(rounds) + 1)
    means = [statistics.fmean(values) for values in rounds]
    low, high = ([pick(values) for values in rounds] for pick in (min, max))
    panel.plot(places, means, color=color, label=label, linewidth=linewidth)
    panel.fill_between(places, low, high, color=color, alpha=alpha, linewidth=0)
