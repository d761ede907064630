"""What the commands print with: one console, one way to write ε, one to write JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from jopeq.privacy.guarantee import digits_up, places_up

_WIDEST_TABLE = 120
_NO_LIMIT = 10_000


def make_console() -> Console:
    """As wide as the terminal; as wide as the widest table when the output is no terminal."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return Console()
    return Console(width=_WIDEST_TABLE)


def make_table(title: str, caption: str, headings: Sequence[str], left: int) -> Table:
    """A table whose first ``left`` columns are words and whose others are numbers."""
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index < left else "right", no_wrap=True)
    return table


def print_table(console: Console, table: Table) -> None:
    """With every digit: where the terminal is too narrow it wraps lines, and nothing is cut."""
    anything = console.options.update(max_width=_NO_LIMIT)
    needed = Measurement.get(console, anything, table).maximum
    wide = console if needed <= console.width else Console(width=needed)
    wide.print(table)


def epsilon_text(value: float | None) -> str:
    """ε for a table, rounded up, of small ones two digits: "none" when nothing is promised.

    >>> [epsilon_text(value) for value in (4.0, 8.042, 0.000412, 31400.2)]
    ['4.00', '8.05', '0.00042', '31,401']
    """
    if value is None:
        return ""
    if math.isinf(value):
        return "none"
    if 0.0 < value < 0.1:
        return digits_up(value, 2)
    return places_up(value, 2 if value < 1000 else 0)


def print_json(value: Any) -> None:
    """One JSON document on standard output; infinities become null, as JSON has none."""
    sys.stdout.write(json.dumps(_finite(value), indent=2, ensure_ascii=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
