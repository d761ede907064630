"""The picture of docs/speed.md: how speed grows with the size of an update."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jopeq.drawing import new_panels

_SHOWN = ("sdq", "response", "jopeq", "laplace+sdq", "jopeq A2", "sdq E8")
_SETTINGS: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "legend.fontsize": 9,
    "svg.hashsalt": "jopeq",  # the same numbers make the same file
}


def draw_speed(codecs: Mapping[str, Any], path: Path) -> None:
    """Encode beside its eager version, and decode, against memory copies."""
    import matplotlib as mpl

    with mpl.rc_context(_SETTINGS):
        figure, (left, right) = new_panels(2, (9.6, 4.6), sharey=True)
        for panel, way in ((left, "encode"), (right, "decode")):
            panel.plot(*_line(codecs, codecs["copy"]["into"]), "k-", lw=1.5, label="copy")
            panel.plot(*_line(codecs, codecs["copy"]["new"]), "k:", lw=1.5, label="new copy")
            for index, name in enumerate(_SHOWN):
                row, colour = codecs["schemes"][name], f"C{index}"
                panel.plot(*_line(codecs, row[way]), "o-", color=colour, ms=3.5, label=name)
                if way == "encode":
                    panel.plot(*_line(codecs, row["eager"]), "--", color=colour, lw=1)
            panel.set(xscale="log", yscale="log", xlabel="entries of the update", title=way)
            panel.grid(alpha=0.3)
        left.plot([], [], "--", color="grey", lw=1, label="eager PyTorch")
        left.set_ylabel("million entries a second")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
        figure.savefig(path, metadata={"Date": None})


def _line(codecs: Mapping[str, Any], speeds: list[float | None]) -> tuple[list[int], list[float]]:
    points = [(n, speed / 1e6) for n, speed in zip(codecs["sizes"], speeds, strict=True) if speed]
    return [size for size, _ in points], [speed for _, speed in points]
