"""``jopeq ledger``: make the file with a client's budget, and show or report its spending."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jopeq.analysis.ledger_report import describe_run, describe_updates, ledger_report
from jopeq.cli.output import explain_errors, print_text
from jopeq.files import atomic
from jopeq.ledger import Ledger
from jopeq.privacy.guarantee import digits_up
from jopeq.sums.record_sum import ClientSum, RecordSum

ledger = typer.Typer(help="A client's privacy budget in a file.", no_args_is_help=True)

LedgerPath = Annotated[Path, typer.Argument(help="the ledger's file")]


@ledger.command()
def init(
    path: LedgerPath,
    budget: Annotated[float, typer.Option(help="largest ε of the client, all rounds together")],
    delta: Annotated[float, typer.Option(help="δ at which the budget is stated")] = 0.0,
) -> None:
    """Make the ledger of a client that has spent nothing; existing files are refused."""
    if not path.parent.is_dir():
        raise typer.BadParameter(
            f"there is no folder {path.parent} for the ledger: make it by mkdir -p {path.parent}"
        )
    with explain_errors("", OSError):
        made = Ledger.create(path, budget, delta)
    typer.echo(f"{path}: {made}")


@ledger.command()
def show(path: LedgerPath) -> None:
    """Show the ε spent by the client, or by every patient of a hospital, and the scheme."""
    with explain_errors("", OSError):
        found = Ledger.load(path)
    spent, budget = digits_up(found.spent.epsilon), repr(found.budget).removesuffix(".0")
    if found.runs:
        planned = sum(run.planned for run in found.runs)
        who = "every patient" if found.spent.unit == "record" else "the client"
        print_text(f"ε = {spent} of {budget} for {who}, {found.rounds} of {planned} rounds")
        for run in found.runs:
            name, asked = describe_run(run)
            rounds = f"{run.spent.rounds} of {run.planned} rounds"
            print_text(f"run     {name}", f"        {rounds}: {asked}")
        return
    print_text(
        f"spent   ε ≤ {spent} of {budget} at δ = {found.delta:g}, all rounds together",
        f"rounds  {found.rounds}",
        f"scheme  {describe_updates(found.scheme)}",
    )


@ledger.command()
def plan(
    path: LedgerPath,
    rounds: Annotated[int, typer.Option(help="rounds of the next run", min=1)],
    clients: Annotated[int, typer.Option(help="hospitals or clients in a sum", min=2)],
    records: Annotated[
        int | None, typer.Option(help="patients of all hospitals; else ε is a client's", min=1)
    ] = None,
    threshold: Annotated[
        int | None, typer.Option(help="fewest in a sum; by default two thirds and one more")
    ] = None,
    dimension: Annotated[int, typer.Option(help="numbers in a sum", min=1)] = 7850,
    sampling: Annotated[float, typer.Option(help="chance of a patient to be in a round")] = 1.0,
) -> None:
    """Say how much ε another run may spend within the rest of a ledger."""
    least = min(clients, 2 * clients // 3 + 1) if threshold is None else threshold
    given: dict[str, Any] = {"epsilon": 1.0, "clip": 1.0, "rounds": rounds, "threshold": least}
    with explain_errors("", OSError):
        found = Ledger.load(path)
        given |= {"clients": clients, "delta": found.delta}
        if records is None:
            if sampling != 1.0:
                raise ValueError(f"sampling={sampling:g} draws patients: give --records too")
            scheme: RecordSum | ClientSum = ClientSum(**given)
        else:
            scheme = RecordSum(**given, records=records, sampling=sampling)
        most = found.most_epsilon(scheme, dimension)
    spent = f"{digits_up(found.spent.epsilon)} of {found.budget:g} is spent"
    print_text(f"ε ≤ {most:.4g} fits for {rounds} rounds at δ = {found.delta:g}; ε = {spent}")


@ledger.command()
def report(
    path: LedgerPath,
    out: Annotated[Path, typer.Option(help="the page's file; .html is added")] = Path(
        "privacy-report"
    ),
) -> None:
    """Write one page for the data protection officer, as HTML.

    It says what was asked and when, which ε and δ protect whom against whom, on which assumptions,
    and what is not protected. The same ledger gives the same page.
    """
    with explain_errors("", OSError):
        page = ledger_report(Ledger.load(path), path.name)
    target = out.with_name(out.name.removesuffix(".html") + ".html")
    with explain_errors(f"--out {out}"), atomic(target) as file:
        file.write(page.encode())
    typer.echo(f"saved {target}")
