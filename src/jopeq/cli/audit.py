"""``jopeq audit``: the ε asked for, the ε proven, and the ε that an attack shows."""

from __future__ import annotations

import math
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
    elif isinstance(report, SumAudit | RecordAudit):
        _print_sum(report)
    else:
        _print(report)
    if not report.is_consistent:
        raise typer.Exit(code=1)


def _print_sum(report: SumAudit | RecordAudit) -> None:
    shown, delta = report.empirical, digits_up(report.scheme.delta, 3)
    table = Table(
        title=f"ε of one {report.scheme.guarantee.unit}, all rounds: {report.scheme.spec}",
        caption=f"at δ = {delta}",
    )
    table.add_column("ε")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    table.add_row("nominal", epsilon_text(report.scheme.epsilon), "asked for")
    table.add_row("proven", epsilon_text(report.proven), "upper bound against who sees sums alone")
    if isinstance(report, RecordAudit):
        table.add_row(
            "estimated",
            f"{report.estimated:.2f}",
            "from how far a record of full norm moves real sums",
        )
    else:
        worst = "of the largest single entry, from the tables' integers"
        none = "computed for up to 500 shares and 64 rounds; the proven bound stands"
        table.add_row(
            "exact", epsilon_text(report.exact) or "-", none if report.exact is None else worst
        )
    lower = f"≥ {math.floor(100.0 * shown.lower) / 100.0:.2f}"
    how = f"by attacking sums ({shown.draws:,} draws, {shown.confidence:.0%} confidence)"
    table.add_row("shown", lower, how)
    console = make_console()
    console.print(table)
    console.print(report.explanation)
    for assumption in report.scheme.guarantee.assumptions:
        console.print(f"Mind: {assumption}.")
    if not report.is_consistent:
        console.print("[bold red]The attack did better than the proof allows: do not use this.")


def _print(report: Audit) -> None:
    guarantee, exact, shown = report.scheme.guarantee, report.exact, report.empirical
    table = Table("ε", title=f"ε of one {guarantee.unit}: {report.scheme.spec}")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    table.add_row("nominal", epsilon_text(report.nominal) or "-", "asked for")
    table.add_row("proven", epsilon_text(report.proven), "upper bound against the server")
    if exact is None:
        table.add_row("exact", "-", "computed for scalar schemes only; the proven bound stands")
    else:
        table.add_row("exact", epsilon_text(exact.server), "the server: payload, dither, scale")
        table.add_row("", epsilon_text(exact.decoded), "an observer of the decoded value")
        table.add_row("", epsilon_text(exact.network), "the network, when the payload is keyed")
    table.add_row(
        "shown",
        f"≥ {math.floor(100.0 * shown.lower) / 100.0:.2f}",
        f"by attacking the sampler ({shown.draws:,} draws, {shown.confidence:.0%} confidence)",
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
