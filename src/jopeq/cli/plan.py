"""``jopeq plan``: every scheme side by side for one job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console

from jopeq.analysis.learning import NOISY
from jopeq.analysis.plan import PeopleRow, PlanRow, RecordRow
from jopeq.analysis.plan import plan as make_plan
from jopeq.cli.options import AsJson, was_given
from jopeq.cli.output import (
    epsilon_text,
    explain_errors,
    make_console,
    make_table,
    print_json,
    print_table,
)
from jopeq.privacy.guarantee import count_of
from jopeq.sums.record_plan import SIGNAL

Columns = dict[str, Callable[[Any], str]]


def plan(
    context: typer.Context,
    epsilon: Annotated[
        float, typer.Option(help="ε of a person, or of a patient with --records; and of one entry")
    ] = 4.0,
    rate: Annotated[float, typer.Option(help="bits per entry of per-entry schemes")] = 2.0,
    dimension: Annotated[int, typer.Option(help="entries of an update", min=1)] = 7850,
    rounds: Annotated[
        int, typer.Option(help="updates of each client; with --records several by default")
    ] = 1,
    clients: Annotated[
        int, typer.Option(help="clients per round; with --records 10 by default", min=1)
    ] = 1000,
    delta: Annotated[float, typer.Option(help="δ at which ε of all rounds is stated")] = 1e-5,
    records: Annotated[
        int | None, typer.Option(help="patients of all clients together", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the costs of each answer to "whom do you trust?", before anything is trained.

    Example: jopeq plan --epsilon 4 --dimension 7850 --clients 1000

    Example: jopeq plan --records 60000 --clients 10 --epsilon 1 --dimension 5210
    """
    if epsilon == 0.0:
        raise typer.BadParameter(
            "--epsilon 0 means that nothing of the data is sent, so nothing is learnt: give an ε "
            "above 0, such as 1 (strong) to 8 (weak)"
        )
    given: dict[str, Any] = {"rounds": rounds, "clients": clients, "rate": rate}
    if records is not None:
        given = {name: value for name, value in given.items() if was_given(context, name)}
        if "rate" in given:
            raise typer.BadParameter("--rate has no effect with --records, which plans sums")
    with explain_errors(), Console(stderr=True).status("planning, for up to a minute"):
        found = make_plan(epsilon, dimension=dimension, records=records, delta=delta, **given)
    if as_json:
        print_json([row.as_dict() for row in found])
        return
    if records is not None:
        _print_records([row for row in found if isinstance(row, RecordRow)], dimension)
        return
    people = [row for row in found if isinstance(row, PeopleRow)]
    rows = [row for row in found if isinstance(row, PlanRow)]
    _print(
        f"ε = {epsilon:g} for a person: {dimension:,} entries, {count_of(rounds, 'round')} of "
        f"{clients:,} clients",
        PEOPLE,
        people,
        "bits per round: sent by one client.\n"
        "error/C²: E‖error of the mean‖²/C², if updates are as long as the clip C.\n"
        "clients for 0.1: clients per round needed for error/C² ≤ 0.1.\n"
        "ε, δ: for all rounds of one person. A tenth of a sum's clients may drop out.",
    )
    said = f"[bold]Recommended:[/bold] {_recommend(people, clients)}.\n"
    make_console().print(said, highlight=False)
    held = [row for row in rows if row.nominal and row.per_sample <= row.nominal * (1 + 1e-6)]
    _print(
        "The same ε for one entry only: this protects no person",
        ENTRIES,
        sorted(held, key=lambda row: row.error)[:5],
        "bits: per entry. bytes: of one payload.\n"
        "error: of the clients' mean over the update's energy, bias included.\n"
        "bias: at the edge of an entry's range; averaging does not remove it.\n"
        "on: the lattice; on pairs and A2, ε is of two entries.\n"
        f"ε client: for all rounds, δ = {delta:g}.\n"
        "Shown: the five of least error whose ε holds. --json has every scheme.",
    )


def _print(title: str, columns: Columns, rows: list[Any], legend: str, left: int = 2) -> None:
    """A table in eighty columns, and what its headings mean."""
    console = make_console()
    print_table(console, make_table(title, columns, rows, left=left))
    console.print(legend, highlight=False)


