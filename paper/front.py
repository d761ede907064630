"""The picture of the front page: ten hospitals, one model, and its accuracy at a patient's ε."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jopeq_lab.pictures.colours import DARK, FAINT, GREY, INK, LOOKS, PAGE
from jopeq_lab.pictures.drawing import dress, name_lines, new_figure, plain_log, save
from paper.hospitals import EPSILONS

SET = "CIFAR-10, ImageNet features"
_OURS = LOOKS["records"].colour
LINES = {  # method of the runs: name in the picture, colour, format
    "none": ("no privacy", GREY, "--"),
    "central": ("a trusted server", INK, "X:"),
    "shares": ("RecordSum", _OURS, "o-"),
    "local": ("each hospital adds\nall its noise", LOOKS["laplace"].colour, "s-"),
    "alone": ("one hospital alone", LOOKS["response"].colour, "D-"),
}


def draw(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw hospitals and server next to the accuracies; in a file "…-phone" above them.

    An SVG file follows the page; a PNG file "…-dark" is for dark pages.
    """
    is_stacked = path.stem.endswith("-phone")
    figure = new_figure((6.0, 9.6) if is_stacked else (12.0, 4.8))
    figure.set_layout_engine("none")
    story = (0.0, 0.5, 1.0, 0.5) if is_stacked else (0.0, 0.0, 0.5, 1.0)
    chart = (0.12, 0.06, 0.6, 0.38) if is_stacked else (0.56, 0.13, 0.31, 0.75)
    mine = [r for r in runs if r["label"] == SET and {"hospitals", "partition"}.isdisjoint(r)]
    _draw_story(figure.add_axes(story), mine)
    _draw_accuracies(figure.add_axes(chart), mine)
    if path.stem.endswith("-dark"):
        _darken(figure)
    save(figure, path)


def _darken(figure: Any) -> None:
    """Give everything the colour that it has on a dark page."""
    from matplotlib.colors import to_hex

    kinds = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")
    for artist in figure.findobj():
        for kind in kinds:
            colour = getattr(artist, f"get_{kind}", lambda: None)()
            is_one = isinstance(colour, str) or (isinstance(colour, tuple) and colour[-1:] != (0,))
            if is_one and colour != "none" and to_hex(colour) in DARK:
                getattr(artist, f"set_{kind}")(DARK[to_hex(colour)])


