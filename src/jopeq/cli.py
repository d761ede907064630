"""The ``jopeq`` command."""

from __future__ import annotations

import typer

from jopeq.commands.attack import attack
from jopeq.commands.audit import audit
from jopeq.commands.codec import codec
from jopeq.commands.demo import demo
from jopeq.commands.ledger import ledger
from jopeq.commands.plan import plan
from jopeq.commands.reproduce import ANY_OPTIONS, reproduce
from jopeq.commands.train import train
from jopeq.commands.warmup import warmup

app = typer.Typer(
    help="Federated updates, compressed and private before they leave the device.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
for command in (demo, plan, audit, codec, train, attack, warmup):
    app.command()(command)
app.add_typer(ledger, name="ledger")
app.command(context_settings=ANY_OPTIONS)(reproduce)


@app.command()
def version() -> None:
    """Print the version."""
    from jopeq import __version__

    typer.echo(__version__)


def main() -> None:
    """Entry point."""
    app()
