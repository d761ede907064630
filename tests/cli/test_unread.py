"""Options that were given although nothing would read them."""

import pytest
import typer
from typer.testing import CliRunner

from jopeq.cli.train import refuse_unread


@pytest.fixture
def invoke():
    app = typer.Typer()

    @app.command()
    def paint(context: typer.Context, wide: bool = False, wide_brush: int = 3):
        refuse_unread(context, {"wide_brush": ("--wide", wide)})
        typer.echo(f"painted with {wide_brush}")

    return lambda *options: CliRunner().invoke(app, options)


@pytest.mark.parametrize("options", [(), ("--wide",), ("--wide", "--wide-brush", "4")])
def test_defaults_and_what_is_read_pass(invoke, options):
    assert invoke(*options).exit_code == 0


def test_what_is_given_and_not_read_is_named_even_at_its_default(invoke):
    done = invoke("--wide-brush", "3")
    assert done.exit_code == 2
    said = " ".join(done.output.replace("│", " ").split())
    assert "--wide-brush would not be read: it is for --wide" in said
