"""``jopeq codec``: one client's update through every scheme, computed and measured."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import Progress

from jopeq.analysis.codec import all_schemes, codec_row, example_update
from jopeq.cli.options import AsJson, build_scheme, given_options, takes_scheme
from jopeq.cli.output import (
    epsilon_text,
    explained,
    make_console,
    make_table,
    print_json,
    print_table,
)

HEADINGS = (
    *("scheme", "lattice", "R", "ε asked", "ε proven", "bits", "bytes"),
    *("distortion", "measured", "overload", "error"),
)


@takes_scheme
def codec(
    context: typer.Context,
    scheme: Annotated[
        str | None, typer.Option("--scheme", help="one scheme, instead of all of them")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Encode and decode one client's update with every scheme: bits, bytes, error, ε.

    Example: jopeq codec --scheme response --epsilon 4 --rate 2
    """
    given = given_options(context)
    if scheme is None and given:
        raise typer.BadParameter(f"{', '.join(given)} needs --scheme: name the scheme too")
    update = example_update()
    schemes = list(all_schemes()) if scheme is None else [build_scheme(scheme, **given)]
    console = make_console()
    with explained(), Progress(console=console, transient=True, disable=as_json) as progress:
        steps = progress.track(schemes, description="encoding, decoding, measuring")
        rows = [codec_row(each, update) for each in steps]
    if as_json:
        print_json([row.as_dict() for row in rows])
        return

    table = make_table(
        f"One update of {update.size:,} parameters ({4 * update.size:,} bytes as float32)",
        "distortion: mean squared error per entry at the centre of the unit ball, computed "
        "and measured; error: ‖decoded − update‖²/‖update‖² of one client; "
        "ε per sample (of sphere: per update) against the server, who knows payload, dither, "
        "scale and scheme.",
        HEADINGS,
        left=2,
    )
    for row in rows:
        guarantee = row.scheme.guarantee
        lattice = getattr(row.scheme, "lattice", None)
        rate = getattr(row.scheme, "rate", None)
        table.add_row(
            row.scheme.name,
            "" if lattice is None else lattice.name,
            "" if rate is None else f"{rate:g}",
            epsilon_text(guarantee.nominal),
            epsilon_text(guarantee.epsilon),
            f"{row.bits_per_entry:.2f}",
            f"{row.payload_bytes:,}",
            f"{row.distortion:.4g}",
            "" if row.measured is None else f"{row.measured:.4g}",
            f"{row.overload_rate:.2%}",
            f"{row.normalised_error:.3g}",
        )
    print_table(console, table)
