"""``jopeq codec``: one client's update through every scheme, computed and measured."""

from __future__ import annotations

from rich.progress import Progress

from jopeq.analysis.codec import all_schemes, codec_row, example_update
from jopeq.cli.output import epsilon_text, make_console, make_table, print_table

HEADINGS = (
    *("scheme", "lattice", "R", "ε asked", "ε proven", "bits", "bytes"),
    *("distortion", "measured", "overload", "error"),
)


def codec() -> None:
    """Encode and decode one client's update with every scheme: bits, bytes, error, ε."""
    console = make_console()
    update = example_update()
    schemes = list(all_schemes())
    with Progress(console=console, transient=True) as progress:
        steps = progress.track(schemes, description="encoding, decoding, measuring")
        rows = [codec_row(each, update) for each in steps]

    table = make_table(
        f"One update of {update.size:,} parameters ({4 * update.size:,} bytes as float32)",
        "distortion: mean squared error per entry at the centre of the unit ball, computed "
        "and measured; error: ‖decoded − update‖²/‖update‖² of one client; "
        "ε per sample against the server, who knows payload, dither, scale and scheme.",
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
            f"{row.measured:.4g}",
            f"{row.overload_rate:.2%}",
            f"{row.normalised_error:.3g}",
        )
    print_table(console, table)
