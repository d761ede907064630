"""A section of docs/people.md and its figure, from kept results: no number is typed by hand.

python benchmarks/people_page.py results/people_bench.json docs
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jinja2

from jopeq_lab.pictures.colours import GREY, LOOKS
from jopeq_lab.pictures.drawing import dress, name_lines, new_panels, plain_log, save

_SHARE = 0.1
_SHOWN = ("100000", "8")
_SERVER = 100_000

Results = dict[str, Any]
Table = list[list[str]]


def _count(number: float) -> str:
    """Two digits, rounded up: people come whole."""
    digits = len(str(int(number))) - 2
    unit = 10 ** max(0, digits)
    return f"{-(-int(number + 1) // unit) * unit:,}"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def _size(count: float) -> str:
    return f"{count / 1e6:.1f} MB"


def _grid(corner: str, errors: Results, cell: Any) -> Table:
    """Dimensions down, ε across."""
    epsilons = list(next(iter(errors.values())))
    head = [corner, *(f"ε = {epsilon}" for epsilon in epsilons)]
    return [head, *([f"{int(d):,}", *map(cell, row.values())] for d, row in errors.items())]


def _ratios(errors: Results) -> Table:
    table = []
    for name, found in errors.items():
        for dimension, row in found.items():
            if name != "PrivUnitG" and (name == "sphere" or dimension == _SHOWN[0]):
                label = f"**{name}**" if name == "sphere" else name
                cells = (f"{one['ratio']:.3f}" for one in row.values())
                table.append([f"{label}, d = {int(dimension):,}", *cells])
    epsilons = next(iter(errors["sphere"].values()))
    return [["", *(f"ε = {epsilon}" for epsilon in epsilons)], *table]


def _measured(errors: Results) -> tuple[Table, dict[str, str]]:
    found, away = [], []
    for name, by_dimension in errors.items():
        for dimension, row in by_dimension.items():
            some = [one for one in row.values() if "measured" in one]
            if not some:
                continue
            away += [abs(one["measured"] - one["error"]) / one["sigma"] for one in some]
            cells = (
                f"{o['measured'] / o['error']:.3f} ± {o['sigma'] / o['error']:.3f}" for o in some
            )
            found.append([name, f"{int(dimension):,}", *cells])
    epsilons = next(iter(errors["sphere"].values()))
    head = ["", "d", *(f"ε = {epsilon}" for epsilon in epsilons)]
    return [head, *found], {"count": str(len(away)), "most": f"{max(away):.1f}"}


def _costs(results: Results) -> Table:
    dimension, epsilon = _SHOWN
    table = [["", "error ÷ PrivUnitG", "bits", "a client's time", "server, a report"]]
    server = results["server"][epsilon]
    for name, found in results["errors"].items():
        row = found[dimension][epsilon]
        if name == "sphere":
            work = f"{row['block']} additions, {_time(server['core'] / server['reports'])}"
            label, taken = f"**{name}**", _time(row["encode"])
        elif "server" in row:
            label, work, taken = name, row["server"], _time(row["both_ends"]) + " (both ends)"
        else:
            continue
        table.append([label, f"{row['ratio']:.3f}", f"{row['bits']:,}", taken, work])
    return table


def _server(found: Results) -> Table:
    table = [
        ["", "reports", "core time", f"clock, {found['8']['threads']} threads", "turning back"]
    ]
    for epsilon, row in found.items():
        if epsilon != "peak":
            times = (_time(row[name]) for name in ("core", "clock", "mean"))
            table.append([f"ε = {epsilon}", f"{row['reports']:,}", *times])
    return table


START = "<!-- measured: written by benchmarks/people_page.py -->\n"
END = "<!-- end -->"


def people_page(results: Results) -> str:
    """The text of the section."""
    sphere, server = results["errors"]["sphere"], results["server"]
    measured, deviations = _measured(results["errors"])
    tables = {
        "people": _grid("entries", sphere, lambda row: _count(row["error"] / _SHARE)),
        "ratios": _ratios(results["errors"]),
        "measured": measured,
        "costs": _costs(results),
        "encode": _grid(
            "entries",
            sphere,
            lambda row: f"{1e3 * row['encode']:.1f} ({1e3 * row['encode_in_batch']:.1f})",
        ),
        "server": _server(server),
    }
    few, many = server["peak"]
    memory = {
        "few": f"{int(few):,}",
        "many": f"{int(many):,}",
        "small": _size(server["peak"][few]),
        "large": _size(server["peak"][many]),
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,  # a name that the template lacks is an error
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("people.md.j2").render(
        results,
        tables=tables,
        deviations=deviations,
        memory=memory,
        share=f"{_SHARE:g}",
        shown={"dimension": f"{int(_SHOWN[0]):,}", "epsilon": _SHOWN[1]},
        server_dimension=f"{_SERVER:,}",
    )


def draw_people(errors: Results, path: Path) -> None:
    """Error against ε, relative to PrivUnitG."""
    figure, (panel,) = new_panels(1, 4.4)
    names, marks = [], iter("v^<>")
    for name, found in errors.items():
        row = found[_SHOWN[0]]
        ratios = [one["ratio"] for one in row.values()]
        scheme = name.split(",")[0]
        own = LOOKS.get(scheme)
        colour, marker = (own.colour, own.marker) if own else (GREY, next(marks))
        panel.plot([int(epsilon) for epsilon in row], ratios, color=colour, marker=marker, ms=5)
        names.append((ratios[-1], f"{name}\n{row[_SHOWN[1]]['bits']:,} bits", colour))
    dress(panel, f"d = {int(_SHOWN[0]):,}; bits are those at ε = {_SHOWN[1]}", ylim=(0.9, 6))
    panel.set(xlabel="ε of the whole update", ylabel="error ÷ PrivUnitG's")
    plain_log(panel, "x", [int(epsilon) for epsilon in row])
    plain_log(panel, "y", [1, 2, 5])
    name_lines(panel, names)
    save(figure, path)


def main(file: str, folder: str) -> None:
    results: Results = json.loads(Path(file).read_text(encoding="utf-8"))
    docs = Path(folder)
    (docs / "figures").mkdir(parents=True, exist_ok=True)
    page = docs / "people.md"
    head, start, rest = page.read_text(encoding="utf-8").partition(START)
    tail = rest.partition(END)[2]
    page.write_text(f"{head}{start}\n{people_page(results).strip()}\n\n{END}{tail}", "utf-8")
    draw_people(results["errors"], docs / "figures" / "people.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
