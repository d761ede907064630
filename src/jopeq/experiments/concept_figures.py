"""The pictures of docs/concepts.md, every number in them from the library.

    python -m jopeq.experiments.concept_figures docs/figures

Noise is drawn from a fixed key here, so that the same code draws the same pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jopeq.drawing import new_figure
from jopeq.experiments.concept_numbers import (
    CellPicture,
    cell_picture,
    pipeline_steps,
    server_view,
    surface,
)

_SETTINGS: Any = {"font.size": 10, "axes.titlesize": 11, "svg.hashsalt": "jopeq"}


def draw_cells(figure: Any) -> None:
    """One sample on A2: nearest point, dither, noise."""
    shown = cell_picture()
    panels = figure.subplots(1, 3)
    for panel in panels:
        _lattice(panel, shown)
    first, second, third = panels
    for panel, way in ((first, shown.plain), (second, shown.dithered)):
        panel.plot(*way.moved, "o", color="C0", ms=5)
        panel.annotate("", way.point, way.moved, arrowprops={"arrowstyle": "->", "color": "C0"})
        panel.plot(*way.point, "s", color="C0", ms=7)
        panel.plot(*shown.sample, "k+", ms=13, mew=2)
        panel.plot(*way.decoded, "x", color="C3", ms=9, mew=2)
    second.scatter(*shown.dithers.T, s=2, color="C0", alpha=0.25, lw=0, rasterized=True)
    way = shown.dithered
    for end, start, colour in ((way.moved, shown.sample, "C0"), (way.decoded, way.point, "C3")):
        second.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour})
    first.set_title("nearest point: the error depends on x")
    second.set_title("+ dither d, − d at the server")
    third.scatter(*shown.with_noise.T, s=3, color="C1", alpha=0.35, lw=0, rasterized=True)
    third.scatter(*shown.without_noise.T, s=3, color="C3", alpha=0.5, lw=0, rasterized=True)
    third.plot(*shown.sample, "k+", ms=13, mew=2)
    third.set_title("decoded 1,500 times")
    _legend(first, {"x, the sample": "k+", "nearest codeword": "C0s", "decoded": "C3x"})
    _legend(second, {"x + d": "C0o", "any x + d": "C0.", "nearest": "C0s", "decoded": "C3x"})
    names = (shown.quiet_name, shown.noisy_name)
    _legend(third, {names[0]: "C3o", names[1]: "C1o"})


def _lattice(panel: Any, shown: CellPicture) -> None:
    from matplotlib.patches import Circle, Polygon

    for corners in shown.cells:
        panel.add_patch(Polygon(corners, fill=False, ec="0.75", lw=0.8))
    panel.plot(*shown.codewords.T, ".", color="0.45", ms=4)
    panel.add_patch(Circle((0, 0), 1.0, fill=False, ec="black", lw=1, ls="--"))
    panel.set(xlim=(-1.7, 1.7), ylim=(-1.9, 1.5), aspect="equal", xticks=[], yticks=[])


def _legend(panel: Any, marks: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [], [], color="k" if mark[0] == "k" else mark[:2], marker=mark[-1], ls="", label=name
        )
        for name, mark in marks.items()
    ]
    panel.legend(
        handles=handles,
        fontsize=8,
        loc="lower center",
        ncols=len(marks),
        borderpad=0.3,
        handletextpad=0.1,
        columnspacing=1.0,
    )


def draw_pipeline(figure: Any) -> None:
    """Fig. 1 of the paper, with four numbers going through it."""
    from matplotlib.patches import FancyBboxPatch

    steps, names = pipeline_steps()
    panel = figure.subplots()
    panel.set_axis_off()
    panel.set(xlim=(-0.05, len(steps) + 0.1), ylim=(-0.7, 1.5))
    colours = {"client": "#dbe7ff", "server": "#dff3df"}
    for place, step in enumerate(steps):
        box = FancyBboxPatch(
            (place + 0.06, 0.0), 0.8, 1.0,
            boxstyle="round,pad=0.02,rounding_size=0.05", fc=colours[step.side], ec="0.4",
        )  # fmt: skip
        panel.add_patch(box)
        panel.text(place + 0.46, 0.86, step.title, ha="center", va="center", weight="bold")
        panel.text(place + 0.46, 0.64, step.formula, ha="center", va="center", fontsize=9)
        for row, number in enumerate(step.numbers):
            panel.text(
                place + 0.46, 0.46 - 0.13 * row, number,
                ha="center", va="center", family="monospace", fontsize=8.5,
            )  # fmt: skip
        if place + 1 < len(steps):
            arrow = {"arrowstyle": "-|>", "color": "0.3"}
            panel.annotate("", (place + 1.06, 0.5), (place + 0.87, 0.5), arrowprops=arrow)
        if step.source:
            colour = "C3" if "private" in step.source else "C0"
            arrow = {"arrowstyle": "-|>", "color": colour}
            panel.annotate(
                step.source, (place + 0.46, -0.02), (place + 0.46, -0.5),
                ha="center", fontsize=8.5, color=colour, arrowprops=arrow,
            )  # fmt: skip
    border = sum(step.side == "client" for step in steps)
    panel.text(0.06, 1.22, f"client: {names}", fontsize=10)
    panel.text(border + 0.06, 1.22, "server", fontsize=10)
    panel.plot([border - 0.035] * 2, [-0.62, 1.4], color="0.5", lw=1, ls=":")


def draw_surface(figure: Any) -> None:
    """Error over ε and R, for three schemes on one scale."""
    from matplotlib.colors import LogNorm

    shown = surface()
    panels = figure.subplots(1, len(shown.errors), sharey=True)
    norm = LogNorm(
        min(e.min() for e in shown.errors.values()), max(e.max() for e in shown.errors.values())
    )
    image = None
    for panel, (name, errors) in zip(panels, shown.errors.items(), strict=True):
        mesh: Any = {"shading": "nearest", "cmap": "viridis_r", "norm": norm, "rasterized": True}
        image = panel.pcolormesh(np.arange(len(shown.epsilons)), shown.rates, errors.T, **mesh)
        lines = panel.contour(
            np.arange(len(shown.epsilons)), shown.rates, errors.T,
            [0.1, 0.3, 1.0, 3.0], colors="white", linewidths=1,
        )  # fmt: skip
        panel.clabel(lines, fmt="%g", fontsize=8)
        panel.set_xticks(
            np.arange(len(shown.epsilons)), [f"{e:g}" for e in shown.epsilons], fontsize=8
        )
        title = f"{name} (spends more than ε)" if name == "jopeq" else name
        panel.set(title=title, xlabel="ε asked for, per entry", yticks=shown.rates)
    panels[0].set_ylabel("rate R, bits per entry")
    figure.colorbar(image, ax=panels, label="mean squared error, x = 0", pad=0.01)


def draw_server_view(figure: Any) -> None:
    """P(letter | x) for one dither: what the server can conclude from a letter, ε as an arrow."""
    views = server_view()
    least = min(view.chances[view.chances > 0].min() for view in views)
    panels = figure.subplots(1, 3, sharey=True)
    for panel, view in zip(panels, views, strict=True):
        panel.set_yscale("log")
        for letter, chances in enumerate(view.chances.T):
            panel.plot(view.inputs, chances, color=f"C{letter}", label=f"{letter}")
        low, high = view.chances.min(axis=0), view.chances.max(axis=0)
        if low.min() > 0:  # the letter that tells the most, at the end where it is less likely
            letter = int(np.argmax(high / low))
            place = 1.06 if view.chances[-1, letter] < view.chances[0, letter] else -1.06
            ends = (place, low[letter]), (place, high[letter])
            style = {"arrowstyle": "<->", "color": f"C{letter}", "shrinkA": 0, "shrinkB": 0}
            panel.annotate("", *ends, arrowprops=style)
        panel.set(ylim=(least / 30, 1.6), xlim=(-1.12, 1.12), title=view.title)
        panel.set_xlabel("x, the client's number")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("P(letter | x), dither known")
    panels[0].legend(title="letter", fontsize=8, loc="lower center", ncols=4)


FIGURES: Mapping[str, tuple[Callable[[Any], None], tuple[float, float]]] = {
    "concept-cells": (draw_cells, (10.5, 3.9)),
    "concept-pipeline": (draw_pipeline, (11.5, 3.2)),
    "concept-surface": (draw_surface, (11.5, 3.7)),
    "concept-server": (draw_server_view, (10.5, 3.5)),
}


def save_concepts(folder: Path) -> None:
    """Every figure as an SVG file."""
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_SETTINGS):
        for name, (draw, size) in FIGURES.items():
            figure = new_figure(size)
            draw(figure)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, dpi=200)


if __name__ == "__main__":
    save_concepts(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/figures"))
