"""Shared output of the commands: console, tables, ε, JSON, and errors for the user."""

from __future__ import annotations

import json
import math
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click
import typer
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from jopeq.errors import JoPEQError
from jopeq.privacy.guarantee import digits_up, places_up

_WIDTH = 80
_NO_LIMIT = 10_000


def make_console() -> Console:
    """A console as wide as the terminal, or of 80 columns without one."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return Console()
    return Console(width=_WIDTH)


def print_text(*lines: str) -> None:
    """Print lines, wrapped at the terminal's width with the indentation of their beginning."""
    width = make_console().width
    for line in lines:
        left = " " * (len(line) - len(line.lstrip(" -")))
        typer.echo(textwrap.fill(line, width, subsequent_indent=left, break_long_words=False))


def make_table(
    title: str,
    columns: Mapping[str, Callable[[Any], str]],
    rows: Iterable[Any],
    *,
    left: int,
    caption: str = "",
) -> Table:
    """A table of rows. ``columns`` maps headings to cells; the first ``left`` align left."""
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.caption_justify = "left"
    for index, heading in enumerate(columns):
        table.add_column(heading, justify="left" if index < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(show(row) for show in columns.values()))
    return table


def print_table(console: Console, table: Table) -> None:
    """Print every digit: a table wider than the terminal wraps, but no cell is cut."""
    anything = console.options.update(max_width=_NO_LIMIT)
    needed = Measurement.get(console, anything, table).maximum
    wide = console if needed <= console.width else Console(width=needed)
    wide.print(table)


def scheme_text(spec: str) -> str:
    """A scheme's specification as a title.

    >>> scheme_text('["jopeq",{"epsilon":4.0,"lattice":"A2"}]'), scheme_text('["none",{}]')
    ('jopeq, epsilon=4, lattice=A2', 'none')
    """
    name, given = json.loads(spec)
    shown = {
        key: f"{value:g}" if isinstance(value, float) else value for key, value in given.items()
    }
    shown.pop("fingerprint", None)
    return ", ".join([name, *(f"{key}={value}" for key, value in shown.items())])


def epsilon_text(value: float | None) -> str:
    """ε for a table, rounded up, below 0.1 to two digits; "none" without a guarantee.

    >>> [epsilon_text(value) for value in (4.0, 8.042, 0.000412, 31400.2)]
    ['4.00', '8.05', '0.00042', '31,401']
    """
    if value is None:
        return ""
    if math.isinf(value):
        return "none"
    if 0.0 < value < 0.1:
        return digits_up(value, 2)
    return places_up(value, 2 if value < 1000 else 0)


def print_json(value: Any) -> None:
    """Print one JSON document; infinities become null, because JSON has none."""
    sys.stdout.write(json.dumps(_finite(value), indent=2, ensure_ascii=False) + "\n")


def print_result(found: Any, as_json: bool, plot: Path | None) -> None:
    """Draw a result if asked to, then print it as text or as JSON."""
    if plot is not None:
        found.plot().savefig(plot)
    if as_json:
        print_json(found.as_dict())
    else:
        typer.echo(str(found))
        if plot is not None:
            typer.echo(f"saved {plot}")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def end_with(problems: Iterable[str]) -> NoReturn:
    """End the command: list the problems and exit with 1, or say that there are none."""
    found = list(problems)
    print_text(*(f"- {one}" for one in found or ["nothing is wrong"]))
    raise typer.Exit(bool(found))


@contextmanager
def explain_errors(out: str = "", *others: type[Exception]) -> Iterator[None]:
    """End the command with a message instead of a traceback if an error is raised inside.

    ``out`` is the option that names the files written inside; ``others`` are more kinds of errors
    whose message is for the user.
    """
    kinds: tuple[type[Exception], ...] = (JoPEQError, ValueError, ImportError, *others)
    try:
        yield
    except kinds as error:
        raise typer.BadParameter(with_flags(str(error))) from error
    except OSError as error:
        if not out:
            raise
        raise typer.BadParameter(
            f"{out} cannot be written ({error.strerror or error}): choose another folder"
        ) from error


def with_flags(message: str) -> str:
    """The message with the running command's option for the parameter it names."""
    context = click.get_current_context(silent=True)
    if context is None:
        return message
    name, space, rest = message.partition(" ")
    options = {option.name: option.opts[0] for option in context.command.params}
    return f"{options.get(name, name)}{space}{rest}"
