"""The options that describe a scheme, shared by the commands that take one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

from jopeq.schemes import SCHEMES, Scheme, scheme
from jopeq.schemes.secure_sum import SecureSum

Made = TypeVar("Made")

SchemeName = Annotated[str, typer.Option("--scheme", help=f"one of {', '.join(SCHEMES)}")]
Epsilon = Annotated[float | None, typer.Option(help="privacy asked for, per sample")]
Rate = Annotated[float | None, typer.Option(help="bits per entry")]
LatticeName = Annotated[str | None, typer.Option("--lattice", help="Z, A2, D4 or E8")]
Gamma = Annotated[float | None, typer.Option(help="radius of the codebook's support")]
LawName = Annotated[str | None, typer.Option("--law", help="laplace, t, l2 or gaussian")]
Coding = Annotated[str | None, typer.Option(help="fixed or entropy")]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter", "-p", help="any other parameter of the scheme, NAME=VALUE; may be repeated"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document instead")]


SCHEME_OPTIONS = ("epsilon", "rate", "lattice", "gamma", "law", "coding")


def given_options(context: typer.Context) -> dict[str, Any]:
    """Those of ``SCHEME_OPTIONS`` that the user gave."""
    values = {name: context.params[name] for name in SCHEME_OPTIONS}
    return {name: value for name, value in values.items() if value is not None}


def build_scheme(name: str, others: list[str] | None = None, **parameters: Any) -> Scheme:
    """As ``build_any``, for commands that code payloads."""
    if name == SecureSum.name:
        raise typer.BadParameter(
            "scheme 'sum' makes shares, not payloads: see jopeq train --people, jopeq audit, and "
            "jopeq plan --sum"
        )
    built: Scheme = build_any(name, others, **parameters)
    return built


def build_any(name: str, others: list[str] | None = None, **parameters: Any) -> Any:
    """The scheme of these options; wrong ones end the command with an error for the user."""
    return build(partial(scheme, name), name, others, **parameters)


def build(
    make: Callable[..., Made], name: str, others: list[str] | None = None, **parameters: Any
) -> Made:
    """What ``make`` makes of the options for ``name``, as ``build_any`` does.

    ``others`` are NAME=VALUE texts. A value is read as JSON, or as text where it is not JSON.
    """
    given = {key: value for key, value in parameters.items() if value is not None}
    for text in others or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"--parameter takes NAME=VALUE, got {text!r}")
        if key in given:
            raise typer.BadParameter(f"{key} is given twice: {given[key]!r} and {value!r}")
        try:
            given[key] = json.loads(value)
        except ValueError:
            given[key] = value
    try:
        return make(**given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except TypeError as error:  # Python's own, of a parameter that is missing or of a wrong type
        said = str(error).rpartition("() ")[2]
        raise typer.BadParameter(
            f"scheme {name!r}: {said}: give it as an option, or with --parameter NAME=VALUE"
        ) from error
