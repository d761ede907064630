"""The picture of the front page: accuracy against bytes, at one ε for a person."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from jopeq.analysis.drawing import new_figure
from paper.people import PeopleRun

# label of the runs: (name in the picture, marker, where the name stands)
POINTS = {
    "sphere, hog, 50,000 people, ε = 4": ("sphere: trust nobody", "o", (8, -4)),
    "sum, hog, 50,000 people, ε = 4": ("sum: trust only the sum", "s", (-8, -16)),
    "central, hog, 50,000 people, ε = 4": ("trusted server,\nGaussian noise, floats", "^", (-2, 9)),
    "LocalDpMod, hog, 50,000 people, ε = 4": ("Flower's LocalDpMod", "v", (-8, 10)),
}


def draw(runs: Sequence[PeopleRun], path: Path) -> None:
    """Test accuracy on MNIST against the bytes that one person sends."""
    figure = new_figure((7.2, 3.8))
    panel = figure.subplots()
    for label, (name, marker, offset) in POINTS.items():
        mine = [run for run in runs if (run.label, run.data) == (label, "mnist")]
        if not mine:
            continue
        bytes_each = mine[0].summary["bytes_sent"] / mine[0].summary["reports"]
        accuracies = [100 * run.test_accuracy for run in mine]
        is_ours = label.startswith(("sphere", "sum"))
        (line,) = panel.plot(
            [bytes_each], [statistics.fmean(accuracies)], marker, markersize=11,
            color="#0072B2" if is_ours else "#8C8C8C",
        )  # fmt: skip
        panel.annotate(
            f"{name}\n{bytes_each:,.0f} byte{'s' * (round(bytes_each) != 1)}, "
            f"{statistics.fmean(accuracies):.1f}%",
            (bytes_each, statistics.fmean(accuracies)), xytext=offset, textcoords="offset points",
            ha="left" if offset[0] > 0 else "right", va="bottom" if offset[1] > 0 else "top",
            fontsize=9, fontweight="bold" if is_ours else None, color=line.get_color(),
        )  # fmt: skip
    panel.set_xscale("log")
    panel.set(xlim=(0.6, 60_000), ylim=(0, 108), ylabel="test accuracy, %")
    panel.set_xlabel("bytes that a person sends, once (one image each, 50,000 people)")
    panel.set_xticks([1, 10, 100, 1000, 10_000], ["1", "10", "100", "1,000", "10,000"])
    panel.set_title("MNIST at ε = 4 for the person", loc="left", fontsize=11)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
