"""Speed on the CPU, all in one process: tables, a plot, and the numbers behind both.

    python benchmarks/speed.py                    # up to 10^8 entries, under eight minutes
    python benchmarks/speed.py --most 1e6         # a quick look
    python benchmarks/speed.py --turns 2          # against hiccups: more than ten minutes
    python benchmarks/speed.py --json results/bench.json --plot speed.svg

``--gpu FILE`` takes in what ``benchmarks/gpu.py --json FILE`` wrote, on whatever machine.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from aggregation import measure_aggregation
from codec import measure_codecs, measure_plain, measure_threads
from first_call import measure_first_call
from jopeq_lab.pictures.colours import INK, PAGE, look_of
from jopeq_lab.pictures.drawing import dress, name_lines, new_panels, plain_log, save
from peers import measure_peers
from speed_tables import WAYS, Results, all_tables
from stages import measure_stages
from timing import cores, load, machine

SHOWN = ("sdq", "response", "jopeq", "jopeq A2", "sdq A2")  # in the figure


def measured(most: float, turns: int, say: Any) -> dict[str, Any]:
    started, load_before = time.perf_counter(), load()
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= cores()]
    results: dict[str, Any] = {"machine": machine()}
    results["first_call"] = measure_first_call(say)  # nothing else is in memory yet
    results["codecs"] = measure_codecs(most, say, turns)
    results["threads"] = measure_threads(most, counts, say)
    results["stages"] = measure_stages(most, say)
    results["plain"] = measure_plain(say)
    results["peers"] = measure_peers(most, say)
    results["aggregation"] = measure_aggregation(most, say)
    results["machine"] |= {
        "load_before": load_before,
        "load_after": load(),
        "seconds": round(time.perf_counter() - started),
    }
    return results


def gpu_section(file: Path, device: str, date: str | None, note: str) -> dict[str, Any]:
    """Read what ``benchmarks/gpu.py`` wrote; its schemes get short names."""
    kept = json.loads(file.read_text())
    schemes = {_short(spec): row for spec, row in kept.items() if isinstance(row, dict)}
    numbers = {name: value for name, value in kept.items() if not isinstance(value, dict)}
    date = time.strftime("%Y-%m-%d") if date is None else date
    return {"device": device, "date": date, **numbers, "note": note, "schemes": schemes}


def _short(spec: str) -> str:
    name, given = json.loads(spec)
    shown = [given["lattice"]] if "lattice" in given else []
    shown += [f"ε={given['epsilon']:g}"] if "epsilon" in given else []
    shown += [f"{given['levels']} levels"] if "levels" in given else []
    shown += [f"R={given['rate']:g}"] if "rate" in given and "levels" not in given else []
    return " ".join([name, *shown])


def rounded(value: Any) -> Any:
    """Five digits are more than the clock is good for."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=float, default=1e8, help="entries of the largest update")
    parser.add_argument("--json", type=Path, help="keep the numbers in this file")
    parser.add_argument("--plot", type=Path, help="draw into this file")
    parser.add_argument("--gpu", type=Path, help="numbers of benchmarks/gpu.py to keep with them")
    parser.add_argument("--gpu-device", default="GPU", help="which device those came from")
    parser.add_argument("--gpu-date", help="when they were measured, if not today")
    parser.add_argument("--gpu-note", default="", help="what a reader must know about them")
    parser.add_argument("--turns", type=int, default=1, help="times large updates are timed")
    given = parser.parse_args()
    if given.most < 1e3:
        parser.error(f"--most must be at least 1000, got {given.most:g}")
    if given.turns < 1:
        parser.error(f"--turns must be at least 1, got {given.turns}")
    console = Console(width=150)
    if find_spec("torch") is None:
        console.print("eager versions are left out: PyTorch is not installed")
    with console.status("") as status:
        results = rounded(measured(given.most, given.turns, status.update))
    if given.gpu:
        section = gpu_section(given.gpu, given.gpu_device, given.gpu_date, given.gpu_note)
        results["gpu"] = rounded(section)
    if given.json and given.json.exists():  # what other scripts measured stays
        before = json.loads(given.json.read_text())
        results = {key: before[key] for key in ("gpu", "fresh") if key in before} | results
    for shown in all_tables(results).values():
        table = Table(title=shown.title)
        for place, heading in enumerate(shown.head):
            table.add_column(heading, justify="right" if place else "left")
        for row in shown.rows:
            table.add_row(*row)
        console.print(table)
    for name, reason in results["peers"]["missing"].items():
        console.print(f"{name} is left out: {reason}")
    console.print(results["machine"])
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    if given.plot:
        given.plot.parent.mkdir(parents=True, exist_ok=True)
        draw_speed(results["codecs"], given.plot)
        console.print(f"plot: {given.plot}")


if __name__ == "__main__":
    main()
