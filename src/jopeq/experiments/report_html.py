"""One self-contained page: sections of figures and sortable tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

MARK = '<meta name="generator" content="jopeq report">'  # tells a page of ours from other files


@dataclass(frozen=True)
class Value:
    """What is shown, and the number it is sorted by."""

    text: str
    key: float | None


@dataclass(frozen=True)
class Link:
    """A reference to another place of the page."""

    text: str
    anchor: str


Cell = str | float | int | Value | Link | None


@dataclass(frozen=True)
class Table:
    """Rows under headings; a folded one is opened by a click. ``anchors`` name the rows."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str
    is_folded: bool = False
    anchors: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """An ``<svg>`` element; pictures inside it are data."""

    markup: str
    caption: str


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    title: str
    text: str = ""
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


def html_page(title: str, intro: str, sections: Sequence[Section], problems: Sequence[str]) -> str:
    """The whole document."""
    links = "".join(
        f'<li><a href="#{escape(part.name)}">{escape(part.title)}</a></li>' for part in sections
    )
    warned = ""
    if problems:
        items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
        warned = f'<aside id="problems"><strong>Left out</strong><ul>{items}</ul></aside>'
    body = "\n".join(map(_section, sections))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{MARK}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header><h1>{escape(title)}</h1><button id="theme" type="button">light or dark</button></header>
<p>{escape(intro)}</p>
{warned}
<nav aria-label="sections"><ul>{links}</ul></nav>
<main>
{body}
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _section(part: Section) -> str:
    text = f"<p>{escape(part.text)}</p>" if part.text else ""
    figures = "".join(
        f"<figure>{figure.markup}<figcaption>{escape(figure.caption)}</figcaption></figure>"
        for figure in part.figures
    )
    tables = "".join(map(_table, part.tables))
    heading = f"<h2>{escape(part.title)}</h2>"
    return f'<section id="{escape(part.name)}">{heading}{text}{figures}{tables}</section>'


def _table(table: Table) -> str:
    heads = "".join(
        f'<th scope="col"><button type="button">{escape(heading)}</button></th>'
        for heading in table.headings
    )
    anchors = table.anchors or [""] * len(table.rows)
    rows = "".join(
        f"<tr{f' id={chr(34)}{escape(anchor)}{chr(34)}' if anchor else ''}>"
        + "".join(map(_cell, row))
        + "</tr>"
        for row, anchor in zip(table.rows, anchors, strict=True)
    )
    count = f"{len(table.rows)} row{'' if len(table.rows) == 1 else 's'}"
    whole = (
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        "</div>"
    )
    caption = f"{escape(table.caption)} ({count})"
    if table.is_folded:
        return f"<details><summary>{caption}</summary>{whole}</details>"
    return f'<p class="caption">{caption}</p>{whole}'


def _cell(value: Cell) -> str:
    if isinstance(value, Link):
        return f'<td><a href="#{escape(value.anchor)}">{escape(value.text)}</a></td>'
    if value is None:
        return '<td class="number" data-missing>–</td>'
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, Value):
        text, key = value.text, value.key
    else:
        text, key = digits(value), float(value)
    if key is None or key != key:
        return f'<td class="number" data-missing>{escape(text)}</td>'
    return f'<td class="number" data-key="{key!r}">{escape(text)}</td>'


def digits(value: float | int) -> str:
    """Four of them, of whole numbers all."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == float("inf"):
        return "∞"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

_STYLE = """
:root { color-scheme: light; --paper: #ffffff; --ink: #1b1b1f; --line: #d5d5dd; --soft: #f3f3f7;
  --link: #2f49b8; --warn: #fff3d6; }
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) { color-scheme: dark;
  --paper: #16171c; --ink: #e6e6ea; --line: #3a3b45; --soft: #22232b; --link: #9db0ff;
  --warn: #4a3b12; } }
:root[data-theme=dark] { color-scheme: dark; --paper: #16171c; --ink: #e6e6ea; --line: #3a3b45;
  --soft: #22232b; --link: #9db0ff; --warn: #4a3b12; }
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  max-width: 75rem; margin: 0 auto; padding: 1rem; }
header { display: flex; justify-content: space-between; align-items: center; }
a { color: var(--link); }
button { font: inherit; color: inherit; background: var(--soft); border: 1px solid var(--line);
  border-radius: 4px; cursor: pointer; }
nav ul { columns: 2; padding-left: 1.2rem; }
aside { background: var(--warn); padding: .6rem 1rem; border-radius: 4px; }
figure { margin: 1rem 0; overflow-x: auto; }
figure svg { width: 100%; height: auto; fill: currentColor; }
figcaption, .caption, summary { font-size: .9rem; }
summary { cursor: pointer; margin: .8rem 0; }
.scroll { overflow: auto; max-height: 34rem; border: 1px solid var(--line); border-radius: 4px; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums;
  width: 100%; }
th { position: sticky; top: 0; background: var(--soft); text-align: left; }
th button { border: 0; background: none; font-weight: 600; width: 100%; text-align: left;
  padding: .4rem .6rem; }
th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
td { padding: .25rem .6rem; border-top: 1px solid var(--line); }
td.number { text-align: right; white-space: nowrap; }
tr:target { background: var(--warn); }
"""

_SCRIPT = """
"use strict";
const compare = (a, b) => {
  const numbers = [a, b].map(cell => cell.dataset.key);
  if (numbers.every(key => key !== undefined)) return Number(numbers[0]) - Number(numbers[1]);
  return a.textContent.localeCompare(b.textContent, "en", {numeric: true});
};
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, table = head.closest("table");
    const column = Array.from(head.parentElement.children).indexOf(head);
    const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const rows = Array.from(table.tBodies[0].rows);
    const missing = row => "missing" in row.cells[column].dataset;
    rows.sort((a, b) => missing(a) - missing(b) ||
      (missing(a) ? 0 : sign * compare(a.cells[column], b.cells[column])));
    table.tBodies[0].append(...rows);
  });
}
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
"""
