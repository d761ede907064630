"""``jopeq audit``: the ε asked for, the ε proven, and the ε that an attack shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.table import Table

from jopeq.analysis.audit import Audit
from jopeq.analysis.audit import audit as run_audit
from jopeq.analysis.record_audit import RecordAudit
from jopeq.analysis.sum_audit import SumAudit
from jopeq.cli.options import AsJson, build_any, given_options, takes_scheme
from jopeq.cli.output import epsilon_text, explained, make_console, print_json
from jopeq.privacy.guarantee import digits_up
from jopeq.registry import SCHEMES


@takes_scheme
def audit(
    context: typer.Context,
    scheme: Annotated[
        str, typer.Option("--scheme", help=f"one of {', '.join(SCHEMES)}, sum, records")
    ] = "jopeq",
    draws: Annotated[int, typer.Option(help="runs of the real sampler", min=1000)] = 200_000,
    confidence: Annotated[float, typer.Option(help="of the attack's bound")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Exact ε of one sample against the server, and a lower bound from attacking the sampler.

    With --scheme sum or records: ε of a client or of a patient, against who sees sums alone.
    """
    built = build_any(scheme, **given_options(context))
    with explained():
        report: Audit | SumAudit | RecordAudit = run_audit(
            built, draws=draws, confidence=confidence
        )
    if as_json:
        print_json(report.as_dict())
    else:
        _print(report)
    if not report.is_consistent:
        raise typer.Exit(code=1)


def _print(report: Audit | SumAudit | RecordAudit) -> None:
    guarantee, shown = report.scheme.guarantee, report.empirical
    table = Table("ε", title=f"ε of one {guarantee.unit}: {report.scheme.spec}")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    table.add_row("nominal", epsilon_text(report.nominal) or "-", "asked for")
    whom = "the server" if isinstance(report, Audit) else "who sees sums alone"
    table.add_row("proven", epsilon_text(report.proven), f"upper bound against {whom}")
    for row in _computed(report):
        table.add_row(*row)
    table.add_row(
        "shown",
        f"≥ {math.floor(100.0 * shown.lower) / 100.0:.2f}",
        f"by attacking {'the sampler' if isinstance(report, Audit) else 'sums'} "
        f"({shown.draws:,} draws, {shown.confidence:.0%} confidence)",
    )
    if guarantee.delta:
        table.caption = f"at δ = {digits_up(guarantee.delta, 3)}"
    console = make_console()
    console.print(table)
    console.print(report.explanation)
    for assumption in guarantee.assumptions:
        console.print(f"Mind: {assumption}.")
    if not report.is_consistent:
        console.print("[bold red]The attack did better than the proof allows: do not use this.")


def _computed(report: Audit | SumAudit | RecordAudit) -> Iterator[tuple[str, str, str]]:
    """What each kind of audit knows beside the proof and the attack."""
    if isinstance(report, RecordAudit):
        how = "from how far a record of full norm moves real sums"
        yield "estimated", f"{report.estimated:.2f}", how
    elif report.exact is None:
        for_whom = (
            "scalar schemes" if isinstance(report, Audit) else "at most 500 shares, 64 rounds"
        )
        yield "exact", "-", f"computed for {for_whom}; the proven bound stands"
    elif isinstance(report, Audit):
        yield "exact", epsilon_text(report.exact.server), "the server: payload, dither, scale"
        yield "", epsilon_text(report.exact.decoded), "an observer of the decoded value"
        yield "", epsilon_text(report.exact.network), "the network, when the payload is keyed"
    else:
        what = "of the largest single entry, from the tables' integers"
        yield "exact", epsilon_text(report.exact), what
