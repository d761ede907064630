"""The ``jopeq`` command."""

from __future__ import annotations

import click
from typer.core import TyperGroup

from jopeq.cli.app import make_app, start
from jopeq.cli.audit import audit
from jopeq.cli.doctor import doctor
from jopeq.cli.evaluate import evaluate
from jopeq.cli.fit import fit
from jopeq.cli.guard import guard
from jopeq.cli.ledger import ledger
from jopeq.cli.plan import plan
from jopeq.cli.stats import stats

_OF_LAB = ("attack", "demo", "explore", "train")


class _Commands(TyperGroup):
    """Answers an old command with the name of the new one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _OF_LAB:
            ctx.fail(
                f"jopeq {args[0]} is now jopeq-lab {args[0]}: pip install the folder lab of the "
                "repository"
            )
        return super().resolve_command(ctx, args)


app = make_app(
    "Federated updates, compressed and private before they leave the device.",
    (plan, audit, stats, fit, evaluate, doctor, guard),
    _Commands,
)
app.add_typer(ledger, name="ledger")


def main() -> None:
    """Entry point."""
    start(app)
