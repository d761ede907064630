"""The ``jopeq`` command."""

from __future__ import annotations

import typer

from jopeq.commands.audit import audit
from jopeq.commands.demo import demo
from jopeq.commands.plan import plan

app = typer.Typer(
    help="Federated updates, compressed and private before they leave the device.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command()(demo)
app.command()(plan)
app.command()(audit)


@app.command()
def version() -> None:
    """Print the version."""
    from jopeq import __version__

    typer.echo(__version__)


def main() -> None:
    """Entry point."""
    app()
