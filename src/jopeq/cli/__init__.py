"""The ``jopeq`` command."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from jopeq.cli.audit import audit
from jopeq.cli.doctor import doctor
from jopeq.cli.guard import guard
from jopeq.cli.ledger import ledger
from jopeq.cli.plan import plan
from jopeq.cli.stats import stats
from jopeq.versions import __version__

app = typer.Typer(
    help="Federated updates, compressed and private before they leave the device.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (plan, audit, stats, doctor, guard):
    app.command()(command)
app.add_typer(ledger, name="ledger")


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
    """Federated updates, compressed and private before they leave the device."""


def main() -> None:
    """Entry point. A terminal that has no ε shows a question mark in its place."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
