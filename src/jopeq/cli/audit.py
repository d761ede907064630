"""``jopeq audit``: the ε asked for, the ε proven, and the ε that an attack shows."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from rich.table import Table

from jopeq.analysis.audit import Audit
from jopeq.analysis.audit import audit as run_audit
from jopeq.analysis.secure_sum import SumAudit
from jopeq.cli.options import (
    AsJson,
    Coding,
    Epsilon,
    Gamma,
    LatticeName,
    LawName,
    Parameters,
    Rate,
    build_any,
    given_options,
)
from jopeq.cli.output import epsilon_text, make_console, print_json
from jopeq.privacy.guarantee import digits_up
from jopeq.schemes import SCHEMES


def audit(
    context: typer.Context,
    scheme: Annotated[
        str, typer.Option("--scheme", help=f"one of {', '.join(SCHEMES)}, sum")
    ] = "jopeq",
    epsilon: Epsilon = None,
    rate: Rate = None,
    lattice: LatticeName = None,
    gamma: Gamma = None,
    law: LawName = None,
    coding: Coding = None,
    parameters: Parameters = None,
    draws: Annotated[int, typer.Option(help="runs of the real sampler", min=1000)] = 200_000,
    confidence: Annotated[float, typer.Option(help="of the attack's bound")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Exact ε of one sample against the server, and a lower bound from attacking the sampler.

    With --scheme sum: ε of a client against who sees sums alone.
    """
    built = build_any(scheme, parameters, **given_options(context))
    try:
        report: Audit | SumAudit = run_audit(built, draws=draws, confidence=confidence)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if as_json:
        print_json(sum_as_dict(report) if isinstance(report, SumAudit) else as_dict(report))
    elif isinstance(report, SumAudit):
        _print_sum(report)
    else:
        _print(report)
    if not report.is_consistent:
        raise typer.Exit(code=1)


def as_dict(report: Audit) -> dict[str, Any]:
    """The audit as JSON holds it; an infinite ε is null."""
    exact = report.exact
    return {
        "scheme": report.scheme.spec,
        "unit": report.scheme.guarantee.unit,
        "nominal": report.nominal,
        "proven": report.proven,
        "exact": None
        if exact is None
        else {"server": exact.server, "decoded": exact.decoded, "network": exact.network},
        "empirical": {
            "lower": report.empirical.lower,
            "confidence": report.empirical.confidence,
            "draws": report.empirical.draws,
            "event": report.empirical.event,
        },
        "delta": report.scheme.guarantee.delta,
        "consistent": report.is_consistent,
        "explanation": report.explanation,
        "assumptions": list(report.scheme.guarantee.assumptions),
    }


def sum_as_dict(report: SumAudit) -> dict[str, Any]:
    """The audit of a sum as JSON holds it."""
    shown = report.empirical
    return {
        "scheme": report.scheme.spec,
        "unit": "client",
        "nominal": report.scheme.epsilon,
        "proven": report.proven,
        "exact": report.exact,
        "empirical": {
            "lower": shown.lower,
            "confidence": shown.confidence,
            "draws": shown.draws,
            "event": shown.event,
        },
        "delta": report.scheme.delta,
        "consistent": report.is_consistent,
        "explanation": report.explanation,
        "assumptions": list(report.scheme.guarantee.assumptions),
    }


def _print_sum(report: SumAudit) -> None:
    shown, delta = report.empirical, digits_up(report.scheme.delta, 3)
    table = Table(title=f"ε of one client: {report.scheme.spec}", caption=f"at δ = {delta}")
    table.add_column("ε")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    table.add_row("nominal", epsilon_text(report.scheme.epsilon), "asked for")
    table.add_row("proven", epsilon_text(report.proven), "upper bound against who sees sums alone")
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
    guarantee = report.scheme.guarantee
    table = Table(title=f"ε of one {guarantee.unit}: {report.scheme.spec}")
    table.add_column("ε")
    table.add_column("value", justify="right")
    table.add_column("meaning")
    table.add_row("nominal", epsilon_text(report.nominal) or "-", "asked for")
    table.add_row("proven", epsilon_text(report.proven), "upper bound against the server")
    if report.exact is None:
        table.add_row("exact", "-", "computed for scalar schemes only; the proven bound stands")
    else:
        exact = report.exact
        table.add_row("exact", epsilon_text(exact.server), "the server: payload, dither, scale")
        table.add_row("", epsilon_text(exact.decoded), "an observer of the decoded value")
        table.add_row("", epsilon_text(exact.network), "the network, when the payload is keyed")
    shown = report.empirical
    table.add_row(
        "shown",
        f"≥ {math.floor(100.0 * shown.lower) / 100.0:.2f}",
        f"by attacking the sampler ({shown.draws:,} draws, {shown.confidence:.0%} confidence)",
    )
    if report.scheme.guarantee.delta:
        table.caption = f"at δ = {digits_up(report.scheme.guarantee.delta, 3)}"
    console = make_console()
    console.print(table)
    console.print(report.explanation)
    for assumption in guarantee.assumptions:
        console.print(f"Mind: {assumption}.")
    if not report.is_consistent:
        console.print("[bold red]The attack did better than the proof allows: do not use this.")
