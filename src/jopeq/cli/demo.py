"""``jopeq demo``: a private federation on bundled digits, in about a minute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from jopeq.cli.output import (
    epsilon_text,
    explained,
    make_console,
    make_table,
    needs_experiments,
    print_table,
    runs_bar,
)

COLUMNS: dict[str, Callable[[Any], str]] = {
    "scheme": lambda row: row.label,
    "accuracy %": lambda row: row.accuracy,
    "bits": lambda row: f"{row.bits_per_parameter:.2f}",
    "bytes sent": lambda row: f"{row.bytes_sent:,.0f}",
    "SNR dB": lambda row: "∞" if row.snr_db is None else f"{row.snr_db:.1f}",
    "ε asked": lambda row: epsilon_text(row.nominal),
    "ε proven": lambda row: epsilon_text(row.epsilon),
}


def demo(
    out: Annotated[Path, typer.Option(help="folder for the figure")] = Path("out/demo"),
    rounds: Annotated[int | None, typer.Option(help="fewer or more rounds", min=1)] = None,
    seeds: Annotated[int | None, typer.Option(help="fewer or more seeds", min=1)] = None,
    people: Annotated[int | None, typer.Option(help="fewer or more people", min=500)] = None,
) -> None:
    """Train on 5,000 real digits with every kind of scheme: a table and a figure."""
    with needs_experiments():
        from jopeq.lab import demo as shown
        from jopeq.lab.training.simulation import Result, train
    console = make_console()
    configs, count = shown.demo_configs(rounds=rounds or shown.ROUNDS), seeds or shown.SEEDS
    runs: dict[str, list[Result]] = {label: [] for label in configs}
    with explained(f"--out {out}"), runs_bar(console) as progress:
        out.mkdir(parents=True, exist_ok=True)
        task = progress.add_task("training", total=count * len(configs))
        for label, result in shown.train_all(configs, count):
            runs[label].append(result)
            text = f"{label}: {result.test_accuracy or 0.0:.1%}"
            progress.update(task, advance=1, description=text)
        config = shown.demo_people(people or shown.PEOPLE)
        total = config.rounds + bool(config.center)  # a round for the mean of the features
        task = progress.add_task(f"{config.people:,} people", total=total)
        taught = train(config, progress=lambda *_: progress.update(task, advance=1))
    over = "one seed" if count == 1 else f"mean ± deviation over {count} seeds"
    table = make_table(
        f"{len(runs['none'][0].history)} rounds, {shown.CLIENTS} clients, linear model; {over}",
        COLUMNS,
        shown.demo_rows(runs),
        left=1,
        caption="bits: per parameter, measured, header and all. bytes sent: by one client, in all "
        "rounds. SNR: of one update at the server, 20·log10. ε: per parameter and round, against a "
        "server who knows payload, dither, scale and scheme; the update's norm is sent in the "
        "clear.",
    )
    print_table(console, table)
    summary = taught.summary
    console.print(
        f"ε for a person: {config.people:,} people, each with one digit (5,000, given out again) "
        f"and one report of {summary['bytes_sent'] // summary['reports']} byte, teach a linear "
        f"model {summary['test_accuracy']:.1%} at ε = {epsilon_text(summary['epsilon'])} for all "
        "that a person ever sends, trusting nobody."
    )
    figure = out / "demo.png"
    with explained(f"--out {out}"):
        shown.save_demo(runs, taught, figure)
    console.print(f"saved {figure}")
