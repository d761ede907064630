"""The lines to copy: Python, the command line and Flower, for one setting.

The page fills the same templates of ``data/lines.toml``; a test compares both and runs the lines.
"""

from __future__ import annotations

import math
import tomllib
from importlib import resources

from jopeq_lab.explorer.grid import PER_ENTRY, Setting

_TEMPLATES = resources.files("jopeq_lab.explorer") / "data" / "lines.toml"
LINES: dict[str, dict[str, str]] = tomllib.loads(_TEMPLATES.read_text(encoding="utf-8"))
MOST_ENTRIES = 1 << 22  # that ``Sphere`` decodes without being told more


def lines(
    setting: Setting, spread: float | None = None, sampling: float | None = None
) -> dict[str, str]:
    """The three texts. Per-entry schemes need the best ``spread``, records their ``sampling``."""
    s = setting
    values = {
        "scheme": s.scheme,
        "epsilon": f"{s.epsilon:g}",
        "part": f"{s.epsilon:g}" if s.times == 1 else f"{s.epsilon:g} / {s.times}",
        "each": f"{math.floor(s.epsilon / s.times * 1e6) / 1e6:g}",
        "delta": f"1e-{round(-math.log10(s.delta))}",
        "clients": str(s.clients),
        "threshold": str(s.threshold),
        "times": str(s.times),
        "entries": str(s.entries),
        "rate": f"{s.rate:g}",
        "spread": "" if spread is None else f"{spread:g}",
        "patients": str(s.patients),
        "sampling": "" if sampling is None else f"{sampling:g}",
        "columns": str(s.columns),
        "models_threshold": str(max(3, s.clients // 2 + 1)),
        "more": f", max_entries={s.entries}" if s.entries > MOST_ENTRIES else "",
    }
    return {
        kind: text.format(**values)
        for kind, text in LINES["entry" if s.scheme in PER_ENTRY else s.scheme].items()
    }
