"""The picture of the front page: accuracy against bytes, at one ε for a person."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from jopeq.lab.pictures.colours import LOOKS
from jopeq.lab.pictures.drawing import dress, new_stack, save
from paper.people import PeopleRun

_SIZE = "hog, 50,000 people, ε = 4"
POINTS = {  # label of the runs: name in the picture, scheme whose look it has, place of the name
    f"sphere, {_SIZE}": ("sphere: trust nobody", "sphere", (0, -14)),
    f"sum, {_SIZE}": ("sum: trust only the sum", "sum", (12, -30)),
    f"central, {_SIZE}": ("a trusted server adds\nGaussian noise to floats", "central", (0, 14)),
    f"LocalDpMod, {_SIZE}": ("Flower's LocalDpMod:\nGaussian noise on floats", "laplace", (0, -14)),
}


def draw(runs: Sequence[PeopleRun], path: Path) -> None:
    """Test accuracy on MNIST against the bytes that one person sends."""
    figure, (panel,) = new_stack(1, 4.2)
    dress(panel, "MNIST, 50,000 people of one image, ε = 4 for the person")
    for label, (name, scheme, (right, up)) in POINTS.items():
        mine = [run for run in runs if (run.label, run.data) == (label, "mnist")]
        if not mine:
            continue
        place = mine[0].summary["bytes_sent"] / mine[0].summary["reports"]
        accuracy = statistics.fmean(100 * run.test_accuracy for run in mine)
        look = LOOKS[scheme]
        panel.plot([place], [accuracy], look.marker, markersize=11, color=look.colour)
        unit = "byte" if round(place) == 1 else "bytes"
        panel.annotate(
            f"{name}\n{place:,.0f} {unit}, {accuracy:.1f}%",
            (place, accuracy),
            xytext=(right, up),
            textcoords="offset points",
            ha="left" if place < 10 else "right" if right else "center",
            va="bottom" if up > 0 else "top",
            fontsize=9.5,
            color=look.colour,
            fontweight="bold" if scheme in ("sphere", "sum") else None,
        )
    panel.set_xscale("log")
    panel.set(xlim=(0.6, 200_000), ylim=(40, 110), ylabel="test accuracy, %")
    panel.set_xlabel("bytes that a person sends, once in a lifetime")
    panel.set_xticks([1, 10, 100, 1000, 10_000], ["1", "10", "100", "1,000", "10,000"])
    panel.set_yticks([40, 50, 60, 70, 80, 90, 100])
    save(figure, path)
