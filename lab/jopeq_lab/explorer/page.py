"""The page as one text: template, style, script, charting library and tables. No network."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from jopeq.analysis.learning import CLEAR, DROWNED, NOISY
from jopeq.models.inference import BURNED, Binomial
from jopeq.privacy.guarantee import STRENGTHS
from jopeq.sums.record_plan import SIGNAL
from jopeq.sums.record_sum import RecordSum
from jopeq.versions import __version__
from jopeq_lab.explorer.grid import (
    BITS,
    DEARER,
    MOST_SIZE,
    PER_ENTRY,
    PRICE,
    REASONS,
    SCHEMES,
    WIDE,
    Setting,
    protocol_bytes,
)
from jopeq_lab.explorer.lines import LINES, MOST_ENTRIES
from jopeq_lab.pictures.colours import LOOKS


def page(home: str = "") -> str:
    """The page; ``home`` is a link to the documentation, for the page that stands in it."""
    parts = {
        "home": f'<p><a href="{home}">← jopeq: documentation</a></p>' if home else "",
        "style": _read("page.css"),
        "vega": _read("vega.min.js"),
        "data": json.dumps(_data(), separators=(",", ":"), ensure_ascii=False),
        "script": _read("page.js"),
    }
    text = _read("page.html")
    for name, part in parts.items():
        text = text.replace(f"{{{{{name}}}}}", part.replace("</script", "<\\/script"))
    return text


def _data() -> dict[str, Any]:
    """Everything that the page knows."""
    default = Setting(scheme="models", epsilon=1.0, clients=10, rounds=7, patients=4_000)
    slider = Setting()
    return {
        "version": __version__,
        "grid": json.loads(_read("grid.json")),
        "charts": json.loads(_read("charts.json")),
        "pictures": json.loads(_read("pictures.json")),
        "reasons": REASONS,
        "lines": LINES,
        "most_entries": MOST_ENTRIES,
        "per_entry": PER_ENTRY,
        "looks": {name: [*LOOKS[name][:2], LOOKS[name].shape] for name in (*SCHEMES, "none")},
        "tiers": list(STRENGTHS.items()),
        "records": {
            "signal": SIGNAL,
            "dearer": DEARER,
            "price": PRICE,
            "bits": BITS,
            "most": MOST_SIZE,
            "protocol": protocol_bytes(10, 5),
            "dependence": RecordSum.batch_dependence,
        },
        "models": {"burned": BURNED, "wide": WIDE, "balance": Binomial.balance},
        "learns": [CLEAR, NOISY, DROWNED],
        "default": {name: getattr(default, name) for name in Setting.__dataclass_fields__},
        "slider": {name: getattr(slider, name) for name in Setting.__dataclass_fields__},
    }


def _read(name: str) -> str:
    return (resources.files("jopeq_lab.explorer") / "data" / name).read_text(encoding="utf-8")
