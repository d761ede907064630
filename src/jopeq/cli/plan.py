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
from jopeq.sums.record_proposal import SIGNAL

Columns = dict[str, Callable[[Any], str]]


def plan(
    context: typer.Context,
    epsilon: Annotated[
        float, typer.Option(help="privacy asked for: of the person, and of one entry")
    ] = 4.0,
    rate: Annotated[float, typer.Option(help="bits per entry of per-entry schemes")] = 2.0,
    dimension: Annotated[int, typer.Option(help="entries of an update", min=1)] = 7850,
    rounds: Annotated[
        int, typer.Option(help="updates each client sends; with --records several unless given")
    ] = 1,
    clients: Annotated[
        int, typer.Option(help="clients averaged in a round; with --records 10 unless given", min=1)
    ] = 1000,
    delta: Annotated[float, typer.Option(help="δ of the client's composed ε")] = 1e-5,
    records: Annotated[
        int | None,
        typer.Option(help="patients of all clients together: ε then is of a patient", min=1),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the costs of each answer to "whom do you trust?", before anything is trained.

    Example: jopeq plan --epsilon 4 --dimension 7850 --clients 1000

    Example: jopeq plan --records 60000 --clients 10 --epsilon 1 --dimension 5210
    """
    if epsilon == 0.0:
        raise typer.BadParameter(
            "--epsilon 0 means that nothing of the data is sent, and nothing is learnt: give "
            "an ε above 0, such as 1 (strong) to 8 (weak)"
        )
    if records is not None and was_given(context, "rate"):
        raise typer.BadParameter("--rate would not be read: --records plans sums of records")
    given: dict[str, Any] = {"rounds": rounds, "clients": clients, "rate": rate}
    if records is not None:
        given = {name: value for name, value in given.items() if was_given(context, name)}
    with explain_errors(), Console(stderr=True).status("planning, for up to a minute"):
        found = make_plan(epsilon, dimension=dimension, records=records, delta=delta, **given)
    if as_json:
        print_json([row.as_dict() for row in found])
        return
    patients = [row for row in found if isinstance(row, RecordRow)]
    people = [row for row in found if isinstance(row, PeopleRow)]
    rows = [row for row in found if isinstance(row, PlanRow)]
    if patients:
        _print_records(patients, dimension)
    else:
        _print_people(people, epsilon, dimension, rounds, clients)
        _recommend(people, clients)
        _print_entries(rows, delta)
        _print_unused(rows, epsilon, rate)


def _print_records(rows: list[RecordRow], dimension: int) -> None:
    """Rounds and samplings for ε of a patient, in eighty columns."""
    scheme, console = rows[0].scheme, make_console()
    columns: Columns = {
        "rounds": lambda row: f"{row.scheme.rounds}",
        "sampling": lambda row: f"{row.scheme.sampling:g}",
        "noise": lambda row: f"{row.plan.noise_multiplier:.2f}",
        "bits": lambda row: f"{row.plan.bits}",
        "error/C²": lambda row: f"{row.plan.error:.2g}",
        "÷ rounds": lambda row: f"{row.plan.error / row.scheme.rounds:.2g}",
        "enough": lambda row: f"{row.records_enough:,}",
        "expect": lambda row: row.verdict.code,
    }
    title = (
        f"ε = {scheme.epsilon:g} for a patient: {scheme.records:,} patients of {scheme.clients} "
        f"hospitals, {dimension:,} entries"
    )
    print_table(console, make_table(title, columns, rows, left=0))
    best = min(rows, key=lambda row: row.verdict.averaged)
    enough, rounds = best.records_enough, best.scheme.rounds
    said = (
        f"With {count_of(rounds, 'round')} {enough:,} patients would be enough"
        if best.verdict.code != "learns"
        else f"{scheme.records:,} patients are enough; so are {enough:,} with "
        f"{count_of(rounds, 'round')}"
    )
    console.print(
        "sampling: chance of a patient to be in a round, the smallest that is nearly as\n"
        "good as all. noise: its deviation over what a patient can add, C. bits: of an\n"
        "entry. error/C²: squared error of a round's mean gradient by the noise.\n"
        f"enough: patients with whom a run loses next to nothing, and expect: for so\n"
        f"many as there are; both if the mean gradient is {SIGNAL:g}·C long.\n"
        f"{said}.\n"
        f"δ = {scheme.delta:g}, for all rounds together, against a server and hospitals that see\n"
        f"only sums of at least {scheme.threshold} hospitals, one of which may tell its share.",
        highlight=False,
    )


def _print_people(
    rows: list[PeopleRow], epsilon: float, dimension: int, rounds: int, clients: int
) -> None:
    columns: Columns = {
        "you trust": lambda row: row.trusts,
        "scheme": lambda row: row.scheme.name,
        "bits a round": lambda row: f"{row.bits:,.0f}",
        "error/C²": lambda row: f"{row.error:,.0f}" if row.error >= 100 else f"{row.error:.3g}",
        "clients for 0.1": lambda row: f"{row.people:,}",
        "ε": lambda row: epsilon_text(row.guarantee.epsilon),
        "δ": lambda row: f"{row.guarantee.delta:g}",
    }
    title = (
        f"ε = {epsilon:g} for a person: {dimension:,} entries, {rounds:,} "
        f"round{'s' * (rounds > 1)} of {clients:,} clients"
    )
    console = make_console()
    print_table(console, make_table(title, columns, rows, left=2))
    console.print(
        "bits a round: sent by one client.\n"
        "error/C²: E‖error of the mean‖²/C², squared; updates are as long as the clip C.\n"
        "clients for 0.1: clients a round needed for error/C² ≤ 0.1.\n"
        "ε, δ: of all that a person sends. Of a sum a tenth of the clients may drop out.",
        highlight=False,
    )


def _recommend(rows: list[PeopleRow], clients: int) -> None:
    """One row, and why."""
    usable = [row for row in rows if not row.verdict.is_hopeless]
    if usable:
        good = [row for row in usable if row.verdict.averaged <= NOISY]
        # trusting nobody comes first, where it learns
        best = good[0] if good else min(usable, key=lambda row: row.verdict.averaged)
        why = (
            "nobody has to be trusted"
            if best.scheme.name == "sphere"
            else f"{clients:,} clients are too few to trust nobody"
        )
        said = f"take {best.scheme.name}: {why}. {best.verdict}"
    elif rows:
        needed = {row.scheme.name: row.people for row in rows}
        listed = " or ".join(f"{count:,} ({name})" for name, count in needed.items())
        said = (
            "none: at this ε the mean is noise. Use more clients a round: "
            f"about {listed}, fewer entries, or a larger ε. For patients of a few hospitals: "
            "jopeq plan --records"
        )
    else:
        said = f"none: no scheme gives a person such an ε among {clients:,} clients; take 1 to 8"
    make_console().print(f"[bold]Recommended:[/bold] {said}.\n", highlight=False)


def _print_entries(rows: list[PlanRow], delta: float) -> None:
    """The best per-entry schemes whose ε holds, in eighty columns."""
    console = make_console()
    ordered = sorted(rows, key=lambda row: row.error)
    held = [row for row in ordered if row.nominal and row.per_sample <= row.nominal * (1 + 1e-6)]
    title = "The same ε for one entry only: this protects no person"
    print_table(console, make_table(title, ENTRIES, held[:5], left=2))
    console.print(
        "bits: per entry. bytes: of one payload.\n"
        "error: of the clients' mean over the update's energy, bias included.\n"
        "bias: at the edge of an entry's range; no mean removes it.\n"
        "on: a lattice; on pairs and A2 ε is of two entries.\n"
        f"ε client: of all rounds, δ = {delta:g}.\n"
        "The five of least error whose ε holds; --json has every scheme and number.",
        highlight=False,
    )


def _print_unused(rows: list[PlanRow], epsilon: float, rate: float) -> None:
    """Say where a scheme has no use for all of ε or of the rate."""
    for row in rows:
        if row.scheme.name == "response":
            said = []
            if row.per_sample < 0.99 * epsilon:
                said.append(f"proves ε = {epsilon_text(row.per_sample)}, more gains nothing")
            if row.bits_per_entry < rate - 0.1:
                said.append(f"needs {row.bits_per_entry:.2f} of {rate:g} bits")
            if said:
                make_console().print(f"response {', and '.join(said)}.", highlight=False)


def _where(row: PlanRow) -> str:
    lattice, law = (getattr(row.scheme, name, None) for name in ("lattice", "law"))
    without = "pairs" if row.scheme.dimension == 2 else None
    return " ".join(filter(None, (lattice.name if lattice else without, law)))


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
