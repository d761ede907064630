"""The section of a report on speed: the tables and the figure of the benchmarks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from jopeq.experiments import speed_tables
from jopeq.experiments.report_html import Cell, Link, Section, Table, Value
from jopeq.experiments.report_records import Configurations
from jopeq.experiments.report_sections import drawn
from jopeq.experiments.speed_figure import draw_speed

FILE = "bench.json"
_TEXT = (
    "M/s: million entries a second, of whole calls, from an array to payload bytes and back. copy "
    "is one into memory that is there, new copy one that is given memory first, eager the obvious "
    "PyTorch version, which makes no bits. docs/speed.md says how this was measured."
)
_NUMBER = re.compile(r"(?:< )?([\d,]*\.?\d+(?:e[+-]?\d+)?) ?(%|×|ms|s)?")
_POWER = re.compile("10([⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def speed_section(
    results: Mapping[str, Any], configurations: Configurations, problems: list[str]
) -> Section:
    """Everything that was measured, as docs/speed.md shows it."""
    link = configurations.link(FILE, results["machine"])
    links: dict[str, Link] = {}
    if "gpu" in results:
        gpu = results["gpu"]
        settings = {k: v for k, v in gpu.items() if v and isinstance(v, (str, int, float))}
        shown = (speed_tables.gpu_table(gpu), speed_tables.gpu_target_table(gpu))
        links = {table.title: configurations.link(FILE, settings) for table in shown}
    tables = [
        _table(shown, links.get(shown.title, link)) for shown in speed_tables.all_tables(results)
    ]
    missing = results["peers"]["missing"]
    others = "".join(f" Not measured: {name} ({reason})." for name, reason in missing.items())
    save, title = partial(draw_speed, results["codecs"]), "Speed against the size of an update"
    figures = drawn(save, "speed", title, problems)
    return Section("speed", "Speed", _TEXT + others, figures, tables)


def _table(shown: speed_tables.Table, link: Link) -> Table:
    rows = [(*map(sortable, row), link) for row in shown.rows]
    return Table((*shown.head, "configuration"), rows, shown.title)


def sortable(text: str) -> Cell:
    """A cell that is ready to print, with the number it is sorted by if it has one.

    >>> sortable("85 ms"), sortable("sdq E8")
    (Value(text='85 ms', key=0.085), 'sdq E8')
    >>> [sortable(text).key for text in ("1,295", "10⁶", "12×", "< 0.01%")]
    [1295.0, 1000000.0, 12.0, 0.0001]
    """
    if text == "–":
        return None
    power = _POWER.fullmatch(text)
    if power:
        return Value(text, 10.0 ** int(power[1].translate(_RAISED)))
    number = _NUMBER.fullmatch(text)
    if not number:
        return text
    unit = {"ms": 0.001, "%": 0.01}.get(number[2] or "", 1.0)
    return Value(text, float(number[1].replace(",", "")) * unit)
