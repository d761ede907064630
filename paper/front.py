"""The picture of the front page: ten hospitals, one model in seven messages, and its accuracy."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jopeq_lab.pictures.colours import DARK, GREY, INK, LOOKS, PAGE
from jopeq_lab.pictures.drawing import new_figure, save

FITS, MESSAGES = "fits.jsonl", 7
FILES = (
    *("front.svg", "front-phone.svg"),  # of the site, and those of README:
    *("front.png", "front-dark.png", "front-phone.png", "front-phone-dark.png"),
)
SETS = {  # of a panel: its title, its name in fits.jsonl, and the label of the runs in rounds
    "MNIST, HOG features": ("mnist", "MNIST, HOG"),
    "CIFAR-10, public ImageNet features": ("cifar", "CIFAR-10, ImageNet features"),
}
_OURS = LOOKS["records"].colour
_ROUNDS = {  # method of the runs in rounds: its name in the picture
    "none": "without privacy, {rounds} rounds",
    "shares": "ε = 1, training together in {rounds} rounds",
    "local": "ε = 1, each adds all the noise, {rounds} rounds",
    "alone": "ε = 1, one hospital alone, {rounds} rounds",
}
Run = Mapping[str, Any]


def rows_of(name: str, label: str, fits: Sequence[Run], runs: Sequence[Run]) -> dict[str, float]:
    """Accuracies by what the picture calls them; none where the model was not run.

    Later lines of fits.jsonl replace earlier ones of the same kind.
    Without privacy the converged model is the comparison, or else training in as many rounds.
    """
    models = [one for one in fits if (one["bench"], one.get("messages")) == (name, MESSAGES)]
    plain = [one for one in fits if (one["bench"], one.get("table")) == ("converged", name)]
    if not models:
        return {}
    found = {"converged, without privacy": plain[-1]["accuracy"]} if plain else {}
    ours = {f"ε = 1, {MESSAGES} messages, nothing tuned": models[-1]["accuracy"]}
    for method, said in _ROUNDS.items():
        mine = [
            run
            for run in runs
            if (run["label"], run["method"]) == (label, method)
            and (method == "none" or run["epsilon"] == 1.0)
            and {"hospitals", "partition"}.isdisjoint(run)
        ]
        accuracy = 100 * statistics.fmean(run["test_accuracy"] for run in mine)
        if method != "none" or not plain:
            found[said.format(rounds=mine[0]["rounds"])] = accuracy
        found |= ours  # below what has no privacy
    return found


def draw(fits: Sequence[Run], runs: Sequence[Run], path: Path) -> None:
    """Hospitals and server beside the accuracies; in a file "…-phone…" above them.

    An SVG file follows the page; a PNG file "…-dark" is for dark pages.
    """
    panels = {title: rows_of(*names, fits, runs) for title, names in SETS.items()}
    panels = {title: rows for title, rows in panels.items() if rows}
    is_stacked = "-phone" in path.stem
    high = 3.1 * len(panels)
    figure = new_figure((6.0, 4.8 + high) if is_stacked else (12.0, 3.8 + 1.2 * len(panels)))
    figure.set_layout_engine("none")
    part = high / (4.8 + high)
    story = (0.0, part, 1.0, 1 - part) if is_stacked else (0.0, 0.0, 0.5, 1.0)
    _draw_story(figure.add_axes(story))
    top = part if is_stacked else 1.0
    for place, (title, rows) in enumerate(panels.items()):
        each = top / len(panels)
        bottom = top - each * (place + 1) + 0.2 * each
        left, wide = (0.06, 0.86) if is_stacked else (0.54, 0.43)
        _draw_accuracies(figure.add_axes((left, bottom, wide, 0.66 * each)), title, rows)
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


def _draw_story(panel: Any) -> None:
    """Ten hospitals, one of them opened, and what the server gets."""
    from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Wedge

    panel.set(xlim=(0, 600), ylim=(0, 480), aspect="equal")
    panel.axis("off")

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
    write(26, 452, "Ten hospitals, one model, ε = 1 for every patient", 14, ha="left", **bold)
    write(26, 424, "Patients trust only their own hospital.", 13, GREY, ha="left")
    box(26, 150, 206, 222, edgecolor=_OURS, linewidth=2.4, linestyle=(0, (4, 2)))
    write(26, 388, "only your hospital sees this", 12.5, _OURS, ha="left", **bold)
    for place in range(15):
        x, y = 55 + 37 * (place % 5), 334 - 48 * (place // 5)
        panel.add_patch(Circle((x, y + 13), 6, color=GREY, linewidth=0, zorder=3))
        panel.add_patch(Wedge((x, y - 8), 11, 0, 180, color=GREY, linewidth=0, zorder=3))
    write(129, 184, "clip, add up,\nadd noise, mask", 12.5)
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
    write(318, 288, f"{MESSAGES} masked\nshares", 13, _OURS, **bold)
    for row in range(3):
        box(437, 286 - 23 * row, 112, 18, linewidth=1.0)
        panel.plot([449], [295 - 23 * row], "o", color=_OURS, markersize=4, zorder=3)
    write(493, 220, "the server", 13.5, **bold)
    write(493, 188, "sees only the\ntotal + noise", 12.5)
    point((493, 318), (493, 350), 1.6, color=INK)
    write(493, 365, "a model for all", 13)


def _draw_accuracies(panel: Any, title: str, rows: Mapping[str, float]) -> None:
    """A dot for each way, with what it is above it."""
    least = min(rows.values())
    low = 5 * ((least - 1) // 5)
    high = 100.0
    for place, (name, accuracy) in enumerate(rows.items()):
        is_ours = "messages" in name
        colour = _OURS if is_ours else INK if "without" in name else GREY
        look = {"fontweight": "bold"} if is_ours else {}
        panel.plot([low, high], [-place] * 2, color=GREY, linewidth=0.8, alpha=0.4, zorder=1)
        panel.plot([accuracy], [-place], "o", color=colour, markersize=14 if is_ours else 9)
        panel.text(low, 0.2 - place, name, va="bottom", fontsize=13, color=colour, **look)
        panel.text(
            high, 0.2 - place, f"{accuracy:.2f}%", va="bottom", ha="right", fontsize=13,
            color=colour, **look,
        )  # fmt: skip
    panel.set(xlim=(low, high), ylim=(0.5 - len(rows), 0.8), yticks=[])
    panel.locator_params(axis="x", nbins=5, steps=[1, 2, 5, 10])
    panel.set_xlabel("test accuracy, %", fontsize=12)
    panel.tick_params(labelsize=12)
    panel.set_title(title, loc="left", fontsize=13.5, fontweight="bold", pad=8)
    panel.spines[["top", "right", "left"]].set_visible(False)
