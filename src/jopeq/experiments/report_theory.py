"""The section of a report on the theorems: every figure, every number that was kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jopeq.experiments.drawing import new_figure
from jopeq.experiments.report_html import Figure, Section, Table
from jopeq.experiments.report_records import Configurations
from jopeq.experiments.report_sections import drawn
from jopeq.experiments.report_tables import Source, record_tables

Part = Mapping[str, Any]
_INFINITE = {"noise_share": ("exact",)}  # fields in which null stands for ∞
_MAPS = {"noise_share": ("letters", "epsilons")}  # what rows and columns of its maps stand for


def theory_section(
    parts: Mapping[str, Part], configurations: Configurations, problems: list[str]
) -> Section:
    """The theorems: all figures, and every list of numbers as a table."""
    from jopeq.experiments import theory_figures

    if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
        raise ValueError("it holds no parts: delete it and run `jopeq reproduce theory`")
    figures: list[Figure] = []
    for name, (part, draw, size) in theory_figures.FIGURES.items():
        if part not in parts:
            problems.append(f"theory.json: {name} needs the part {part!r}, which is not there")
            continue
        save = partial(_save, draw, parts[part], size)
        title = name.replace("-", ": ", 1).replace("-", " ")
        figures += drawn(save, name, title, problems)
    tables = [
        table
        for part, content in parts.items()
        for table in _part_tables(part, content, configurations)
    ]
    return Section(
        "theory",
        "The theorems",
        text="Numbers as kept; docs/theory.md says what each of them means. Long lists are folded.",
        figures=figures,
        tables=tables,
    )


def _part_tables(part: str, content: Part, configurations: Configurations) -> list[Table]:
    """Lists of objects, objects, and what lists the part has itself."""
    about = ("effort", "versions")
    single = {key: v for key, v in content.items() if isinstance(v, (str, int, float))}
    settings = {"part": part, **content.get("effort", {}), **single, **content.get("versions", {})}
    source = Source("theory.json", settings, configurations, _INFINITE.get(part, ()))
    tables: list[Table] = []
    lists: dict[str, Any] = {}
    for key, value in content.items():
        if key in about or key in single:
            continue
        if isinstance(value, dict):
            tables += record_tables([value], source, f"{part}: {key}")
        elif isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            tables += record_tables(value, source, f"{part}: {key}")
        else:
            lists[key] = value
    if part in _MAPS and set(_MAPS[part]) <= lists.keys():
        lists = _unfolded(lists, *_MAPS[part])
    return tables + (record_tables([lists], source, f"{part}: map") if lists else [])


def _unfolded(lists: Mapping[str, Any], down: str, across: str) -> dict[str, list[Any]]:
    """A map as lists in parallel, one element for each pair.

    >>> _unfolded({"x": [1, 2], "y": [3, 4], "z": [[5, 6], [7, 8]]}, "x", "y")
    {'x': [1, 1, 2, 2], 'y': [3, 4, 3, 4], 'z': [5, 6, 7, 8]}
    """
    rows, columns = lists[down], lists[across]
    axes = {
        down: [row for row in rows for _ in columns],
        across: [column for _ in rows for column in columns],
    }
    others = {
        name: [value for row in values for value in row]
        for name, values in lists.items()
        if name not in axes
    }
    if any(len(values) != len(axes[down]) for values in others.values()):
        raise ValueError(f"maps must have {len(rows)} rows of {len(columns)}")
    return axes | others


def _save(
    draw: Callable[[Any, Any], None], part: Any, size: tuple[float, float], path: Path
) -> None:
    figure = new_figure(size)
    draw(part, figure)
    figure.savefig(path)
