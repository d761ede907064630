"""A folder of results on one page: figures, tables, and what is behind each number."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jopeq.errors import DataError
from jopeq.experiments.report_html import Section, html_page
from jopeq.experiments.report_records import Configurations, Records, kept_records
from jopeq.experiments.report_sections import (
    TITLES,
    attack_section,
    records_section,
    runs_section,
    theory_section,
)
from jopeq.experiments.versions import versions
from jopeq.whole_files import atomic

_MADE_WITH = ("numpy", "scipy", "matplotlib", "torch")


def write_report(results: Path, out: Path) -> list[str]:
    """Write the page, all or nothing; what had to be left out of it, and why.

    Raises ``DataError`` where there is nothing to show.
    """
    page, problems = report(results)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic(out) as file:
            file.write(page.encode())
    except OSError as error:
        raise DataError(
            f"{out} cannot be written ({error}): choose another file with --out"
        ) from error
    return problems


def report(results: Path) -> tuple[str, list[str]]:
    """The page of a folder of results, and what is not on it."""
    if not results.is_dir():
        raise DataError(
            f"{results} is no folder: name the one that holds the .jsonl files of "
            "`jopeq reproduce` or `jopeq demo`"
        )
    problems: list[str] = []
    configurations = Configurations()
    paths = sorted(results.glob("*.jsonl"), key=_place)
    files = [kept_records(path) for path in paths]
    for file in files:
        problems += file.problems
    sections = []
    for file in files:
        if file.records:
            make = partial(_section, file, files, configurations, problems)
            sections += _tried(file.name, problems, make)
    theory = results / "theory.json"
    if theory.exists():
        make = partial(_theory_section, theory, configurations, problems)
        sections += _tried(theory.name, problems, make)
    if not sections:
        reasons = "; ".join(problems) or "it has no .jsonl file and no theory.json"
        raise DataError(f"{results} holds nothing to report ({reasons}): run `jopeq reproduce`")
    sections.append(configurations.section())
    intro = (
        f"Made by `jopeq report {results.name}` with {_versions()}. Every row names its "
        "configuration: number, seeds, settings and versions of the runs behind it are listed at "
        "the end. Click a heading to sort."
    )
    return html_page(f"jopeq: {results.name}", intro, sections, problems), problems


def _place(path: Path) -> tuple[int, str]:
    known = list(TITLES)
    return known.index(path.stem) if path.stem in known else len(known), path.name


def _tried(name: str, problems: list[str], make: Callable[[], Section]) -> list[Section]:
    """The section; a file that is not what it seems costs its own section and no other."""
    try:
        return [make()]
    except Exception as error:
        problems.append(f"{name}: cannot be shown ({type(error).__name__}: {error})")
        return []


def _section(
    file: Records, files: list[Records], configurations: Configurations, problems: list[str]
) -> Section:
    if file.kind == "runs":
        return runs_section(file, files, configurations, problems)
    if file.kind == "attacks":
        return attack_section(file, configurations, problems)
    return records_section(file, configurations)


def _theory_section(path: Path, configurations: Configurations, problems: list[str]) -> Section:
    try:
        parts: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"not JSON ({error}): delete it and run `jopeq reproduce theory`") from None
    return theory_section(parts, configurations, problems)


def _versions() -> str:
    return ", ".join(f"{name} {number}" for name, number in versions(*_MADE_WITH).items())
