"""Runs examples/quickstart and writes docs/quickstart.md: prose, code, what it printed and drew.

    python tools/quickstart.py

The example begins with a docstring: a title, then an introduction. Its cells begin with ``# %%``
and a heading; comments that follow the heading are prose. A cell's pictures are the SVG files it
saves; on the page they turn dark with it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import tempfile
import textwrap
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from jopeq_lab.pictures.drawing import follow_page

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "examples" / "quickstart" / "ten_hospitals.py"
PAGE = ROOT / "docs" / "quickstart.md"
_CELL = "# %% "
_COLUMNS = 80


class Cell(NamedTuple):
    """A heading, prose in Markdown, and code."""

    heading: str
    prose: str
    code: str
    line: int  # of the code, in the file


class Shown(NamedTuple):
    """A cell's output, and the names of its pictures."""

    printed: str = ""
    pictures: tuple[str, ...] = ()


def cells_of(source: str) -> list[Cell]:
    """The cells of an example."""
    lines = source.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(_CELL)]
    cells = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        prose = list(takewhile(lambda line: line.startswith("#"), lines[start + 1 : end]))
        first = start + 1 + len(prose)
        cells.append(
            Cell(
                lines[start].removeprefix(_CELL),
                "\n".join(line.removeprefix("#").removeprefix(" ") for line in prose),
                "\n".join(lines[first:end]).strip("\n"),
                first,
            )
        )
    return cells


def page_of(source: str, shown: list[Shown]) -> str:
    """The page of the example, whose cells showed this."""
    title, _, introduction = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    blocks = [
        f"# {title}",
        introduction.strip(),
    ]
    for cell, found in zip(cells_of(source), shown, strict=True):
        blocks += [f"## {cell.heading}", cell.prose, f"```python\n{cell.code}\n```"]
        if found.printed:
            blocks.append(f"```text\n{found.printed}\n```")
        blocks += [f"![{cell.heading}]({picture})" for picture in found.pictures]
    blocks.append("The whole program is `examples/quickstart/ten_hospitals.py`.")
    # last: MkDocs takes the title from what comes first
    blocks.append("<!-- made of examples/quickstart/ten_hospitals.py by tools/quickstart.py -->")
    return "\n\n".join(filter(None, blocks)) + "\n"


def run(source: str) -> list[Shown]:
    """What each cell printed, wrapped as in a terminal, and its pictures, kept with the figures."""
    module: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in cells_of(source):
            heard = io.StringIO()
            code = compile("\n" * cell.line + cell.code, PROGRAM.name, "exec")
            with contextlib.redirect_stdout(heard):
                exec(code, module)
            pictures = []
            for path in sorted(Path().iterdir(), key=lambda path: path.stat().st_mtime_ns):
                pictures.append(f"figures/quickstart-{path.name}")
                drawing = follow_page(path.read_text(encoding="utf-8"))
                (PAGE.parent / pictures[-1]).write_text(drawing, encoding="utf-8")
                path.unlink()
            lines = heard.getvalue().splitlines()
            wrapped = [
                textwrap.fill(line, _COLUMNS, subsequent_indent="    ", drop_whitespace=True)
                if len(line) > _COLUMNS
                else line
                for line in lines
            ]
            shown.append(Shown("\n".join(wrapped), tuple(pictures)))
    return shown


def main() -> None:
    """Write the page."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MPLBACKEND", "agg")
    source = PROGRAM.read_text(encoding="utf-8")
    PAGE.write_text(page_of(source, run(source)), encoding="utf-8")
    print("wrote docs/quickstart.md")


if __name__ == "__main__":
    main()