def _print_records(rows: list[RecordRow], dimension: int) -> None:
    """Rounds and samplings for ε of a patient."""
    scheme = rows[0].scheme
    best = min(rows, key=lambda row: row.verdict.averaged)
    enough, rounds = best.records_enough, count_of(best.scheme.rounds, "round")
    _print(
        f"ε = {scheme.epsilon:g} for a patient: {scheme.records:,} patients of {scheme.clients} "
        f"hospitals, {dimension:,} entries",
        RECORDS,
        rows,
        "sampling: chance of a patient to be in a round, the smallest that is nearly as\n"
        "good as all. noise: its deviation in units of a patient's clip C. bits: per\n"
        "entry. error/C²: squared error of a round's mean gradient from the noise.\n"
        "enough: patients with whom a run loses next to nothing. expect: the outcome\n"
        f"with those there are. Both assume a mean gradient of length {SIGNAL:g}·C.\n"
        + (
            f"With {rounds} {enough:,} patients would be enough.\n"
            if best.verdict.code != "learns"
            else f"{scheme.records:,} patients are enough; so are {enough:,} with {rounds}.\n"
        )
        + f"δ = {scheme.delta:g} for all rounds, against a server and hospitals that see only\n"
        f"sums of at least {scheme.threshold} hospitals, one of which may reveal its share.",
        left=0,
    )


def _recommend(rows: list[PeopleRow], clients: int) -> str:
    """One row, and why."""
    usable = [row for row in rows if not row.verdict.is_hopeless]
    if usable:
        good = [row for row in usable if row.verdict.averaged <= NOISY]
        # trusting nobody comes first, if it learns
        best = good[0] if good else min(usable, key=lambda row: row.verdict.averaged)
        why = f"{clients:,} clients are too few to trust nobody"
        if best.scheme.name == "sphere":
            why = "nobody has to be trusted"
        return f"take {best.scheme.name}: {why}. {best.verdict}"
    if not rows:
        return f"none: no scheme gives a person such an ε among {clients:,} clients; take 1 to 8"
    needed = " or ".join(f"{row.people:,} ({row.scheme.name})" for row in rows)
    return (
        f"none: at this ε the mean is noise. Use about {needed} clients per round, fewer entries, "
        "or a larger ε. For patients of a few hospitals: jopeq plan --records"
    )


def _where(row: PlanRow) -> str:
    lattice, law = (getattr(row.scheme, name, None) for name in ("lattice", "law"))
    without = "pairs" if row.scheme.dimension == 2 else None
    return " ".join(filter(None, (lattice.name if lattice else without, law)))


RECORDS: Columns = {
    "rounds": lambda row: f"{row.scheme.rounds}",
    "sampling": lambda row: f"{row.scheme.sampling:g}",
    "noise": lambda row: f"{row.plan.noise_multiplier:.2f}",
    "bits": lambda row: f"{row.plan.bits}",
    "error/C²": lambda row: f"{row.plan.error:.2g}",
    "÷ rounds": lambda row: f"{row.plan.error / row.scheme.rounds:.2g}",
    "enough": lambda row: f"{row.records_enough:,}",
    "expect": lambda row: row.verdict.code,
}
PEOPLE: Columns = {
    "you trust": lambda row: row.trusts,
    "scheme": lambda row: row.scheme.name,
    "bits per round": lambda row: f"{row.bits:,.0f}",
    "error/C²": lambda row: f"{row.error:,.0f}" if row.error >= 100 else f"{row.error:.3g}",
    "clients for 0.1": lambda row: f"{row.people:,}",
    "ε": lambda row: epsilon_text(row.epsilon),
    "δ": lambda row: f"{row.delta:g}",
}
ENTRIES: Columns = {
    "scheme": lambda row: row.scheme.name,
    "on": _where,
    "bits": lambda row: f"{row.bits_per_entry:.2f}",
    "bytes": lambda row: f"{row.payload_bytes:,}",
    "error": lambda row: f"{row.error:.4f}",
    "bias": lambda row: f"{row.bias:+.3f}" if row.bias else "0",
    "ε sample": lambda row: epsilon_text(row.per_sample),
    "ε client": lambda row: epsilon_text(row.per_client),
}
