"""The figure of `make bench`: speed against size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jopeq_lab.pictures.colours import INK, PAGE, look_of
from jopeq_lab.pictures.drawing import dress, name_lines, new_panels, plain_log, save
from speed_tables import WAYS, Results

SHOWN = ("sdq", "response", "jopeq", "jopeq A2", "sdq A2")


def draw_speed(codecs: Results, path: Path) -> None:
    """Encode, its eager version, and decode, against memory copies."""
    figure, panels = new_panels(2, 4.0, sharey=True)
    copies = (("copy", "into", "-"), ("new copy", "new", ":"))
    for panel, way in zip(panels, WAYS, strict=True):
        names = []
        for name, kind, dashes in copies:
            sizes, speeds = _line(codecs, codecs["copy"][kind])
            panel.plot(sizes, speeds, dashes, color=INK, lw=1.5)
            names.append((speeds[-1], name, INK))
        for name in SHOWN:
            row, scheme, lattice = codecs["schemes"][name], *f"{name} ".split(" ")[:2]
            look = look_of(scheme)
            sizes, speeds = _line(codecs, row[way])
            style: Any = {"color": look.colour, "marker": look.marker, "ms": 5}
            panel.plot(sizes, speeds, mfc=PAGE if lattice else look.colour, **style)
            names.append((speeds[-1], name, look.colour))
            if way == "encode":
                panel.plot(*_line(codecs, row["eager"]), "--", color=look.colour, lw=1)
        eager = "; dashed: eager PyTorch, which makes no bits" if way == "encode" else ""
        dress(panel, f"{way}{eager}", ylim=(1, 20_000))
        plain_log(panel, "y")
        name_lines(panel, names)
    plain_log(panels[-1], "x")
    figure.supxlabel("entries of the update", fontsize=10)
    figure.supylabel("million entries a second", fontsize=10)
    save(figure, path, phone=True)


def _line(codecs: Results, speeds: list[float | None]) -> tuple[list[int], list[float]]:
    points = [(n, speed / 1e6) for n, speed in zip(codecs["sizes"], speeds, strict=True) if speed]
    return [size for size, _ in points], [speed for _, speed in points]
