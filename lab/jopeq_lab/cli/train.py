"""``jopeq train``: federated training with real payloads."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jopeq.cli.options import (
    SCHEME_OPTIONS,
    SMALL_MODELS,
    AsJson,
    build,
    build_any,
    build_scheme,
    given_options,
    in_groups,
    takes_scheme,
    was_given,
    with_usual,
)
from jopeq.cli.output import (
    LiveBar,
    epsilon_text,
    explain_errors,
    load_with_bar,
    make_console,
    make_table,
    print_json,
    print_table,
    scheme_text,
    with_flags,
)
from jopeq.privacy.guarantee import count_of
from jopeq.registry import SCHEMES
from jopeq.registry import scheme as make_scheme
from jopeq.sums.record_sum import RecordSum
from jopeq.sums.secure_sum import SecureSum
from jopeq_lab.cli.run_file import read_run_file, settings_of

if TYPE_CHECKING:
    from rich.table import Table

    from jopeq_lab.training.config import RunConfig
    from jopeq_lab.training.data import Dataset
    from jopeq_lab.training.metrics import RoundMetrics
    from jopeq_lab.training.simulation import Result

_OF_RUNS = ("config", "seed", "seeds", "out", "resume", "tensorboard", "as_json")
_OF_HOSPITALS = ("hospitals", "rounds")  # the scheme has them
_ROUNDS, _BATCH, _CLIP = 60, 8192, 1.0  # of hospitals unless given; batch: records of a round


@in_groups(
    {
        "Data and model": ("data", "data_dir", "model"),
        "Scheme": ("scheme", *SCHEME_OPTIONS, "spread", "clip"),
        "People": ("people", "participations", "features", "center", "server_momentum"),
        "Hospitals": ("hospitals", "baseline"),
        "Clients": ("clients", "participation", "dirichlet"),
        "Training": (
            *("rounds", "local_steps", "batch_size", "lr", "momentum", "schedule", "server_lr"),
        ),
        "Machine": ("device", "threads"),
        "Runs": ("config", "seed", "seeds", "out", "resume", "tensorboard"),
    }
)
@takes_scheme
def train(
    context: typer.Context,
    data: Annotated[
        str, typer.Option(help="digits, mnist5k, cancer, mnist, fashion-mnist, cifar10, FILE.npz")
    ] = ("mnist5k"),
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data set's files")] = None,
    model: Annotated[
        str,
        typer.Option(help="linear, mlp, cnn, tanh-cnn, cifar-cnn, lenet or package.module:factory"),
    ] = "linear",
    scheme: Annotated[
        str,
        typer.Option(
            "--scheme",
            help=f"one of {', '.join(SCHEMES)}; with --people also sum or central; with "
            "--hospitals records",
        ),
    ] = "none",
    spread: Annotated[str | None, typer.Option(help="a number, or auto")] = None,
    clip: Annotated[float | None, typer.Option(help="a public bound; of records 1")] = None,
    clients: Annotated[int, typer.Option(help="K")] = 10,
    people: Annotated[
        int | None,
        typer.Option(help="N people in place of clients: ε is a person's, in all", min=1),
    ] = None,
    participations: Annotated[int, typer.Option(help="rounds of a person, at most")] = 1,
    hospitals: Annotated[
        int | None,
        typer.Option(help="hospitals in place of clients: ε is a patient's, in all", min=3),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="of hospitals: none, central, local or alone")
    ] = None,
    features: Annotated[str | None, typer.Option(help="public: hog, pixels, table or rows")] = None,
    center: Annotated[float, typer.Option(help="fraction of people for the features' mean")] = 0.0,
    server_momentum: Annotated[
        float, typer.Option(help="of people's or hospitals' server; with --hospitals 0.9")
    ] = 0.0,
    rounds: Annotated[int, typer.Option(help="T; with --people 32, with --hospitals 60")] = 100,
    local_steps: Annotated[
        int, typer.Option(help="τ, steps of each client in a round; with --people 1 unless given")
    ] = 100,
    batch_size: Annotated[int, typer.Option(help="samples of a step")] = 16,
    lr: Annotated[float, typer.Option(help="learning rate of the clients")] = 0.1,
    momentum: Annotated[float, typer.Option(help="of the clients, from 0 in each round")] = 0.5,
    schedule: Annotated[
        str, typer.Option(help="of the clients' lr: constant or client-plateau")
    ] = "constant",
    participation: Annotated[float, typer.Option(help="fraction of clients in a round")] = 1.0,
    server_lr: Annotated[
        float, typer.Option(help="learning rate of the server; with --hospitals 32")
    ] = 1.0,
    dirichlet: Annotated[
        float | None,
        typer.Option(help="unequal parts with labels of their own: the smaller, the more unequal"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="a TOML file of options and rarer settings; options given here win",
            callback=read_run_file,
            is_eager=True,
        ),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="one run for each seed given")] = None,
    seeds: Annotated[int, typer.Option(help="run seeds 0 to n-1, if no --seed", min=1)] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    threads: Annotated[
        int | None,
        typer.Option(help="of PyTorch; 1 for linear, mlp and lenet, else PyTorch's own number"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder for results and checkpoint")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the run in --out, options as they were")
    ] = False,
    tensorboard: Annotated[Path | None, typer.Option(help="folder for TensorBoard")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a model over clients whose updates are compressed and made private on the way.

    jopeq train --people 50000 --scheme sphere --epsilon 4 --clip 0.1 --out runs/people

    jopeq train --model cnn --scheme response --epsilon 4 --rate 2 --out runs/cnn

    jopeq train --hospitals 10 --scheme records --epsilon 1 --data digits --features hog

    jopeq train --config run.toml --seeds 3 --out runs/cnn --resume

    Keys of run.toml are these options and all other settings of a run: docs/commands.md.
    """
    with explain_errors():
        from jopeq_lab.training.config import HospitalsConfig, PeopleConfig, TrainConfig
    kind: type[RunConfig] = TrainConfig if people is None else PeopleConfig
    if hospitals is not None or scheme == RecordSum.name:
        kind = HospitalsConfig
    given = _find_given(context)
    _refuse_unread(given, kind)
    options = {name: value for name, value in given.items() if name in _names(kind)}
    dataset = None
    if kind is HospitalsConfig:
        with explain_errors():
            dataset = load_with_bar(data, str(data_dir) if data_dir else None, show=not as_json)
        options["scheme"] = _records(context, given, dataset)
    else:
        options["scheme"] = _scheme(context)
    options["data"] = data
    if data_dir is not None:
        options["data_dir"] = str(data_dir)
    if "spread" in options:
        options["spread"] = _number_or(options["spread"], "auto", "--spread")
    if kind is not PeopleConfig and model in SMALL_MODELS:
        options.setdefault("threads", 1)
    chosen = list(dict.fromkeys(seed)) if seed else list(range(seeds))
    with explain_errors():
        configs = [kind(**options, seed=one) for one in chosen]
    try:
        results = _run(configs, context, dataset)
    except KeyboardInterrupt:
        kept = "nothing was kept: --out DIR keeps runs" if out is None else "--resume goes on"
        typer.echo(f"stopped; {kept}", err=True)
        raise typer.Exit(code=130) from None
    if as_json:
        print_json([result.as_dict() for result in results])
    else:
        print_results(results)
    if any(result.diverged for result in results):
        raise typer.Exit(code=1)


