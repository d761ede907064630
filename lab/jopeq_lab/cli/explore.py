"""``jopeq-lab explore``: a page that shows what settings cost and protect."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from jopeq.cli.output import explain_errors, make_console


def explore(
    out: Annotated[
        Path | None, typer.Option(help="write the page to this file and open nothing")
    ] = None,
    is_opened: Annotated[
        bool, typer.Option("--open/--no-open", help="open the page in a browser")
    ] = True,
) -> None:
    """Open a page with sliders: privacy, error, bytes and attacks of every kind of setting.

    The page is one file. It needs no network and sends nothing.
    """
    from jopeq_lab.explorer import page

    text = page()
    if out is None:
        handle, name = tempfile.mkstemp(prefix="jopeq-explore-", suffix=".html")
        os.close(handle)
        path = Path(name)
    else:
        path = out
    with explain_errors(f"--out {path}"):
        path.write_text(text, encoding="utf-8")
    console = make_console()
    if out is None and is_opened and not webbrowser.open(path.resolve().as_uri()):
        console.print("no browser could be started: open the file yourself")
    console.print(f"the explorer is in {path}", soft_wrap=True)
