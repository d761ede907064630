"""The ``jopeq-lab`` command."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from jopeq.versions import __version__
from jopeq_lab.cli.attack import attack
from jopeq_lab.cli.demo import demo
from jopeq_lab.cli.explore import explore
from jopeq_lab.cli.train import train

app = typer.Typer(
    help="Train, attack and explore what jopeq compresses and keeps private.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, train, attack, explore):
    app.command()(command)


def _version_and_end(is_asked: bool) -> None:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_version_and_end, is_eager=True
        ),
    ] = False,
) -> None:
    """Train, attack and explore what jopeq compresses and keeps private."""


def main() -> None:
    """Entry point. A terminal that has no ε shows a question mark in its place."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