def _find_given(context: typer.Context) -> dict[str, Any]:
    """Options and keys of the run's file that the user gave."""
    options = {name: v for name, v in context.params.items() if was_given(context, name)}
    options |= settings_of(context)
    if (alpha := options.pop("dirichlet", None)) is not None:
        options |= {"partition": "dirichlet", "alpha": alpha}
    return options


def _names(kind: type[RunConfig]) -> set[str]:
    return {field.name for field in fields(kind) if field.init} - {"seed"}


def _refuse_unread(given: Mapping[str, Any], kind: type[RunConfig]) -> None:
    """Refuse options and keys that were given although nothing would read them."""
    needs = {
        **dict.fromkeys(
            ("plateau_factor", "plateau_patience"),
            ("schedule client-plateau", given.get("schedule") == "client-plateau"),
        ),
        "alpha": ("partition dirichlet", given.get("partition") == "dirichlet"),
        "seeds": ("runs without --seed", not given.get("seed")),
        "checkpoint_every": ("runs with --out", given.get("out") is not None),
    }
    from jopeq_lab.training.config import HospitalsConfig, PeopleConfig, TrainConfig

    kinds = {
        "with --people": {*_names(PeopleConfig)},
        "with --hospitals": {*_names(HospitalsConfig), *_OF_HOSPITALS},
        "without --people and --hospitals": {*_names(TrainConfig)},
    }
    order = (PeopleConfig, HospitalsConfig, TrainConfig)
    read = {*list(kinds.values())[order.index(kind)], *_OF_RUNS, *SCHEME_OPTIONS, "clip"}
    for name in given:
        words, holds = needs.get(name, ("", True))
        if name not in read:
            readers = [said for said, names in kinds.items() if name in names]
            words, holds = f"runs {' or '.join(readers)}", False
        if not holds:
            raise typer.BadParameter(with_flags(f"{name} would not be read: it is for {words}"))


