"""``jopeq guard``: start a hospital's SuperNode with a mod of its own around every app."""

from __future__ import annotations

from typing import Annotated

import typer

from jopeq.cli.output import end_with, explain_errors


def guard(
    command: Annotated[
        list[str], typer.Argument(help="after --: flower-supernode and all its options")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="only list what is wrong with --node-config")
    ] = False,
) -> None:
    """Start a hospital's SuperNode whose apps send shares of private sums of records, or nothing.

    jopeq guard -- flower-supernode --superlink ADDRESS --node-config 'jopeq-max-epsilon=1 ...'

    The node's configuration must bound ε and δ (jopeq-max-epsilon, jopeq-max-delta) and name this
    hospital's keys (jopeq-identity, jopeq-trusted); jopeq-app-sha256 lists the only apps that run.
    --check lists every problem with key, value and remedy, and starts nothing. docs/flower.md says
    what this stops.
    """
    with explain_errors():
        from jopeq.flower.guard import check_command, start_guarded  # which takes seconds

        if check:
            end_with(check_command(command))
        start_guarded(command)
