"""``jopeq audit``: the ε requested, the ε proven, and the ε that an attack shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.table import Table

from jopeq.analysis.audit import Audit
from jopeq.analysis.audit import audit as run_audit
from jopeq.cli.options import (
    AsJson,
    Epsilon,
    Parameter,
    Rate,
    build_any,
    read_values,
)
from jopeq.cli.output import epsilon_text, explain_errors, make_console, print_json, scheme_text
from jopeq.privacy.guarantee import digits_up
from jopeq.registry import SCHEMES
from jopeq.sums.record_sum import ClientSum, RecordSum

_USUAL = {
    RecordSum.name: {
        "clip": 1.0, "records": 1000, "sampling": 1.0, "rounds": 1, "clients": 4, "threshold": 3
    },
    ClientSum.name: {"clip": 1.0, "clients": 5, "threshold": 4},
}  # fmt: skip


def audit(
    scheme: Annotated[
        str,
        typer.Option(
            "--scheme",
            help=f"one of {', '.join(SCHEMES)}, sphere, clients, records, or package.module:Class",
        ),
    ] = "jopeq",
    epsilon: Epsilon = None,
    rate: Rate = None,
    parameter: Parameter = None,
    draws: Annotated[int, typer.Option(help="runs of the real sampler", min=1000)] = 200_000,
    confidence: Annotated[float, typer.Option(help="of the attack's bound")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Exact ε of one sample against the server, and a lower bound from attacking the sampler.

    With --scheme clients or records, ε of a client or patient against observers of sums. Unless -p
    changes it, these are 5 clients (threshold 4) or 4 hospitals with 1,000 records, in one round.
    """
    given = read_values(parameter, epsilon=epsilon, rate=rate)
    built = build_any(scheme, {**_USUAL.get(scheme, {}), **given})
    with explain_errors():
        report = run_audit(built, draws=draws, confidence=confidence)
    if as_json:
        print_json(report.as_dict())
    else:
        _print(report)
    if not report.is_consistent:
        raise typer.Exit(code=1)


def _print(report: Audit) -> None:
    guarantee, shown = report.scheme.guarantee, report.empirical
    table = Table("ε", title=f"ε of one {guarantee.unit}: {scheme_text(report.scheme.spec)}")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    table.add_row("nominal", epsilon_text(report.nominal) or "-", "asked for")
    whom = "the server" if report.estimated is None else "observers of sums"
    table.add_row("proven", epsilon_text(report.proven), f"upper bound against {whom}")
    for row in _describe(report):
        table.add_row(*row)
    table.add_row(
        "shown",
        f"≥ {math.floor(100.0 * shown.lower) / 100.0:.2f}",
        f"by attacking {'the sampler' if report.estimated is None else 'sums'} "
        f"({shown.draws:,} draws, {shown.confidence:.0%} confidence)",
    )
    if guarantee.delta:
        table.caption = f"at δ = {digits_up(guarantee.delta, 3)}"
    console = make_console()
    console.print(table)
    console.print(report.explanation)
    for assumption in guarantee.assumptions:
        console.print(f"Holds if {assumption}.")
    if not report.is_consistent:
        console.print("[bold red]The attack did better than the proof allows: do not use this.")


def _describe(report: Audit) -> Iterator[tuple[str, str, str]]:
    """Table rows that each kind of audit adds to the proof and the attack."""
    if report.estimated is not None:
        how = f"from how far a {report.scheme.guarantee.unit} of full norm moves real sums"
        yield "estimated", f"{report.estimated:.2f}", how
    elif report.exact is None:
        yield "exact", "-", "computed for scalar schemes; the proven bound stands"
    else:
        yield "exact", epsilon_text(report.exact.server), "the server: payload, dither, scale"
        yield "", epsilon_text(report.exact.decoded), "an observer of the decoded value"
        yield "", epsilon_text(report.exact.network), "the network, if the payload is keyed"
