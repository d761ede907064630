"""Pages made while the site is built, and pictures that phones show instead of wide ones."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from griffe import Docstring, DocstringParameter, DocstringSectionKind
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import jopeq
from jopeq.registry import SCHEMES
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq.sums.record_sum import ClientSum, RecordSum
from jopeq_lab.explorer import page

# another value than the default of each common parameter
_CHANGED = {"clip": 1.0, "spread": 2.0, "per": "tensor", "center": True}


_WORDY = 40  # characters of a cell from which a table's rows are stacked on phones


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name version and status below every page."""
    config.copyright = f"jopeq {jopeq.__version__}, not released yet · Apache-2.0"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the files that MkDocs copies and checks links against."""
    for name, content in (
        ("explore.html", page(home="index.html")),
        ("parameters.md", "\n\n".join(parameters_page()) + "\n"),
        ("changelog.md", Path("CHANGELOG.md").read_text(encoding="utf-8")),
    ):
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let searches find guides before the reference, which names everything."""
    if not page.file.src_uri.startswith(("api/", "changelog", "parameters", "commands")):
        page.meta["search"] = {"boost": 3}
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let phones choose "…-phone.svg" where there is one, and stack the rows of wordy tables."""
    for phone in files.src_uris:
        if phone.endswith("-phone.svg"):
            both = rf'<picture><source media="(max-width: 700px)" srcset="{phone}">\g<0></picture>'
            wide = re.escape(phone.replace("-phone", ""))
            html = re.sub(f'<img [^>]*src="{wide}"[^>]*>', both, html)
    return re.sub(r"<table>.*?</table>", lambda found: _label_cells(found[0]), html, flags=re.S)


def _label_cells(table: str) -> str:
    """Give the cells of a wordy table their column's name, which phones show before each cell."""
    cells = re.findall(r"<td[^>]*>(.*?)</td>", table, re.S)
    if max((len(re.sub("<[^>]+>", "", cell)) for cell in cells), default=0) < _WORDY:
        return table
    names = [
        re.sub("<[^>]+>", "", name) for name in re.findall(r"<th[^>]*>(.*?)</th>", table, re.S)
    ]

    def label_row(row: re.Match[str]) -> str:
        labels = iter(names)
        return re.sub("<td", lambda _: f'<td data-label="{next(labels, "")}"', row[0])

    labelled = re.sub(r"<tr>.*?</tr>", label_row, table, flags=re.S)
    is_long = any(
        len(code) > _WORDY // 2 for code in re.findall(r"<td.*?<code>(.*?)</code>", table)
    )
    return labelled.replace("<table>", f'<table data-wordy="{"code" if is_long else ""}">', 1)


def parameters_page() -> Iterator[str]:
    """A table for every scheme, of what its class has and says."""
    common = {one.name: one.description for one in _documented(Scheme)}
    yield "# Parameters of every scheme"
    yield (
        "`jopeq.scheme(name, …)` and the class take the same parameters, by keyword; so does "
        "`--parameter NAME=VALUE` of the commands."
    )
    yield "## Common parameters"
    yield _table(Scheme, _documented(Scheme))
    others = ((kind.name, kind) for kind in (Sphere, ClientSum, RecordSum))
    for name, kind in (*SCHEMES.items(), *others):
        found = _documented(kind)
        own = [one for one in found if common.get(one.name) != one.description]
        room = "jopeq" if kind.__name__ in jopeq.__all__ else "jopeq.entries"
        yield f"## `{name}`: `{room}.{kind.__name__}`"
        yield (
            f"{inspect.cleandoc(kind.__doc__ or '').partition(chr(10))[0]} "
            f"[Reference and source](api/jopeq.md#{kind.__module__}.{kind.__qualname__})."
        )
        if own:
            yield _table(kind, own)
        shared = [one.name for one in found if one not in own]
        refused = [name for name in shared if not _takes(kind, name)]
        taken = [name for name in shared if name not in refused]
        for word, names in (("Also takes", taken), ("Refuses", refused)):
            if names:
                yield f"{word} {', '.join(f'`{name}`' for name in names)}."


def _takes(kind: type, name: str) -> bool:
    given: dict[str, Any] = {"epsilon": 4.0, "rate": 2.0}
    needed = {one.name for one in fields(kind)} & {"epsilon", "rate"}
    try:
        kind(**{key: given[key] for key in needed}, **{name: _CHANGED[name]})
    except ValueError:
        return False
    return True


def _documented(kind: type) -> list[DocstringParameter]:
    text = Docstring(inspect.cleandoc(kind.__doc__ or ""), parser="numpy")
    sections = [one for one in text.parse() if one.kind is DocstringSectionKind.parameters]
    return [one for section in sections for one in section.value]


def _table(kind: Any, parameters: Iterable[DocstringParameter]) -> str:
    defaults = {one.name: one.default for one in fields(kind)}
    rows = ["| parameter | default | meaning |", "|---|---|---|"]
    for one in parameters:
        default = defaults[one.name]
        shown = f"`{getattr(default, 'name', default)!r}`"
        if default is MISSING:
            shown = "required"
        elif default is None:
            shown = f"`{one.default}`" if one.default else "–"
        values = str(one.annotation).replace("|", "\\|")
        meaning = " ".join(one.description.split()).replace("|", "\\|")
        rows.append(f"| `{one.name}` | {shown} | *{values}.* {meaning} |")
    return "\n".join(rows)
