"""``jopeq-lab train``: federated training with real payloads."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jopeq.cli.options import AsJson, build, build_any, read_values
from jopeq.cli.output import (
    epsilon_text,
    explain_errors,
    make_console,
    make_table,
    print_json,
    print_table,
    print_text,
    scheme_text,
)
from jopeq.privacy.guarantee import count_of
from jopeq.registry import SCHEMES
from jopeq.sums.record_sum import ClientSum, RecordSum
from jopeq_lab.cli.bars import LiveBar, load_with_bar
from jopeq_lab.cli.settings import SMALL_MODELS, Settings, build_scheme, read_file

if TYPE_CHECKING:
    from rich.table import Table

    from jopeq_lab.training.config import RunConfig
    from jopeq_lab.training.data import Dataset
    from jopeq_lab.training.metrics import RoundMetrics
    from jopeq_lab.training.simulation import Result

_ROUNDS, _BATCH, _CLIP = 60, 8192, 1.0  # of hospitals unless given; batch: records of a round
_COHORT = 1 << 16  # one of as many may collude: one of any smaller cohort too
_DATA = "mnist5k"


def train(
    run_file: Annotated[
        Path | None, typer.Argument(help="a TOML file of settings; options win over it")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="digits, mnist5k, cancer, mnist, fashion-mnist, cifar10 or FILE.npz; mnist5k "
            "unless given"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="linear, mlp, cnn, tanh-cnn, cifar-cnn, lenet or package.module:factory; linear "
            "unless given"
        ),
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            help=f"one of {', '.join(SCHEMES)}, or package.module:Class; with --people also "
            "sphere, sum or central; with --hospitals records; none unless given",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="privacy asked for, of the unit that the scheme protects")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="bits per entry")] = None,
    clip: Annotated[float | None, typer.Option(help="public bound of an update or record")] = None,
    clients: Annotated[int | None, typer.Option(help="10 unless given")] = None,
    people: Annotated[
        int | None, typer.Option(help="people instead of clients: ε of a person", min=1)
    ] = None,
    hospitals: Annotated[
        int | None, typer.Option(help="hospitals instead of clients: ε of a patient", min=3)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="100; with --people 32, with --hospitals 60")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", help="any other setting or parameter of the scheme, NAME=VALUE; repeat"
        ),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="one run for each seed given")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="run seeds 0 to n-1, if no --seed", min=1)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder for results and checkpoint")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the run in --out, settings as they were")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model over clients whose updates are compressed and made private on the way.

    jopeq-lab train --people 50000 --scheme sphere --epsilon 4 --clip 0.1 --out runs/people

    jopeq-lab train --model cnn --scheme response --epsilon 4 --rate 2 -s lr=0.2 --out runs/cnn

    jopeq-lab train --hospitals 10 --scheme records --epsilon 1 --data digits -s features=hog

    jopeq-lab train run.toml --seeds 3 --out runs/cnn --resume

    All settings of -s and of run.toml: docs/commands.md.
    """
    given = read_values(
        setting, "-s", data=data, model=model, scheme=scheme, epsilon=epsilon, rate=rate,
        clip=clip, clients=clients, people=people, hospitals=hospitals, rounds=rounds,
        seed=seed or None, seeds=seeds, out=None if out is None else str(out),
    )  # fmt: skip
    found = Settings({**read_file(run_file), **given})
    data, data_dir = found.values.get("data", _DATA), found.values.get("data_dir")
    dataset = None
    options = {"data": _DATA, **found.of_run}
    if found.of_hospitals:
        with explain_errors():
            dataset = load_with_bar(data, data_dir, show=not as_json)
        options["scheme"] = _records(found, dataset)
    else:
        options["scheme"] = _scheme(found)
    if "people" not in options and options.get("model", "linear") in SMALL_MODELS:
        options.setdefault("threads", 1)
    with explain_errors():
        configs = [found.kind(**options, seed=one) for one in found.seeds]
    place = found.values.get("out")
    try:
        results = _run(configs, found, dataset, resume=resume, show=not as_json)
    except KeyboardInterrupt:
        kept = "nothing was kept: --out DIR keeps runs" if place is None else "--resume goes on"
        typer.echo(f"stopped; {kept}", err=True)
        raise typer.Exit(code=130) from None
    if as_json:
        print_json([result.as_dict() for result in results])
    else:
        print_results(results)
        if place is not None:
            print_text(*_saved(Path(place)))
    if any(result.diverged for result in results):
        raise typer.Exit(code=1)


