"""The options that describe a scheme, shared by the commands that take one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jopeq.schemes import SCHEMES, Scheme, scheme

SchemeName = Annotated[str, typer.Option("--scheme", help=f"one of {', '.join(SCHEMES)}")]
Epsilon = Annotated[float | None, typer.Option(help="privacy asked for, per sample")]
Rate = Annotated[float | None, typer.Option(help="bits per entry")]
LatticeName = Annotated[str | None, typer.Option("--lattice", help="Z, A2, D4 or E8")]
Gamma = Annotated[float | None, typer.Option(help="radius of the codebook's support")]
LawName = Annotated[str | None, typer.Option("--law", help="laplace, t, l2 or gaussian")]
Coding = Annotated[str | None, typer.Option(help="fixed or entropy")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document instead")]


def build_scheme(name: str, **parameters: Any) -> Scheme:
    """The scheme, from the options that were given; what is wrong ends the command politely."""
    given = {key: value for key, value in parameters.items() if value is not None}
    try:
        return scheme(name, **given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
