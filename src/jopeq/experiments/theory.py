"""The experiments on the paper's theorems: what is missing is computed, all of it is kept.

``results/theory.json`` holds the numbers, one entry a theorem; docs/theory.md and its figures are
made from that file alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jopeq.errors import DataError
from jopeq.experiments.theory_aggregation import aggregation_part
from jopeq.experiments.theory_convergence import convergence_part
from jopeq.experiments.theory_dither import dither_part
from jopeq.experiments.theory_noise_share import noise_share_part
from jopeq.experiments.theory_setting import FULL, Effort
from jopeq.experiments.theory_total_error import total_error_part
from jopeq.versions import versions
from jopeq.whole_files import atomic

PARTS: Mapping[str, Callable[[Effort], dict[str, Any]]] = {
    "dither": dither_part,
    "total_error": total_error_part,
    "noise_share": noise_share_part,
    "aggregation": aggregation_part,
    "convergence": convergence_part,
}
DIGITS = 6


def run_theory(
    path: Path, effort: Effort = FULL, progress: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Compute the parts that ``path`` lacks, or holds with another effort; returns all of them."""
    kept = read_theory(path) if path.exists() else {}
    used = json.loads(json.dumps(asdict(effort)))
    missing = [name for name in PARTS if kept.get(name, {}).get("effort") != used]
    if missing:
        _write(path, kept)  # where that is impossible, it shows before the work
    for name in missing:
        if progress is not None:
            progress(name)
        made_with = versions("numpy", "scipy")
        kept[name] = {"effort": used, "versions": made_with, **_rounded(PARTS[name](effort))}
        _write(path, {part: kept[part] for part in PARTS if part in kept})
    return {part: kept[part] for part in PARTS}


def read_theory(path: Path) -> dict[str, Any]:
    """What ``run_theory`` kept."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read ({error}): delete it and run `jopeq reproduce theory`"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(part, dict) for part in found.values()):
        raise DataError(f"{path} holds no results: delete it and run `jopeq reproduce theory`")
    return found


def _write(path: Path, parts: Mapping[str, Any]) -> None:
    """All or nothing: a run that is interrupted leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f" {json.dumps(name)}: {json.dumps(part)}" for name, part in parts.items()]
    with atomic(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _rounded(value: Any) -> Any:
    """Six digits are more than any of these numbers is good for; JSON knows no infinity."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
