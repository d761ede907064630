"""Errors of long work, as the command line shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from jopeq.errors import JoPEQError


@contextmanager
def explained(options: str) -> Iterator[None]:
    """What goes wrong within ends the command politely; ``options`` are those that name files."""
    try:
        yield
    except OSError as error:
        reason = f"{options}: {error.strerror or error} ({error.filename})"
        raise typer.BadParameter(f"{reason}: name folders that can be written to") from error
    except (JoPEQError, ValueError, RuntimeError) as error:
        raise typer.BadParameter(str(error)) from error
