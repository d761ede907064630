"""``jopeq guard``: start a hospital's SuperNode so that every app is wrapped by its own mod."""

from __future__ import annotations

from typing import Annotated

import typer

from jopeq.cli.output import end_with, explain_errors


def guard(
    command: Annotated[
        list[str], typer.Argument(help="after --: flower-supernode and all its options")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="only say what is wrong with --node-config")
    ] = False,
) -> None:
    """Start a hospital's SuperNode; apps send shares of private sums of records, or nothing.

    jopeq guard -- flower-supernode --superlink ADDRESS --node-config 'jopeq-max-epsilon=1 ...'

    The node's configuration must bound ε and δ (jopeq-max-epsilon, jopeq-max-delta) and name this
    hospital's keys (jopeq-identity, jopeq-trusted); jopeq-app-sha256 lists the only apps that run.
    --check tells every problem, each with key, value and remedy, and starts nothing.
    docs/flower.md tells what this stops.
    """
    with explain_errors():
        from jopeq.flower.guard import check_command, start_guarded  # which takes seconds

        if check:
            end_with(check_command(command))
        start_guarded(command)
