"""The app that ``jopeq`` and other collections of commands are made of."""

from __future__ import annotations

import inspect
import io
import re
import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer
from typer.core import TyperGroup

from jopeq.versions import __version__


def make_app(
    about: str, commands: Iterable[Callable[..., None]], group: type[TyperGroup] = TyperGroup
) -> typer.Typer:
    """An app with these commands and ``--version``; ``about`` is the first line of its help."""
    app = typer.Typer(
        cls=group,
        help=about,
        no_args_is_help=True,
        pretty_exceptions_show_locals=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for command in commands:
        app.command(help=_unwrap(command.__doc__ or ""))(command)
    app.callback(help=about)(_options)
    return app


def _unwrap(text: str) -> str:
    """The paragraphs of a docstring, each on one line: the terminal's width wraps them."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(text))


def _version_and_end(is_asked: bool) -> None:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_version_and_end, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def start(app: typer.Typer) -> None:
    """Run the app. A terminal without ε shows a question mark instead."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
