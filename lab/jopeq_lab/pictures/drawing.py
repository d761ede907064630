"""Figures that read well on paper, phones and dark pages: no window, no global state.

Panels stand side by side; ``save`` also stacks them, for phones. Lines have their names next to
them. An SVG file knows a second set of colours, for dark pages.
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from jopeq_lab.pictures.colours import in_the_dark

WIDTH = 5.4  # inches: 10-point letters keep 9 pixels on a phone of 360
_WIDE = 9.2  # of panels side by side: the site shows 5/6 of it in a window of 1,280 pixels
_NAME = 9.0  # points of a name next to a line
_LEADING = 1.3  # of two such names above one another


def new_figure(size: tuple[float, float]) -> Any:
    """Make a figure of this size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_panels(count: int, height: float, **options: Any) -> tuple[Any, Any]:
    """Make a figure with panels of this height in a row; even numbers above three in two columns.

    ``options`` are those of ``Figure.subplots``; panels share the horizontal axis unless told.
    """
    rows, columns = (1, count) if count <= 3 else (count // 2, 2)
    figure = new_figure((WIDTH if count == 1 else _WIDE, rows * height))
    options = {"sharex": True, "squeeze": False, **options}
    return figure, figure.subplots(rows, columns, **options).ravel()


def stacked(figure: Any) -> Any:
    """The figure, its panels now above one another and as high as before."""
    panels = [panel for panel in figure.axes if panel.get_subplotspec()]  # no colour bars
    old, new = panels[0].get_gridspec(), figure.add_gridspec(len(panels), 1)
    figure.set_size_inches(WIDTH, figure.get_figheight() / old.nrows * len(panels))
    for panel, place in zip(panels, new, strict=True):
        panel.set_subplotspec(place)
        panel.tick_params(labelbottom=True, labelleft=True)
    return figure


def dress(panel: Any, title: str = "", **settings: Any) -> None:
    """Title on the left, a light grid, two axes; ``settings`` are those of ``Axes.set``."""
    panel.set(**settings)
    panel.set_title(title, loc="left", fontsize=10)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.3)


def plain_number(value: float) -> str:
    """Write a number without powers of ten, unless it has many zeros after the point.

    >>> plain_number(0.001), plain_number(20_000), plain_number(1e7), plain_number(1e-9)
    ('0.001', '20,000', '10M', '10⁻⁹')
    """
    if value >= 1e6:
        return f"{value / 1e6:,g}M"
    mantissa, _, exponent = f"{value:.0e}".partition("e-")
    if exponent > "04":
        raised = str(int(exponent)).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{mantissa}·10⁻{raised}".removeprefix("1·")
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def plain_log(panel: Any, which: str, ticks: Sequence[float] | None = None) -> None:
    """Make axis ``"x"`` or ``"y"`` logarithmic, with plain numbers: powers of ten, or ``ticks``."""
    getattr(panel, f"set_{which}scale")("log")
    axis = getattr(panel, f"{which}axis")
    if ticks is not None:
        axis.set_ticks(ticks)
    axis.set_major_formatter(lambda value, _: plain_number(value))
    axis.set_minor_formatter("")


def name_lines(panel: Any, names: Sequence[tuple[float, str, str]]) -> None:
    """Write names next to the right end of lines: (height of the end, name, colour) each.

    Names that would overlap move apart as little as they need. Set the limits of the panel first.
    """
    panel.figure.draw_without_rendering()  # the layout decides how high a panel is
    box, points = panel.get_window_extent(), panel.figure.dpi / 72.0
    line = _LEADING * _NAME * points / box.height
    ordered = sorted(names)
    sizes = [line * (1 + name.count("\n")) for _, name, _ in ordered]
    ends = [panel.transData.transform((1.0, height))[1] for height, *_ in ordered]
    places = _apart([(end - box.y0) / box.height for end in ends], sizes)
    style = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center"}
    for place, (_, name, colour) in zip(places, ordered, strict=True):
        panel.annotate(name, (1.0, place), xytext=(5, 0), color=colour, fontsize=_NAME, **style)


def _apart(wanted: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """The places between 0 and 1 nearest to ascending ones where things of these sizes have room.

    >>> _apart([0.5, 0.5, 1.0], sizes=[0.25, 0.25, 0.25])
    [0.375, 0.625, 0.875]
    """
    offsets = [0.0, *accumulate((one + two) / 2 for one, two in pairwise(sizes))]
    groups: list[list[float]] = []  # of places less their offsets; a group stays together
    for place, offset in zip(wanted, offsets, strict=False):  # one offset where nothing is wanted
        groups.append([place - offset])
        while len(groups) > 1 and statistics.fmean(groups[-2]) > statistics.fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    means = [statistics.fmean(group) for group in groups for _ in group]
    most = 1.0 - offsets[-1] - (sizes[-1] / 2 if sizes else 0.0)  # the title is above
    pairs = zip(means, offsets, strict=False)
    return [max(0.0, min(most, mean)) + offset for mean, offset in pairs]


def svg(figure: Any) -> bytes:
    """The figure as an SVG file, dark on a dark page; the same numbers make the same bytes."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "jopeq"}):
        figure.savefig(file, format="svg", metadata={"Date": None}, dpi=200)
    return follow_page(file.getvalue()).encode()


def follow_page(drawing: str) -> str:
    """An SVG file of Matplotlib, given the colours that it has on a dark page."""
    head, start, body = drawing.partition(" <defs>")
    if "prefers-color-scheme" in head:
        return drawing
    return f"{head} <style>{in_the_dark(body)}</style>\n{start}{body}"


def save(figure: Any, path: Path, *, phone: bool = False) -> None:
    """Write the figure as the file's ending says; if told, also stacked to a file "…-phone"."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        path.write_bytes(svg(figure))
    else:
        figure.savefig(path, dpi=150)
    if phone:
        save(stacked(figure), path.with_stem(f"{path.stem}-phone"))
