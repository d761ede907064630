"""``jopeq guard``: start a hospital's SuperNode so that every app is wrapped by its own mod."""

from __future__ import annotations

from typing import Annotated

import typer

from jopeq.cli.output import explain_errors


def guard(
    command: Annotated[
        list[str], typer.Argument(help="after --: flower-supernode and all its options")
    ],
) -> None:
    """Start a hospital's SuperNode; apps send shares of private sums of records, or nothing.

    jopeq guard -- flower-supernode --superlink ADDRESS --node-config 'jopeq-max-epsilon=1 ...'

    The node's configuration must bound ε and δ (jopeq-max-epsilon, jopeq-max-delta) and name this
    hospital's keys (jopeq-identity, jopeq-trusted); jopeq-app-sha256 lists the only apps that run.
    docs/flower.md tells what this stops.
    """
    with explain_errors():
        from jopeq.flower.guard import start_guarded  # Flower takes seconds to import

        start_guarded(command)
