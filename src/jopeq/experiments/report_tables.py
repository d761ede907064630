"""Records of any shape as tables: a row for each, and the long lists in them place by place."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jopeq.experiments.report_html import Cell, Link, Table, Value, digits
from jopeq.experiments.report_records import Configurations

Record = Mapping[str, Any]
_LONGEST = 8  # list that is shown inside a cell


@dataclass(frozen=True)
class Source:
    """Where records are from, and their settings, unless a record tells some itself.

    ``infinite`` are the fields in which null stands for ∞.
    """

    file: str
    settings: Record
    configurations: Configurations
    infinite: Collection[str] = ()

    def link(self, record: Record) -> Link:
        """The configuration of a record."""
        own = record.get("settings")
        return self.configurations.link(self.file, own if isinstance(own, dict) else self.settings)

    def cell(self, name: str, value: Any) -> Cell:
        """A number, a word, or a short list of them."""
        if value is None:
            return Value("∞", math.inf) if name in self.infinite else None
        return ", ".join(map(_word, value)) if isinstance(value, list) else value


def record_tables(records: Iterable[Record], source: Source, caption: str) -> list[Table]:
    """A table with a row for each record, and a folded one of the lists that fit into no cell.

    Those lists of a record run in parallel, and make a row for each place.
    """
    kept = list(records)
    flat = [_flat(record) for record in kept]
    fields = dict.fromkeys(name for record in flat for name in record)
    short = [name for name in fields if all(_fits(record.get(name)) for record in flat)]
    long = [name for name in fields if name not in short]
    links = list(map(source.link, kept))
    rows = [[source.cell(name, record.get(name)) for name in short] for record in flat]
    told = _telling(flat, short)
    if long and told is None:
        told = ["row"]
        short = [*told, *short]
        rows = [[number, *row] for number, row in enumerate(rows, start=1)]
    tables = []
    if short:
        cells = [(*row, link) for row, link in zip(rows, links, strict=True)]
        tables.append(Table((*short, "configuration"), cells, caption))
    if long:
        names = [[row[short.index(name)] for name in told or ()] for row in rows]
        curves = [_curves(record, long) for record in flat]
        table = _long_table(told or [], names, curves, links, source)
        tables.append(Table(*table, f"{caption}, place by place", is_folded=True))
    return tables


def _flat(record: Record) -> dict[str, Any]:
    """Without objects in objects, and without the settings, which are behind the link."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if not isinstance(value, dict):
            flat[name] = value
        elif name != "settings":
            flat |= {f"{name}: {inner}": one for inner, one in _flat(value).items()}
    return flat


def _telling(flat: Sequence[Record], fields: Sequence[str]) -> list[str] | None:
    """The fields whose words tell the records from each other; one record needs none."""
    if len(flat) == 1:
        return []
    words = [n for n in fields if all(isinstance(record.get(n), str) for record in flat)]
    found = {tuple(record[name] for name in words) for record in flat}
    return words if len(found) == len(flat) else None


def _curves(record: Record, fields: Sequence[str]) -> dict[str, Sequence[Any]]:
    """The lists, those of lists one by one; what is in no list is one of one."""
    curves: dict[str, Sequence[Any]] = {}
    for name in fields:
        value = record.get(name)
        if not isinstance(value, list):
            curves[name] = [] if value is None else [value]
        elif all(map(_is_list, value)):
            curves |= {f"{name} {number}": one for number, one in enumerate(value, start=1)}
        else:
            curves[name] = [one if _is_single(one) else json.dumps(one) for one in value]
    return curves


def _long_table(
    told: Sequence[str],
    names: Sequence[Sequence[Cell]],
    curves: Sequence[Mapping[str, Sequence[Any]]],
    links: Sequence[Link],
    source: Source,
) -> tuple[Sequence[str], Sequence[Sequence[Cell]]]:
    """Headings and rows: the curves of all records below each other."""
    fields = list(dict.fromkeys(name for some in curves for name in some))
    rows: list[Sequence[Cell]] = []
    for own, some, link in zip(names, curves, links, strict=True):
        for place in range(max(map(len, some.values()), default=0)):
            cells = [
                source.cell(name, some[name][place]) if place < len(some.get(name, ())) else None
                for name in fields
            ]
            rows.append((*own, *cells, link))
    return (*told, *fields, "configuration"), rows


def _fits(value: Any) -> bool:
    return _is_single(value) or (_is_list(value) and len(value) <= _LONGEST)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_single, value))


def _is_single(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _word(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return digits(value)
    return "–" if value is None else str(value)
