"""The picture of the front page: ten hospitals, one model, and its accuracy at a patient's ε."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jopeq.lab.pictures.colours import FAINT, GREY, INK, LOOKS, PAGE
from jopeq.lab.pictures.drawing import dress, new_figure, plain_log, save
from paper.hospitals import EPSILONS

SET = "MNIST, 400 a hospital"
_OURS, _NOISY, _ALONE = LOOKS["sum"].colour, LOOKS["laplace"].colour, LOOKS["response"].colour
LINES = {  # method of the runs: name in the picture, colour, marker, style, points above its end
    "none": ("no privacy", GREY, "", "--", 0),
    "central": ("a trusted server", INK, "X", "-", 0),
    "shares": ("RecordSum: nobody is\ntrusted with a patient", _OURS, "o", "-", 0),
    "local": ("each hospital adds\nall its noise", _NOISY, "s", "-", 0),
    "alone": ("one hospital alone", _ALONE, "D", "-", 0),
}


def draw(runs: Sequence[Mapping[str, Any]], path: Path, *, is_stacked: bool = False) -> None:
    """Hospitals and server beside the accuracies; one above the other for phones."""
    size = (5.4, 8.4) if is_stacked else (12.0, 4.8)
    figure = new_figure(size)
    figure.set_layout_engine("none")
    boxes = (
        [(0.0, 0.56, 1.0, 0.43), (0.12, 0.06, 0.84, 0.42)]
        if is_stacked
        else [(0.0, 0.0, 0.5, 1.0), (0.555, 0.125, 0.43, 0.77)]
    )
    mine = [run for run in runs if run["label"] == SET and run["hospitals"] == 10]
    mine = [run for run in mine if run["partition"] == "iid"]
    _draw_story(figure.add_axes(boxes[0]), mine)
    _draw_accuracy(figure.add_axes(boxes[1]), mine)
    save(figure, path)


def _draw_story(panel: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    """Ten hospitals, one opened, and what reaches the server."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    panel.set(xlim=(0, 600), ylim=(0, 480), aspect="equal")
    panel.axis("off")
    bits = next(r["bits"] for r in runs if r["method"] == "shares" and r["epsilon"] == 1.0)

    def write(x: float, y: float, text: str, colour: str = INK, **style: Any) -> None:
        panel.text(x, y, text, color=colour, **{"ha": "center", "va": "center", **style})

    def box(x: float, y: float, width: float, height: float, **style: Any) -> None:
        look = {"facecolor": PAGE, "edgecolor": GREY, "linewidth": 1.2, **style}
        corner = "round,pad=0,rounding_size=8"
        panel.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=corner, **look))

    # the opened hospital
    box(24, 96, 168, 262, edgecolor=_OURS, linewidth=2.2, linestyle=(0, (4, 2)))
    write(108, 377, "only your hospital sees this", _OURS, fontsize=11, fontweight="bold")
    for place in range(20):
        _draw_patient(panel, 52 + 28 * (place % 5), 322 - 46 * (place // 5))
    write(108, 131, "400 patients:\nclip, add up, add noise", GREY, fontsize=9.5)
    # the other nine
    for place in range(9):
        x, y = 36 + 52 * (place % 3), 68 - 26 * (place // 3)
        box(x, y, 42, 19, linewidth=1.0)
        panel.plot([x + 21, x + 21], [y + 5, y + 14], color=GREY, linewidth=2)
        panel.plot([x + 16.5, x + 25.5], [y + 9.5, y + 9.5], color=GREY, linewidth=2)
    # ten arrows
    starts = [(192, 227), *((178, 77.5 - 26 * row) for row in range(3))]
    ends = [(436, 248), (448, 206), (456, 190), (470, 178)]
    for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for shift in (0,) if not place else (-5, 0, 5):
            panel.add_patch(
                FancyArrowPatch(
                    (start[0], start[1] + shift),
                    (end[0], end[1] + shift),
                    arrowstyle="-|>",
                    mutation_scale=10 if not place else 6,
                    linewidth=2.4 if not place else 0.9,
                    color=_OURS if not place else GREY,
                    connectionstyle=f"arc3,rad={-0.06 if not place else 0.12}",
                    shrinkA=3,
                    shrinkB=3,
                )
            )
    write(313, 272, f"{bits} bits × d, masked", _OURS, fontsize=11, fontweight="bold")
    # the server
    box(436, 176, 140, 116, linewidth=1.6, edgecolor=INK)
    for row in range(3):
        box(456, 262 - 20 * row, 100, 15, linewidth=1.0)
        panel.plot([466], [269.5 - 20 * row], "o", color=_OURS, markersize=3.5)
    write(506, 197, "the server", fontsize=11, fontweight="bold")
    write(506, 156, "sees only the total + noise", GREY, fontsize=10.5)
    write(506, 330, "one model\nfor all ten", INK, fontsize=10.5)
    panel.annotate("", (506, 316), (506, 292), arrowprops={"arrowstyle": "-|>", "color": INK})
    write(24, 446, "Ten hospitals, one model, ε for every patient", fontsize=14, fontweight="bold", ha="left")  # fmt: skip
    write(24, 420, "A patient trusts the own hospital, and nobody else.", GREY, fontsize=11, ha="left")  # fmt: skip


def _draw_patient(panel: Any, x: float, y: float) -> None:
    """Head and shoulders."""
    from matplotlib.patches import Circle, Wedge

    panel.add_patch(Circle((x, y + 12), 5.2, color=GREY, linewidth=0))
    panel.add_patch(Wedge((x, y - 6), 10, 0, 180, color=GREY, linewidth=0))


def _draw_accuracy(panel: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    """Test accuracy against ε, with the deviation over the seeds."""
    dress(panel)
    delta = next(run["delta"] for run in runs if run["method"] == "shares")
    seeds = len({run["seed"] for run in runs})
    panel.set_title(
        f"MNIST, 400 digits in each of ten hospitals; mean ± deviation of {seeds} seeds",
        loc="left", fontsize=11, color=INK,
    )  # fmt: skip
    for method, (name, colour, marker, style, up) in LINES.items():
        found = [
            [100 * r["test_accuracy"] for r in runs if r["method"] == method and e == r["epsilon"]]
            for e in EPSILONS
        ]
        if method == "none":
            found = [[100 * r["test_accuracy"] for r in runs if r["method"] == method]] * len(found)
        means = [statistics.fmean(one) for one in found]
        errors = [statistics.stdev(one) if marker else 0.0 for one in found]
        is_ours = method == "shares"
        panel.errorbar(
            EPSILONS, means, errors, fmt=marker + style, color=colour, capsize=3,
            linewidth=2.6 if is_ours else 1.6, markersize=7 if is_ours else 5,
            zorder=3 if is_ours else 2,
        )  # fmt: skip
        panel.annotate(
            name, (EPSILONS[-1], means[-1]), xytext=(10, up), textcoords="offset points",
            va="center", fontsize=10, color=colour, fontweight="bold" if is_ours else None,
        )  # fmt: skip
        if is_ours:
            place = EPSILONS.index(1.0)
            panel.plot([1.0], [means[place]], "o", markersize=17, mfc="none", mec=colour, mew=2)
            panel.annotate(
                f"{means[place]:.1f}% at ε = 1", (1.0, means[place]), xytext=(12, -24),
                textcoords="offset points", fontsize=11, color=colour, fontweight="bold",
            )  # fmt: skip
    plain_log(panel, "x", EPSILONS)
    low = min(100 * r["test_accuracy"] for r in runs if r["method"] in LINES)
    panel.set(xlim=(0.42, 30), ylim=(5 * math.floor(low / 5), 100), ylabel="test accuracy, %")
    panel.set_xlabel(f"ε for one patient, δ = 10⁻{round(-math.log10(delta))}".translate(_RAISED))
    panel.tick_params(colors=GREY)
    panel.grid(color=FAINT, alpha=0.3)


_RAISED = {ord(digit): digit for digit in ""}
