"""The ``jopeq`` command."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from jopeq.cli.attack import attack
from jopeq.cli.audit import audit
from jopeq.cli.codec import codec
from jopeq.cli.demo import demo
from jopeq.cli.doctor import doctor
from jopeq.cli.explore import explore
from jopeq.cli.ledger import ledger
from jopeq.cli.plan import plan
from jopeq.cli.reproduce import ANY_OPTIONS, reproduce
from jopeq.cli.run_file import ReadsRunFile
from jopeq.cli.train import train
from jopeq.cli.warmup import warmup

app = typer.Typer(
    help="Federated updates, compressed and private before they leave the device.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, explore, plan, audit, codec, doctor, train, attack, warmup):
    app.command(cls=ReadsRunFile if command is train else None)(command)
app.add_typer(ledger, name="ledger")
app.command(context_settings=ANY_OPTIONS)(reproduce)


@app.command()
def version() -> None:
    """Print the version."""
    from jopeq import __version__

    typer.echo(__version__)


def _version_and_end(is_asked: bool) -> None:
    if is_asked:
        version()
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
