"""Makes what ``jopeq-lab explore`` shows: ``lab/jopeq_lab/explorer/data``.

    python tools/make_explorer.py grid       # the tables: 30 minutes of two cores
    python tools/make_explorer.py pictures   # from results/: what attackers recovered
    python tools/make_explorer.py charts     # Vega-Lite to Vega; pip install vl-convert-python

Make the grid again after a change that moves plans, errors or lengths: tests/lab/explorer tells.
vega.min.js is build/vega.min.js of the npm package vega 6.4.0, its licence put before it.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import math
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from jopeq.entries.spread import best_spread, normalised_error
from jopeq.privacy.guarantee import digits_up
from jopeq_lab.explorer.grid import (
    AXES,
    MOST_SUMMED,
    PER_ENTRY,
    Setting,
    entry_scheme,
    multiplier_table,
    payload_bytes,
    protocol_bytes,
    sphere_cell,
    sum_cell,
)

ROOT = Path(__file__).parents[1]
DATA = ROOT / "lab" / "jopeq_lab" / "explorer" / "data"
Cell = tuple[float, ...] | str  # error, bits and more, or the reason of a refusal


# The tables

DIGITS = 5


def tables(
    run: Callable[[Callable[..., Any], Iterable[Any]], Iterator[Any]] = map,
) -> dict[str, Any]:
    """All cells, flat, the last axis first to change. A refused cell holds its reason.

    ``run`` maps a function over cells, such as ``multiprocessing.Pool.imap`` does.
    """
    a = AXES
    sphere = list(run(_sphere, product(a["epsilon"], a["rounds"], a["entries"])))
    names = ("epsilon", "clients", "rounds", "entries", "delta")  # plans of one cohort have tables
    summed = list(run(_sum, product(*(a[name] for name in names))))
    cohorts = [count for count in a["clients"] if count <= MOST_SUMMED]
    entry = {
        name: list(run(_entry, product((name,), a["epsilon"], a["rate"]))) for name in PER_ENTRY
    }
    return {
        "axes": {name: list(values) for name, values in a.items()},
        "multipliers": multiplier_table(),
        "sphere": {"by": ["epsilon", "rounds", "entries"], **_columns(sphere)},
        "clients": {"by": list(names), **_columns(summed)},
        "protocol": {
            "clients": _protocol(cohorts, "clients"),
        },
        "entry": {
            name: {key: [cell[key] for cell in cells] for key in cells[0]}
            for name, cells in entry.items()
        },
    }


def _protocol(clients: Iterable[int], scheme: str) -> list[int]:
    settings = (Setting(scheme=scheme, clients=count) for count in clients)
    return [protocol_bytes(one.clients, one.threshold) for one in settings]


def rounded(value: float) -> float:
    """Five digits."""
    return float(f"{value:.{DIGITS}g}")


def _columns(cells: list[Cell]) -> dict[str, list[Any]]:
    return {
        "error": [cell if isinstance(cell, str) else rounded(cell[0]) for cell in cells],
        "bits": [0 if isinstance(cell, str) else cell[1] for cell in cells],
    }


def _sphere(place: tuple[float, int, int]) -> Cell:
    return sphere_cell(*place)


def _sum(place: tuple[float, int, int, int, float]) -> Cell:
    epsilon, clients, times, entries, delta = place
    return sum_cell(epsilon, delta, clients, times, entries)


def _entry(place: tuple[str, float, float]) -> dict[str, Any]:
    """ε, rounded up (None: infinite), and bias; bytes by entries; spread and errors by clients.

    ``lasting`` is the part of ``error`` that biases make: no number of clients or rounds lowers it.
    """
    built = entry_scheme(*place)
    spreads = [best_spread(built, clients) for clients in AXES["clients"]]
    pairs = list(zip(spreads, AXES["clients"], strict=True))
    proven = built.guarantee.epsilon
    return {
        "epsilon": float(digits_up(proven, DIGITS)) if math.isfinite(proven) else None,
        "bias": rounded(built.bias()),
        "bits": rounded(built.bits_per_entry),
        "bytes": [payload_bytes(built, entries) for entries in AXES["entries"]],
        "spread": [round(spread, 2) for spread in spreads],
        "error": [rounded(normalised_error(built, *pair)) for pair in pairs],
        "lasting": [rounded(normalised_error(built, spread, math.inf)) for spread in spreads],
    }


def make_grid(processes: int) -> Any:
    """All tables, by several processes."""
    with multiprocessing.Pool(processes) as pool:
        return tables(lambda function, places: pool.imap(function, list(places), chunksize=15))


# What attackers recovered

ATTACKS = {  # (scheme, ε of what the attacker sees): file and its name for it
    ("sphere", 2.0): ("people", "sphere, ε = 2"),
    ("sphere", 4.0): ("people", "sphere, ε = 4"),
    ("sphere", 8.0): ("people", "sphere, ε = 8"),
    ("response", 3.0): ("paper", "response, ε=3, R=8"),
    ("response", 4.0): ("people", "response, ε = 4 per entry"),
    ("response", 10.0): ("paper", "response, ε=10, R=8"),
    ("jopeq", 3.0): ("paper", "jopeq, ε=3, R=8"),
    ("jopeq", 10.0): ("paper", "jopeq, ε=10, R=8"),
}
SHOWN = 4


def pictures() -> Any:
    """Strips of four images, what was recovered, and the nearest measurement of each setting."""
    import numpy as np

    results = ROOT / "results"
    people, paper = (
        np.load(results / "people_attacks.npz"),
        np.load(results / "attack_pictures.npz"),
    )
    named = dict(zip(paper["names"].tolist(), paper["pictures"], strict=True))
    rows = {
        source: [json.loads(line) for line in (results / name).read_text().splitlines()]
        for source, name in (("people", "people_attacks.jsonl"), ("paper", "attacks.jsonl"))
    }
    strips = {
        "people": _strip(people["originals"]),
        "paper": _strip(named["original"]),
        "people raw": _strip(people["raw|adaptive"]),
        "paper raw": _strip(named['["none",{}] adaptive']),
    }
    measured = []
    for (scheme, epsilon), (source, label) in ATTACKS.items():
        found = [
            row for row in rows[source] if row["label"] == label and row["method"] == "adaptive"
        ]
        first = next(row for row in found if row.get("epoch", 0) == 0)
        images = (
            people[f"{label}|adaptive"]
            if source == "people"
            else named[f"{first['spec']} adaptive"]
        )
        strips[label] = _strip(images)
        worst = max(found, key=lambda row: _recovered(row)[0])
        measured.append(
            {
                "scheme": scheme,
                "epsilon": epsilon,
                "strip": label,
                "source": source,
                "recovered": _recovered(first),
                "worst": [*_recovered(worst), worst.get("epoch", 0)],
            }
        )
    whole = [("sphere", e / t) for e in AXES["epsilon"] for t in AXES["rounds"]]
    entries = [(name, epsilon) for name in PER_ENTRY for epsilon in AXES["epsilon"]]
    nearest: dict[str, list[int]] = {}
    for name, epsilon in whole + entries:
        nearest.setdefault(name, []).append(_nearest(measured, name, epsilon))
    return {"strips": strips, "measured": measured, "nearest": nearest}


def _recovered(row: dict[str, Any]) -> tuple[int, int]:
    return sum(value > 0.5 for value in row["ssim"]), len(row["ssim"])


def _nearest(measured: list[dict[str, Any]], name: str, epsilon: float) -> int:
    alike = [place for place, one in enumerate(measured) if one["scheme"] == name]
    return min(alike, key=lambda place: abs(math.log(measured[place]["epsilon"] / epsilon)))


def _strip(images: Any) -> str:
    """Four images side by side, as a data URI."""
    import numpy as np
    from PIL import Image

    held = io.BytesIO()
    row = np.concatenate(list(images[:SHOWN].transpose(0, 2, 3, 1)), axis=1)
    Image.fromarray(row).save(held, "WEBP", quality=90)
    return "data:image/webp;base64," + base64.b64encode(held.getvalue()).decode()


# Charts

AXIS = {"grid": True, "domain": False, "ticks": False, "labelPadding": 6, "titlePadding": 8}
NUMBERS = (
    "datum.value >= 1e9 ? datum.value / 1e9 + ' bn' "
    ": datum.value >= 1e6 ? datum.value / 1e6 + ' M' "
    ": datum.value < 1e-6 ? format(datum.value, '.0e') : format(datum.value, ',~r')"
)
OPACITY = {"field": "opacity", "type": "nominal", "scale": None}
LOOK = {
    "color": {"field": "colour", "type": "nominal", "scale": None},
    "shape": {"field": "shape", "type": "nominal", "scale": None},
}


def charts() -> Any:
    """The Vega specifications of the three charts, compiled from Vega-Lite."""
    import vl_convert

    specs = {"learn": _learn(), "bytes": _bytes(), "epsilon": _epsilon()}
    return {
        name: vl_convert.vegalite_to_vega(spec, vl_version="6.4") for name, spec in specs.items()
    }


def _top(height: int, **params: float) -> dict[str, Any]:
    given = {"danger": "#c0392b", "ink": "#222", **params}  # the page sets them
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": height,
        "background": None,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "params": [{"name": name, "value": value} for name, value in given.items()],
        "config": {"view": {"stroke": None}, "font": "inherit"},
    }


def _units(thousand: str, million: str) -> str:
    return (
        f"datum.value >= 1e6 ? datum.value / 1e6 + ' {million}' "
        f": datum.value >= 1e3 ? datum.value / 1e3 + ' {thousand}' : datum.value"
    )


def _learn() -> dict[str, Any]:
    """Error of the mean against clients, and where noise drowns the signal."""
    x = {
        "field": "clients",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [10, 1_000_000], "nice": False},
        "axis": {**AXIS, "title": "clients per round, or patients",
                 "values": [10**p for p in range(1, 7)], "labelExpr": _units("k", "M")},
    }  # fmt: skip
    ends = {"domainMin": {"expr": "low"}, "domainMax": {"expr": "high"}}
    scale = {"type": "log", **ends, "nice": False, "clamp": True}
    y = {
        "field": "error",
        "type": "quantitative",
        "scale": scale,
        "axis": {**AXIS, "title": "error of the mean ÷ signal, all rounds", "tickCount": 6,
                 "labelExpr": NUMBERS},
    }  # fmt: skip
    return {
        **_top(300, low=1e-4, high=1e4),
        "layer": [
            {
                "data": {"name": "bands"},
                "mark": {"type": "rect", "color": {"expr": "danger"}, "clip": True},
                "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"},
                             "opacity": OPACITY},
            },
            {
                "data": {"name": "notes"},
                "mark": {"type": "text", "align": "right", "baseline": "top", "dx": -6, "dy": 6,
                         "color": {"expr": "ink"}, "fontWeight": 600},
                "encoding": {"x": x, "y": y, "text": {"field": "text", "type": "nominal"}},
            },
            {
                "data": {"name": "lines"},
                "mark": {"type": "line", "strokeWidth": 2, "clip": True},
                "encoding": {"x": x, "y": y, "color": LOOK["color"],
                             "detail": {"field": "scheme", "type": "nominal"},
                             "opacity": OPACITY},
            },
            {
                "data": {"name": "lines"},
                "mark": {"type": "point", "filled": True, "size": 45, "clip": True},
                "encoding": {"x": x, "y": y, **LOOK,
                             "opacity": OPACITY,
                             "tooltip": {"field": "tip", "type": "nominal"}},
            },
            {
                "data": {"name": "labels"},
                "mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 5, "dy": -6,
                         "fontWeight": 600},
                "encoding": {"x": x, "y": y, "color": LOOK["color"],
                             "text": {"field": "scheme", "type": "nominal"}},
            },
            {
                "data": {"name": "here"},
                "mark": {"type": "point", "size": 260, "strokeWidth": 2.5, "filled": False},
                "encoding": {"x": x, "y": y, **LOOK},
            },
        ],
    }  # fmt: skip


def _rows(title: str, values: str, domain: list[float], height: int, label: str) -> dict[str, Any]:
    """Dots on a logarithmic axis, a row each, with the value written beside."""
    scale = {"type": "log", "domain": domain, "nice": False, "clamp": True}
    middle = math.sqrt(domain[0] * domain[1])
    x = {"field": values, "type": "quantitative", "scale": scale,
         "axis": {**AXIS, "title": title, "labelExpr": label, "tickCount": 6,
                  "labelOverlap": True}}  # fmt: skip
    y = {"field": "row", "type": "nominal", "sort": None, "title": None,
         "axis": {**AXIS, "grid": False, "labelLimit": 130}}  # fmt: skip
    return {
        **_top(height),
        "layer": [
            {
                "data": {"name": "rows"},
                "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.35},
                "encoding": {"x": {**x, "field": "start"}, "x2": {"field": values}, "y": y,
                             "color": LOOK["color"]},
            },
            {
                "data": {"name": "rows"},
                "mark": {"type": "point", "filled": True, "size": 90},
                "encoding": {"x": x, "y": y, **LOOK},
            },
            {
                "data": {"name": "rows"},
                "mark": {"type": "text", "baseline": "bottom", "dy": -7, "color": {"expr": "ink"},
                         "align": {"expr": f"datum.{values} > {middle} ? 'right' : 'left'"}},
                "encoding": {"x": x, "y": y, "text": {"field": "text", "type": "nominal"}},
            },
        ],
    }  # fmt: skip


def _bytes() -> dict[str, Any]:
    return _rows("bytes that one sends per round", "bytes", [1, 1e8], 190, _units("kB", "MB"))


def _epsilon() -> dict[str, Any]:
    """ε of an entry, an update and a person, on the tiers."""
    spec = _rows("ε, smaller is better", "epsilon", [0.001, 1e11], 150, NUMBERS)
    tiers = {
        "data": {"name": "bands"},
        "mark": {"type": "rect", "color": {"expr": "danger"}},
        "encoding": {
            "x": {**spec["layer"][1]["encoding"]["x"], "field": "low"},
            "x2": {"field": "high"},
            "opacity": OPACITY,
        },
    }
    spec["layer"].insert(0, tiers)
    return spec


def main() -> None:
    """Make one of the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("grid", "pictures", "charts"))
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    made = make_grid(given.processes) if given.what == "grid" else globals()[given.what]()
    path = DATA / f"{given.what}.json"
    path.write_text(
        json.dumps(made, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
