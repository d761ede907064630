"""A folder of results on one page: figures, tables, and what is behind each number."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jopeq.errors import DataError
from jopeq.experiments.report_html import MARK, Section, html_page
from jopeq.experiments.report_records import Configurations, Records, kept_records, unique_slugs
from jopeq.experiments.report_runs import runs_section
from jopeq.experiments.report_sections import TITLES, attack_section, records_section
from jopeq.experiments.report_speed import speed_section
from jopeq.experiments.report_theory import theory_section
from jopeq.experiments.report_training import OF_TRAINING, training_section, trainings
from jopeq.federated.record import ROUNDS
from jopeq.versions import versions
from jopeq.whole_files import atomic

_MADE_WITH = ("numpy", "scipy", "matplotlib", "torch")
# JSON files, in the order of the page, and how they are made anew
_WHOLE = {
    "theory.json": (theory_section, "jopeq reproduce theory"),
    "bench.json": (speed_section, "make bench"),
}
_HEAD = 1000  # characters of a page among which its mark is


def write_report(results: Path, out: Path) -> list[str]:
    """Write the page, all or nothing; what had to be left out of it, and why.

    Raises ``DataError`` where there is nothing to show, or something else in the page's place.
    """
    _check_place(out)
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


def _check_place(out: Path) -> None:
    """Only a page of this command is replaced, never results or anything else."""
    if not out.exists():
        return
    if not out.is_file():
        raise DataError(f"{out} cannot be written (it is no file): choose another with --out")
    try:
        with out.open(encoding="utf-8", errors="replace") as file:
            is_ours = MARK in file.read(_HEAD)
    except OSError as error:
        raise DataError(
            f"{out} is there and cannot be read ({error}): choose another file with --out"
        ) from error
    if not is_ours:
        raise DataError(
            f"{out} is there and no page of `jopeq report`: choose another file with --out, or "
            "delete this one"
        )


def report(results: Path) -> tuple[str, list[str]]:
    """The page of a folder of results, and what is not on it."""
    if not results.is_dir():
        raise DataError(
            f"{results} is no folder: name the one that holds the .jsonl files of "
            "`jopeq reproduce` or `jopeq demo`, or what `jopeq train --out` wrote"
        )
    problems: list[str] = []
    configurations = Configurations()
    sections: list[Section] = []
    found = trainings(results, problems)
    if found:
        make = partial(training_section, found, configurations, problems)
        sections += _tried("training", problems, make)
    shown = {one.rounds.path for one in found}
    paths = sorted(set(results.glob("*.jsonl")) - shown, key=_place)
    slugs = unique_slugs((path.stem for path in paths), TITLES)
    files = [kept_records(path, slug) for path, slug in zip(paths, slugs, strict=True)]
    for file in files:
        problems += file.problems
    for file in files:
        if file.records:
            make = partial(_section, file, files, configurations, problems)
            sections += _tried(file.name, problems, make)
    for name in _WHOLE:
        if (results / name).exists():
            make = partial(_whole, results / name, configurations, problems)
            sections += _tried(name, problems, make)
    known = {*_WHOLE, *(OF_TRAINING if (results / ROUNDS).exists() else ())}
    others = sorted({path.name for path in results.glob("*.json")} - known)
    problems += [f"{name}: not a file of results that is known" for name in others]
    problems = list(dict.fromkeys(problems))
    if not sections:
        reasons = "; ".join(problems) or "it has no .jsonl file, no theory.json and no bench.json"
        raise DataError(f"{results} holds nothing to report ({reasons}): run `jopeq reproduce`")
    sections.append(configurations.section())
    name = results.resolve().name
    intro = (
        f"Made by `jopeq report {name}` with {_versions()}. Every row names its "
        "configuration: settings and versions, as recorded with the numbers, are listed at the "
        "end. Click a heading to sort."
    )
    return html_page(f"jopeq: {name}", intro, sections, problems), problems


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


def _whole(path: Path, configurations: Configurations, problems: list[str]) -> Section:
    make, command = _WHOLE[path.name]
    try:
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"not JSON ({error}): delete it and run `{command}`") from None
    return make(content, configurations, problems)


def _versions() -> str:
    return ", ".join(f"{name} {number}" for name, number in versions(*_MADE_WITH).items())
