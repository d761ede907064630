"""Options that were given although nothing would read them."""

from __future__ import annotations

from collections.abc import Mapping

import typer


def refuse_unread(context: typer.Context, needs: Mapping[str, tuple[str, bool]]) -> None:
    """Raise for the first option given by hand whose condition (its words, its truth) fails."""
    for name, (words, holds) in needs.items():
        source = context.get_parameter_source(name)
        if not holds and source is not None and source.name == "COMMANDLINE":
            option = name.replace("_", "-")
            raise typer.BadParameter(f"--{option} would not be read: it is for {words}")
