"""``jopeq reproduce``: the paper's tables and figures, by the folder ``paper`` of the source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import typer

ANY_OPTIONS = {"allow_extra_args": True, "ignore_unknown_options": True}


def reproduce(
    context: typer.Context,
    name: str = typer.Argument(help="table1, table2, fig2 … fig6, theory or pages"),
) -> None:
    """Run ``python -m paper NAME …`` in a checkout: the paper's tables, figures and theorems.

    All options go to that command; ``jopeq reproduce table1 -- --help`` shows them.
    """
    if not Path("paper", "__main__.py").is_file():
        raise typer.BadParameter(
            "the paper's experiments are not installed with the library: they are the folder "
            "'paper' of the source (a checkout or the sdist); run this command there"
        )
    command = [sys.executable, "-m", "paper", name, *context.args]
    raise typer.Exit(subprocess.run(command, check=False).returncode)
