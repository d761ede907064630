"""``jopeq train --people``: many people, ε for each of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from jopeq.cli.options import SCHEME_OPTIONS, build, build_scheme, given_options, was_given
from jopeq.cli.output import (
    LiveBar,
    epsilon_text,
    explained,
    load_with_bar,
    make_console,
    make_table,
    print_json,
    print_table,
)
from jopeq.cli.stopping import Stoppable
from jopeq.sums.secure_sum import SecureSum

if TYPE_CHECKING:
    from jopeq.lab.training.population import PeopleResult, PeopleRound

PEOPLE = (
    *("people", "examples", "participations", "features", "center"),
    *("server_momentum", "decay", "average"),
)
_SETTINGS = (
    *("data", "data_dir", "model", "rounds", "local_steps", "lr", "server_lr"),
    *("device", "threads", "validation"),
)
SHARED_WITH_PEOPLE = (
    *_SETTINGS,
    *("scheme", *SCHEME_OPTIONS, "clip"),
    *("seed", "seeds", "out", "resume", "as_json"),
)
HEADINGS = ("seed", "accuracy", "people", "a round", "bytes each", "ε of a person", "δ")


def run_people(context: typer.Context, seeds: Sequence[int], stoppable: Stoppable) -> None:
    """Train and print; ``context`` holds the options of ``jopeq train``."""
    given = context.params
    show = not given["as_json"]
    options = {name: given[name] for name in (*PEOPLE, *_SETTINGS) if was_given(context, name)}
    options |= {"data": given["data"], "scheme": _scheme(context)}
    if given["data_dir"] is not None:
        options["data_dir"] = str(given["data_dir"])
    results = []
    with explained():
        from jopeq.lab.training.population import PeopleConfig

        configs = [PeopleConfig(**options, seed=seed) for seed in seeds]
        dataset = load_with_bar(configs[0].data, configs[0].data_dir, show=show)
    for config in configs:
        folder = None if given["out"] is None else Path(given["out"])
        if folder is not None and len(configs) > 1:
            folder = folder / f"seed-{config.seed}"
        with (
            explained("" if folder is None else f"--out {folder}"),
            LiveBar(f"seed {config.seed}", config.rounds, show=show) as bar,
        ):
            from jopeq.lab.training.population import train_people

            stoppable.begins(config.seed, config.rounds)

            def after_round(done: PeopleRound, bar: LiveBar = bar) -> None:
                accuracy = done.validation_accuracy
                bar.move(done.round, "" if accuracy is None else f"accuracy {accuracy:.2%}")
                stoppable.done(done.round)

            results.append(
                train_people(
                    config,
                    dataset=dataset,
                    out=folder,
                    resume=stoppable.is_resumed,
                    progress=after_round,
                )
            )
    if show:
        _print(results)
    else:
        print_json([{"config": one.config.as_dict(), **one.summary} for one in results])


def _scheme(context: typer.Context) -> Any:
    given = given_options(context)
    clip = context.params["clip"]
    if clip is not None:
        try:
            given["clip"] = float(clip)
        except ValueError:
            raise typer.BadParameter(f"--clip is a number with --people, got {clip!r}") from None
    name = context.params["scheme"]
    if name == "central":
        from jopeq.lab.training.cohorts import Central

        return build(Central, name, **given)
    if name == SecureSum.name:  # a cohort sets both anew, in proportion
        return build(partial(SecureSum, clients=2, threshold=2, colluding=0), name, **given)
    return build_scheme(name, **given)


def _print(results: Sequence[PeopleResult]) -> None:
    config, summary = results[0].config, results[0].summary
    again = ", samples given out more than once" if summary["is_resampled"] else ""
    table = make_table(
        f"{config.model} on {config.data}: {config.mechanism.spec}, {config.people:,} people of "
        f"{config.examples} samples{again}, {summary['dimension']:,} parameters",
        f"accuracy on the test set, after the last round. {summary['guarantee']}",
        HEADINGS,
        left=1,
    )
    for result in results:
        said = result.summary
        accuracy = result.test_accuracy
        table.add_row(
            str(result.config.seed),
            "" if accuracy is None else f"{accuracy:.2%}",
            f"{result.config.people:,}",
            f"{result.config.people_a_round:,}",
            f"{said['bytes_sent'] / max(1, said['reports']):,.1f}",
            epsilon_text(result.epsilon),
            f"{said['delta']:g}",
        )
    console = make_console()
    print_table(console, table)
    accuracies = [one.test_accuracy for one in results if one.test_accuracy is not None]
    if len(accuracies) > 1:
        spread = statistics.stdev(accuracies)
        console.print(f"test accuracy {statistics.mean(accuracies):.2%} ± {spread:.2%}")
