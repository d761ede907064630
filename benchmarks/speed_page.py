"""docs/speed.md and its figure, from results/bench.json: no number on it is typed by hand.

python benchmarks/speed_page.py results/bench.json docs/speed.md docs/figures
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

from jopeq.analysis.drawing import new_panels
from speed_tables import Results, all_tables, outcomes
from templates import rendered

SHOWN = ("sdq", "response", "jopeq", "laplace+sdq", "jopeq A2", "sdq E8")
_BUSY = 0.5  # with more processes at work before the run, ratios may be off
_SETTINGS: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "legend.fontsize": 9,
    "svg.hashsalt": "jopeq",  # the same numbers make the same file
}


def claims(results: Results) -> Iterator[tuple[str, bool]]:
    """What the prose of the page says of the numbers, and whether it is so."""
    servers = results["aggregation"]["schemes"].values()
    yield "the machine was quiet", (results["machine"]["load_before"] or 0.0) <= _BUSY
    yield "all targets are reached", all(one.is_reached for one in outcomes(results["codecs"]))
    yield "aggregate is the fastest way", all(r["aggregate"] >= r["decode"] for r in servers)


def speed_page(results: Results) -> str:
    """The text of the page; raises if the numbers do not support a sentence of it."""
    failed = [claim for claim, holds in claims(results) if not holds]
    if failed:
        raise ValueError(
            f"the numbers do not support what docs/speed.md says: {'; '.join(failed)}: measure "
            "again on a quiet machine, or rewrite benchmarks/speed.md.j2 and its claims"
        )
    found = list(outcomes(results["codecs"]))
    return rendered("speed.md.j2", results, tables=all_tables(results), targets=found)


def draw_speed(codecs: Results, path: Path) -> None:
    """Encode beside its eager version, and decode, against memory copies."""
    with mpl.rc_context(_SETTINGS):
        figure, (left, right) = new_panels(2, (9.6, 4.6), sharey=True)
        for panel, way in ((left, "encode"), (right, "decode")):
            panel.plot(*_line(codecs, codecs["copy"]["into"]), "k-", lw=1.5, label="copy")
            panel.plot(*_line(codecs, codecs["copy"]["new"]), "k:", lw=1.5, label="new copy")
            for index, name in enumerate(SHOWN):
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
