"""``jopeq-lab demo``: ten hospitals, one model, ε for every patient, in about a minute."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jopeq.cli.output import (
    epsilon_text,
    explain_errors,
    make_console,
    make_table,
    print_table,
)
from jopeq_lab.cli.bars import runs_bar

if TYPE_CHECKING:
    from jopeq_lab.demo import Fitted
    from jopeq_lab.training.simulation import Result


def demo(
    out: Annotated[Path, typer.Option(help="folder for the figure")] = Path("out/demo"),
    rounds: Annotated[int | None, typer.Option(help="fewer or more rounds", min=1)] = None,
) -> None:
    """Train ten hospitals on real patients and digits in every way: two tables and a figure."""
    from jopeq_lab import demo as shown

    console, jobs = make_console(), shown.all_jobs(rounds)
    found: dict[tuple[str, str, float], list[Result | Fitted]] = {}
    with explain_errors(f"--out {out}"), runs_bar(console) as progress:
        out.mkdir(parents=True, exist_ok=True)
        task = progress.add_task("training", total=len(jobs))
        for job, result in shown.run_all(jobs):
            found.setdefault(job[:3], []).append(result)
            text = f"{job.study}, {job.way}: {result.test_accuracy or 0.0:.1%}"
            progress.update(task, advance=1, description=text)
    names = ["protected"]
    names += [f"{name} ε={e:g}" for name in ("cancer", "digits") for e in shown.EPSILONS]
    columns = {name: itemgetter(place) for place, name in enumerate(names)}
    title = "Ten hospitals, one model: test accuracy, %"
    print_table(console, make_table(title, columns, shown.story_rows(found), left=1))
    cancer, digits = shown.STUDIES
    counts = {
        result.messages
        for results in found.values()
        for result in results
        if isinstance(result, shown.Fitted)
    }
    messages = " or ".join(map(str, sorted(counts)))
    console.print(
        f"cancer: {cancer.each} real patients in each of {shown.HOSPITALS} hospitals, tested on "
        f"{cancer.test} others; mean ± deviation over {cancer.seeds} seeds, which draw them.\n"
        f"digits: {digits.each} MNIST digits in each, a digit standing for a patient; one seed.\n"
        "all noise in each: a hospital adds as much noise as all together need.\n"
        "one alone: a hospital trains on its own patients.\n"
        "Sphere: each patient reports once, to anybody; it is for thousands of people.\n"
        "RecordSum, jopeq.models: patients trust their own hospital, and the server sees\n"
        f"only totals; jopeq.models takes {messages} messages, and nothing is tuned.\n"
        f"ε is of all rounds together, δ = {cancer.delta:g} and {digits.delta:g}; Sphere needs no "
        "δ.\nThe other rows' clip and learning rate are chosen on training records held out.\n"
        "ClientSum, which protects a whole hospital, is not here: it needs a hundred.",
        highlight=False,
    )
    groups = {name: found["paper", name, shown.PAPER_EPSILON] for name in shown.PAPER}
    last = {
        name: one.history[-1]
        for name, (one,) in groups.items()
        if not isinstance(one, shown.Fitted)
    }
    paper = make_table(
        f"The paper's schemes: ε = {shown.PAPER_EPSILON:g} for each entry, not for a patient",
        {
            "scheme": str,
            "accuracy %": lambda name: shown.accuracy_text(groups[name]),
            "bits": lambda name: f"{last[name].bits_per_parameter:.2f}",
            "ε of an entry": lambda name: epsilon_text(last[name].epsilon_sample),
            "ε of a client": lambda name: epsilon_text(last[name].epsilon_client),
        },
        shown.PAPER,
        left=1,
    )
    print_table(console, paper)
    console.print(
        f"{shown.HOSPITALS} clients, {digits.each} digits each, "
        f"{rounds or shown.PAPER_ROUNDS} rounds, linear model on pixels. ε is proven against the "
        "server. The ε of a client adds up over all entries and rounds: it promises nothing.",
        highlight=False,
    )
    for figure in (out / "demo.svg", out / "demo.png"):
        with explain_errors(f"--out {out}"):
            shown.save_demo(found, figure)
    console.print(
        f"saved {figure}\n"
        "next: jopeq plan --records 4000 --epsilon 1   will your patients be enough?\n"
        "      jopeq-lab explore                       the same for numbers that you type",
        highlight=False,
    )
