"""The ``jopeq`` command."""

from __future__ import annotations

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
from jopeq.cli.train import train
from jopeq.cli.warmup import warmup

app = typer.Typer(
    help="Federated updates, compressed and private before they leave the device.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
for command in (demo, explore, plan, audit, codec, doctor, train, attack, warmup):
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
