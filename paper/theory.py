"""The theorems' part of docs/paper.md: compute missing numbers, render the text.

``results/theory.json`` holds the numbers, one part per theorem; text and figures follow from it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jopeq.errors import DataError
from jopeq.files import atomic
from jopeq.versions import versions
from paper.theorems import claims
from paper.theorems.aggregation import aggregation_part
from paper.theorems.convergence import TAIL, convergence_part, weights
from paper.theorems.dither import dither_part
from paper.theorems.figures import SIGMAS, drawn
from paper.theorems.mechanisms import mechanisms_part
from paper.theorems.noise_share import noise_share_part
from paper.theorems.setting import Effort
from paper.theorems.total_error import resolution, total_error_part
from paper.words import environment, listed, percent, short, signed

Parts = Mapping[str, Mapping[str, Any]]

PARTS: Mapping[str, Callable[[Effort], dict[str, Any]]] = {
    "dither": dither_part,
    "total_error": total_error_part,
    "noise_share": noise_share_part,
    "aggregation": aggregation_part,
    "convergence": convergence_part,
    "mechanisms": mechanisms_part,
}
DIGITS = 6
FILE = "theory.json"


def section(results: Path) -> tuple[str, dict[Path, bytes]]:
    """Render the text and its figures; empty if ``results`` has no numbers of the theorems.

    Raises unless every claim of the text holds and every figure can be drawn.
    """
    if not (results / FILE).exists():
        return "", {}
    try:
        parts = read_theory(results / FILE)
        return theory_text(parts), drawn(parts)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{FILE} is not as it was kept ({type(error).__name__}: {error})"
        raise DataError(f"{reason}: delete it and run `python -m paper theory`") from error


def compute(path: Path, effort: Effort | None = None) -> dict[str, Any]:
    """Compute the parts that ``path`` lacks, or holds with another effort; returns all of them."""
    effort = effort or Effort()
    kept = read_theory(path) if path.exists() else {}
    used = json.loads(json.dumps(asdict(effort)))
    for name, part in PARTS.items():
        if kept.get(name, {}).get("effort") != used:
            about = {"effort": used, "versions": versions("numpy", "scipy")}
            kept[name] = {**about, **_rounded(part(effort))}
            _write(path, {part: kept[part] for part in PARTS if part in kept})
    return {name: kept[name] for name in PARTS}


def read_theory(path: Path) -> dict[str, Any]:
    """Read the numbers that ``compute`` kept."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def theory_text(parts: Parts) -> str:
    """The text; raises if the numbers do not support a sentence of it."""
    claims.check(parts)
    rows, start = parts["convergence"]["rows"], parts["convergence"]["from_optimum"]
    ends = {(r["problem"], r["split"], r["scheme"]): r["losses"][-1] for r in rows}
    template = environment().get_template("theory.md.j2")
    return template.render(
        **parts,
        listed=listed,
        percent=percent,
        short=short,
        signed=signed,
        claims=claims,
        line={(row["epsilon"], row["rate"]): row for row in parts["total_error"]["line"]},
        points=claims.map_points(parts["noise_share"]),
        resolution=resolution(parts["total_error"]["samples"]),
        digits=DIGITS,
        bar_sigmas=SIGMAS,
        tail=TAIL,
        squared_weights=float((weights("unequal") ** 2).sum()),
        costs=[end / ends[*at, "none"] for (*at, name), end in ends.items() if name == "jopeq"],
        over=max(m / b for m, b in zip(start["losses"], start["printed"], strict=True)),
    )


def _write(path: Path, parts: Parts) -> None:
    """Write all or nothing: an interrupted run leaves the file unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f" {json.dumps(name)}: {json.dumps(part)}" for name, part in parts.items()]
    with atomic(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _rounded(value: Any) -> Any:
    """Round to six digits, more than these numbers deserve; JSON knows no infinity."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
