"""``jopeq report``: a folder of results as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jopeq.commands.output import make_console
from jopeq.errors import DataError


def report(
    results: Annotated[
        Path,
        typer.Argument(
            help="folder of .jsonl files, theory.json and bench.json, or of jopeq train"
        ),
    ] = Path("results"),
    out: Annotated[
        Path, typer.Option(help="the page to write; only such a page is replaced")
    ] = Path("report.html"),
) -> None:
    """Write one self-contained page: figures, sortable tables, configurations and versions."""
    try:
        from jopeq.experiments.report import write_report
    except ImportError as error:
        raise typer.BadParameter(f"{error}: pip install 'jopeq[experiments]'") from error
    console = make_console()
    try:
        with console.status("drawing"):
            problems = write_report(results, out)
    except DataError as error:
        raise typer.BadParameter(str(error)) from error
    for problem in problems:
        console.print(f"left out: {problem}", style="yellow", markup=False, soft_wrap=True)
    console.print(f"wrote {out}", soft_wrap=True)
