"""docs/speed.md and its figure, from results/bench.json: no number on it is typed by hand.

python benchmarks/speed_page.py results/bench.json docs/speed.md docs/figures
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jopeq_lab.pictures.colours import INK, PAGE, look_of
from jopeq_lab.pictures.drawing import dress, name_lines, new_panels, plain_log, save
from speed_tables import WAYS, Results, all_tables, outcomes, seconds, times, update_table
from templates import rendered

SHOWN = ("sdq", "response", "jopeq", "jopeq A2", "sdq A2")
_BUSY = 0.5  # with more processes at work before the run, ratios may be off


def claims(results: Results) -> Iterator[tuple[str, bool]]:
    """What the prose of the page says of the numbers, and whether it is so."""
    servers = results["aggregation"]["schemes"].values()
    yield "the machine was quiet", (results["machine"]["load_before"] or 0.0) <= _BUSY
    yield "aggregate is the fastest way", all(r["aggregate"] >= r["decode"] for r in servers)


def speed_page(results: Results) -> str:
    """The text of the page; raises if the numbers do not support a sentence of it."""
    failed = [claim for claim, holds in claims(results) if not holds]
    if failed:
        raise ValueError(
            f"the numbers do not support what docs/speed.md says: {'; '.join(failed)}: measure "
            "again on a quiet machine, or rewrite benchmarks/speed.md.j2 and its claims"
        )
    plain = results["plain"]["schemes"]["response"]
    return rendered(
        "speed.md.j2",
        results,
        tables={**all_tables(results), "update": update_table(results["codecs"])},
        targets=list(outcomes(results["codecs"])),
        seconds=seconds,
        plain_times={way: times(plain["on"][way] / plain["off"][way]) for way in WAYS},
    )


def draw_speed(codecs: Results, path: Path) -> None:
    """Encode beside its eager version, and decode, against memory copies."""
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


def main(results: str, page: str, figures: str) -> None:
    kept = json.loads(Path(results).read_text(encoding="utf-8"))
    text = speed_page(kept)
    Path(figures).mkdir(parents=True, exist_ok=True)
    draw_speed(kept["codecs"], Path(figures, "speed.svg"))
    Path(page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