def _scheme(context: typer.Context) -> Any:
    """What the options describe: a scheme, or for people also a sum or central noise."""
    name, given = context.params["scheme"], given_options(context)
    clip, is_people = context.params["clip"], context.params["people"] is not None
    is_whole = is_people or (name in SCHEMES and SCHEMES[name].is_whole)
    if is_whole and clip is not None:  # they cannot be built without their clip
        given["clip"] = clip
    if is_people and name == "central":
        from jopeq_lab.training.cohorts import Central

        return build(Central, name, **given)
    if is_people and name == SecureSum.name:  # a cohort sets both anew, in proportion
        return build(partial(make_scheme, name, clients=2, threshold=2), name, **given)
    return build_scheme(name, **given)


def _records(context: typer.Context, given: Mapping[str, Any], dataset: Dataset) -> RecordSum:
    """The scheme of hospitals: what the user did not give follows from the data."""
    hospitals, name = context.params["hospitals"], context.params["scheme"]
    if hospitals is None or name != RecordSum.name:
        raise typer.BadParameter(
            f"--hospitals and --scheme {RecordSum.name} belong together, got --hospitals "
            f"{hospitals} and --scheme {name}: give both"
        )
    samples, test = len(dataset.train_labels), given.get("test")
    if test is not None:
        samples += len(dataset.test_labels) - test
    samples -= given.get("validation", 0)
    clip = context.params["clip"]
    usual = {
        "clip": _CLIP if clip is None else clip,
        "records": max(1, samples),
        "sampling": float(f"{min(1.0, _BATCH / max(1, samples)):.2g}"),
        "rounds": given.get("rounds", _ROUNDS),
        "threshold": max(3, -(-hospitals // 2)),
    }
    made = with_usual(given_options(context), usual)
    built: RecordSum = build_any(name, clients=hospitals, **made)
    return built


def _run(
    configs: Sequence[RunConfig], context: typer.Context, dataset: Dataset | None
) -> list[Result]:
    """Train a run for each configuration."""
    out, show = context.params["out"], not context.params["as_json"]
    resume = context.params["resume"]
    with explain_errors():
        from jopeq_lab.training import simulation

        folders, boards = (
            [
                place if place is None or len(configs) == 1 else Path(place, f"seed-{config.seed}")
                for config in configs
            ]
            for place in (out, context.params["tensorboard"])
        )
        for folder in folders:  # all of them, before any is trained
            simulation.check_out(folder, resume=resume)
        if dataset is None:
            dataset = load_with_bar(configs[0].data, configs[0].data_dir, show=show)
    results = []
    for config, folder, board in zip(configs, folders, boards, strict=True):
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
                    tensorboard=board,
                    progress=after_round,
                )
            )
    return results


def _number_or(text: str | None, word: str, option: str) -> float | str | None:
    if text is None or text == word:
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{option} must be a number or {word!r}, got {text!r}") from None


# The tables, one for each kind of run


def figures(metrics: RoundMetrics) -> str:
    """The figures beside the bar."""
    told = [f"{metrics.bytes_per_client:,.0f} B/client"]
    if metrics.snr_db is not None:
        told.insert(0, f"SNR {metrics.snr_db:.1f} dB")
    if metrics.validation_accuracy is not None:
        told.insert(0, f"accuracy {metrics.validation_accuracy:.2%}")
    if metrics.train_loss is not None:
        told.insert(0, f"loss {metrics.train_loss:.4g}")
    return "  ".join(told)


def print_results(results: Sequence[Result]) -> None:
    """The table of all seeds, their mean, and what diverged."""
    console = make_console()
    tables = {"people": _people_table, "hospitals": _hospitals_table}
    made = next((make for name, make in tables.items() if name in results[0].facts), _clients_table)
    print_table(console, made(results))
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
        caption=f"accuracy on the test set, after the last round. {facts['guarantee']}",
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
        "hospital and round. price: squared error of a mean beside central noise, colluders apart. "
        f"{facts['guarantee']}",
    )


def _seed(result: Result) -> str:
    return str(result.config.seed)


def _accuracy(result: Result) -> str:
    return _or_empty(result.test_accuracy, ".2%")


def _or_empty(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
