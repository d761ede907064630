"""The records of a results file, read with care, and the configurations they were made with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jopeq.experiments.report_html import Link, Section, Table

# fields that tell a kind of record
_KINDS = {
    "runs": {"label", "scheme", "model", "seed", "test_accuracy", "validation"},
    "attacks": {"label", "spec", "method", "epoch", "ssim"},
}
_MOST_PROBLEMS = 5  # of one file that are named one by one


@dataclass(frozen=True)
class Records:
    """One JSON Lines file: its records, what they are, and the lines that could not be read.

    ``slug`` names its section and figures on a page.
    """

    path: Path
    slug: str
    kind: str
    records: list[dict[str, Any]]
    problems: list[str]

    @property
    def name(self) -> str:
        return self.path.name


def kept_records(path: Path, slug: str = "") -> Records:
    """All records of a file that can be read.

    A line that is no JSON object, or lacks what the others of its file have, is a problem, not the
    end: a run that was interrupted while writing leaves half a line.
    """
    records, problems = [], []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return Records(path, slug, "records", [], [f"{path.name}: cannot be read ({error})"])
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append(f"{path.name}, line {number}: not JSON ({error})")
            continue
        if not isinstance(record, dict):
            problems.append(f"{path.name}, line {number}: not an object but {record!r:.40}")
            continue
        records.append((number, record))
    kind = _kind([record for _, record in records])
    whole = []
    for number, record in records:
        missing = _KINDS.get(kind, set()) - record.keys()
        if missing:
            problems.append(f"{path.name}, line {number}: lacks {', '.join(sorted(missing))}")
        else:
            whole.append(record)
    if not whole and not problems:
        problems.append(f"{path.name}: empty")
    return Records(path, slug, kind, whole, _first(problems, path.name))


def _first(problems: list[str], name: str) -> list[str]:
    """A file that is something else altogether has a problem in every line."""
    more = len(problems) - _MOST_PROBLEMS
    if more <= 1:
        return problems
    return [*problems[:_MOST_PROBLEMS], f"{name}: {more:,} more lines cannot be read either"]


def unique_slugs(stems: Iterable[str], known: Iterable[str]) -> list[str]:
    """Ids for the sections of files: those of ``known`` as they are, others told from all else.

    >>> unique_slugs(["fig2", "theory", "a b", "a+b"], known=["fig2"])
    ['fig2', 'file-theory', 'file-a-b', 'file-a-b-2']
    """
    slugs: list[str] = []
    for stem in stems:
        plain = stem if stem in known else f"file-{re.sub('[^A-Za-z0-9_-]+', '-', stem)}"
        slug, number = plain, 1
        while slug in slugs:
            number += 1
            slug = f"{plain}-{number}"
        slugs.append(slug)
    return slugs


def _kind(records: list[dict[str, Any]]) -> str:
    """What most records are."""
    for name, fields in _KINDS.items():
        if 2 * sum(fields <= record.keys() for record in records) > len(records):
            return name
    return "records"


@dataclass
class Configurations:
    """Numbers the settings behind the rows of a page, equal ones alike."""

    _known: dict[str, int] = field(default_factory=dict)
    _files: dict[str, set[str]] = field(default_factory=dict)

    def link(self, file: str, settings: Mapping[str, Any]) -> Link:
        """The reference to put into a row."""
        text = ", ".join(f"{key} = {_plain(value)}" for key, value in settings.items())
        text = text or "nothing was recorded with these numbers"
        number = self._known.setdefault(text, len(self._known) + 1)
        self._files.setdefault(text, set()).add(file)
        return Link(f"c{number}", f"configuration-{number}")

    def section(self) -> Section:
        """What the references lead to."""
        rows = [
            (f"c{number}", ", ".join(sorted(self._files[text])), text)
            for text, number in self._known.items()
        ]
        anchors = [f"configuration-{number}" for number in self._known.values()]
        table = Table(("", "file", "settings and versions"), rows, "As recorded", anchors=anchors)
        return Section("configurations", "Configurations and versions", tables=[table])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