def _draw_story(panel: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    """Ten hospitals, one of them opened, and what the server gets."""
    from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Wedge

    panel.set(xlim=(0, 600), ylim=(0, 480), aspect="equal")
    panel.axis("off")
    bits = next(r["bits"] for r in runs if r["method"] == "shares" and r["epsilon"] == 1.0)

    def write(x: float, y: float, text: str, size: float, colour: str = INK, **look: Any) -> None:
        look = {"ha": "center", "va": "center", **look}
        panel.text(x, y, text, fontsize=size, color=colour, **look)

    def box(x: float, y: float, width: float, height: float, **look: Any) -> None:
        look = {"facecolor": PAGE, "edgecolor": GREY, "linewidth": 1.2, "zorder": 2, **look}
        corners = "round,pad=0,rounding_size=7"
        panel.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=corners, **look))

    def point(
        start: tuple[float, float], end: tuple[float, float], width: float, **look: Any
    ) -> None:
        look = {"arrowstyle": "-|>", "mutation_scale": 7 + 3 * width, "linewidth": width, **look}
        panel.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, zorder=1, **look))

    bold = {"fontweight": "bold"}
    write(26, 450, "Ten hospitals, one model, ε for every patient", 13.5, ha="left", **bold)
    write(26, 423, "Patients have to trust only their own hospital.", 10, GREY, ha="left")
    box(26, 150, 206, 222, edgecolor=_OURS, linewidth=2.4, linestyle=(0, (4, 2)))
    write(129, 388, "only your hospital sees this", 10, _OURS, **bold)
    for place in range(15):
        x, y = 55 + 37 * (place % 5), 334 - 48 * (place // 5)
        panel.add_patch(Circle((x, y + 13), 6, color=GREY, linewidth=0, zorder=3))
        panel.add_patch(Wedge((x, y - 8), 11, 0, 180, color=GREY, linewidth=0, zorder=3))
    write(129, 184, "clip each patient, add up,\nround with noise, mask", 9.5)
    box(408, 164, 170, 152, edgecolor=INK, linewidth=1.8)
    point((236, 258), (404, 250), 2.8, color=_OURS)
    for place in range(9):
        x, y = 26 + 72 * (place % 3), 102 - 38 * (place // 3)
        box(x, y, 62, 28)
        panel.plot([x + 31] * 2, [y + 7, y + 21], color=GREY, linewidth=2.4, zorder=3)
        panel.plot([x + 24, x + 38], [y + 14] * 2, color=GREY, linewidth=2.4, zorder=3)
    for place in range(9):  # from the hospitals' right side, fanned out
        start, end = (236, 126 - 12.5 * place), (421 + 18 * place, 161)
        bend = f"arc3,rad={0.22 + 0.02 * place}"
        point(start, end, 1.1, color=GREY, connectionstyle=bend)
    write(318, 288, f"{bits} bits × d,\nmasked", 11, _OURS, **bold)
    for row in range(3):
        box(437, 286 - 23 * row, 112, 18, linewidth=1.0)
        panel.plot([449], [295 - 23 * row], "o", color=_OURS, markersize=4, zorder=3)
    write(493, 216, "the server", 12, **bold)
    write(493, 187, "sees only the\ntotal + noise", 10)
    point((493, 318), (493, 350), 1.6, color=INK)
    write(493, 365, "a model for all", 11)


def _draw_accuracies(panel: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    """Test accuracy against ε, with the deviation over the seeds."""
    names, seeds = [], len({run["seed"] for run in runs})
    for method, (name, colour, how) in LINES.items():
        mine = [run for run in runs if run["method"] == method]
        found = [
            [100 * r["test_accuracy"] for r in mine if method == "none" or r["epsilon"] == epsilon]
            for epsilon in EPSILONS
        ]
        means = [statistics.fmean(one) for one in found]
        errors = None if method == "none" else [statistics.stdev(one) for one in found]
        width = 2.6 if method == "shares" else 1.6
        panel.errorbar(
            EPSILONS, means, errors, fmt=how, color=colour, capsize=3, linewidth=width,
            markersize=3 + 1.6 * width, zorder=width,
        )  # fmt: skip
        names.append((means[-1], name, colour))
        if method == "shares":
            ours = means[EPSILONS.index(1.0)]
            panel.plot([1.0], [ours], "o", markersize=18, mfc="none", mec=colour, mew=2, zorder=4)
    sums = [r["test_accuracy"] for r in runs if (r["method"], r["epsilon"]) == ("sum", 1.0)]
    panel.annotate(
        f"↓ ClientSum, ε = 1 for the hospital: {100 * statistics.fmean(sums):.0f}%", (0.98, 0.02),
        xycoords="axes fraction", ha="right", fontsize=10, color=LOOKS["clients"].colour,
    )  # fmt: skip
    delta = next(run["delta"] for run in runs if run["method"] == "shares")
    power = str(round(-math.log10(delta))).translate(str.maketrans("456", "⁴⁵⁶"))
    dress(panel, xlim=(0.44, 9.0), ylim=(76, 92), ylabel="test accuracy, %")
    panel.set_title(
        f"CIFAR-10, public ImageNet features, {seeds} seeds", loc="left", fontsize=11, pad=10
    )
    plain_log(panel, "x", EPSILONS)
    panel.set_xlabel(f"ε for one patient, all rounds together (δ = 10⁻{power})")
    panel.grid(color=FAINT, alpha=0.3)
    panel.annotate(
        f"{ours:.1f}% at ε = 1", (1.0, ours + 0.55), (1.0, 90.6), ha="center", fontsize=12,
        color=_OURS, fontweight="bold", arrowprops={"arrowstyle": "-", "color": _OURS},
    )  # fmt: skip
    name_lines(panel, names)