def _saved(place: Path) -> Iterator[str]:
    """Say where the results lie, and why there may be no picture."""
    from jopeq_lab.training.record import CURVES  # with PyTorch, which takes seconds

    yield f"saved {place}"
    if not any(place.rglob(CURVES)):
        yield (
            f"No {CURVES}: nothing was measured in the rounds. -s validation=N holds N training "
            "records out and draws their accuracy."
        )


def _scheme(found: Settings) -> Any:
    """The scheme of the settings, or for people also a sum or central noise."""
    name, is_people = found.scheme, "people" in found.values
    if is_people and name == "central":
        from jopeq_lab.training.cohorts import Central

        return build(Central, name, found.of_scheme)
    if is_people and name == ClientSum.name:  # a cohort takes these in proportion to its size
        usual = {"clients": _COHORT, "threshold": _COHORT}
        return build_any(name, {**usual, **found.of_scheme})
    return build_scheme(name, found.of_scheme)


def _records(found: Settings, dataset: Dataset) -> RecordSum:
    """The scheme of hospitals: what the user did not give follows from the data."""
    hospitals = found.values["hospitals"]
    samples, test = len(dataset.train_labels), found.values.get("test")
    if test is not None:
        samples += len(dataset.test_labels) - test
    samples -= found.values.get("validation", 0)
    usual = {
        "clip": _CLIP,
        "records": max(1, samples),
        "sampling": float(f"{min(1.0, _BATCH / max(1, samples)):.2g}"),
        "rounds": _ROUNDS,
        "threshold": max(3, -(-hospitals // 2)),
    }
    built: RecordSum = build_any(found.scheme, {**usual, **found.of_scheme, "clients": hospitals})
    return built


def _run(
    configs: Sequence[RunConfig],
    found: Settings,
    dataset: Dataset | None,
    *,
    resume: bool,
    show: bool,
) -> list[Result]:
    """Train a run for each configuration."""
    with explain_errors():
        from jopeq_lab.training import simulation

        place = found.values.get("out")
        folders = [
            place if place is None or len(configs) == 1 else Path(place, f"seed-{config.seed}")
            for config in configs
        ]
        for folder in folders:  # all of them, before any is trained
            simulation.check_out(folder, resume=resume)
        if dataset is None:
            dataset = load_with_bar(configs[0].data, configs[0].data_dir, show=show)
    results = []
    for config, folder in zip(configs, folders, strict=True):
        with (
            explain_errors("" if folder is None else f"--out {folder}"),
            LiveBar(f"seed {config.seed}", config.rounds, show=show) as bar,
        ):

            def after_round(metrics: RoundMetrics, _: object, bar: LiveBar = bar) -> None:
                bar.move(metrics.round, figures(metrics))

            results.append(
                simulation.train(
                    config,
                    dataset=dataset,
                    out=folder,
                    resume=resume,
                    progress=after_round,
                )
            )
    return results


# The tables, one for each kind of run


def figures(metrics: RoundMetrics) -> str:
    """The two most telling figures, shown next to the bar."""
    told = [f"{metrics.bytes_per_client:,.0f} B/client"]
    if metrics.snr_db is not None:
        told.insert(0, f"SNR {metrics.snr_db:.1f} dB")
    if metrics.validation_accuracy is not None:
        told.insert(0, f"accuracy {metrics.validation_accuracy:.2%}")
    if metrics.train_loss is not None:
        told.insert(0, f"loss {metrics.train_loss:.4g}")
    return "  ".join(told[:2])


def print_results(results: Sequence[Result]) -> None:
    """The table of all seeds, their mean, and what diverged."""
    console = make_console()
    tables = {"people": _people_table, "hospitals": _hospitals_table}
    made = next((make for name, make in tables.items() if name in results[0].facts), _clients_table)
    print_table(console, made(results))
    if "guarantee" in results[0].facts:
        print_text(*results[0].facts["guarantee"].splitlines())
    accuracies = [r.test_accuracy for r in results if r.test_accuracy is not None]
    if len(accuracies) > 1:
        spread = statistics.stdev(accuracies)
        console.print(f"test accuracy {statistics.mean(accuracies):.2%} ± {spread:.2%}")
    for result in results:
        if result.diverged:
            console.print(f"[bold red]seed {result.config.seed}: {result.diverged}")


def _clients_table(results: Sequence[Result]) -> Table:
    settings = results[0].config.as_dict()
    return make_table(
        f"{settings['model']} on {settings['data']}: {scheme_text(settings['scheme'])}, "
        f"{settings['clients']} clients, {results[0].dimension:,} parameters",
        {
            "seed": _seed,
            "accuracy": _accuracy,
            "best": lambda result: str(result.best_round),
            "loss": lambda result: f"{result.history[-1].train_loss:.4g}",
            "SNR dB": lambda result: f"{result.history[-1].snr_db:.1f}",
            "bits": lambda result: f"{result.history[-1].bits_per_parameter:.2f}",
            "bytes": lambda result: f"{result.history[-1].bytes_per_client:,.0f}",
            "ε sample": lambda result: epsilon_text(result.history[-1].epsilon_sample),
            "ε client": lambda result: epsilon_text(result.history[-1].epsilon_client),
        },
        [result for result in results if result.history],
        left=1,
        caption="accuracy on the test set, of the best validation round; bits per parameter and "
        "bytes per client and round, as sent; SNR is 20·log10 of the mean over clients of "
        "var(h)/var(h−h̃); ε: of one sample, and of a client in all rounds.",
    )


def _people_table(results: Sequence[Result]) -> Table:
    settings, facts = results[0].config.as_dict(), results[0].facts
    again = ", samples given out more than once" if facts["is_resampled"] else ""
    return make_table(
        f"{settings['model']} on {settings['data']}: {scheme_text(settings['scheme'])}, "
        f"{facts['people']:,} people of {count_of(settings['examples'], 'sample')}{again}, "
        f"{results[0].dimension:,} parameters",
        {
            "seed": _seed,
            "accuracy": _accuracy,
            "people": lambda result: f"{result.summary['people']:,}",
            "a round": lambda result: f"{result.summary['people_a_round']:,}",
            "bytes each": _bytes_each,
            "ε of a person": lambda result: epsilon_text(result.epsilon),
            "δ": lambda result: f"{result.summary['delta']:g}",
        },
        results,
        left=1,
        caption="accuracy on the test set, after the last round.",
    )


def _bytes_each(result: Result) -> str:
    said = result.summary
    return f"{said['bytes_sent'] / max(1, said['reports']):,.1f}"


def _hospitals_table(results: Sequence[Result]) -> Table:
    settings, facts = results[0].config.as_dict(), results[0].facts
    baseline = settings["baseline"]
    against = "" if baseline is None else f", baseline {baseline}"

    def last(result: Result, name: str, form: str) -> str:
        return format(getattr(result.history[-1], name), form) if result.history else ""

    return make_table(
        f"{settings['model']} on {settings['data']}: {facts['hospitals']} hospitals, "
        f"{settings['rounds']} rounds, {results[0].dimension:,} parameters{against}",
        {
            "seed": _seed,
            "accuracy": _accuracy,
            "AUC": lambda result: _or_empty(result.summary.get("test_auc"), ".4f"),
            "records": lambda result: f"{sum(result.summary['records']):,}",
            "bits": lambda result: last(result, "bits_per_parameter", "g"),
            "bytes": lambda result: last(result, "bytes_per_client", ",.0f"),
            "price": lambda result: _or_empty(result.summary.get("price"), ".3f"),
            "ε of a patient": lambda result: epsilon_text(result.epsilon),
            "δ": lambda result: f"{result.summary['delta']:g}",
        },
        results,
        left=1,
        caption="accuracy on the test set, after the last round. bits per parameter and bytes per "
        "hospital and round. price: squared error of a mean compared with central noise.",
    )


def _seed(result: Result) -> str:
    return str(result.config.seed)


def _accuracy(result: Result) -> str:
    return _or_empty(result.test_accuracy, ".2%")


def _or_empty(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
