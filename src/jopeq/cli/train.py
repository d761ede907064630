"""``jopeq train``: federated training with real payloads."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jopeq.cli.options import (
    SCHEME_OPTIONS,
    SMALL_MODELS,
    AsJson,
    as_words,
    build_scheme,
    given_options,
    in_groups,
    takes_scheme,
    was_given,
)
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
from jopeq.cli.people import PEOPLE, SHARED_WITH_PEOPLE, run_people
from jopeq.cli.stopping import COMMAND, RESUMED, Stoppable
from jopeq.registry import SCHEMES
from jopeq.schemes.base import Scheme

if TYPE_CHECKING:
    from jopeq.lab.training.metrics import RoundMetrics
    from jopeq.lab.training.simulation import Result


HEADINGS = (
    *("seed", "accuracy", "best", "loss", "SNR dB", "bits", "bytes"),
    *("ε asked", "ε proven", "ε update", "ε client"),
)
_ADAPTIVE_CLIP = ("initial_clip", "clip_epsilon", "clip_quantile", "clip_learning_rate")
_PLATEAU = ("plateau_factor", "plateau_patience")
_THEOREM = ("convexity", "smoothness")
_NO_SETTINGS = {  # options that are no field of a TrainConfig
    *("scheme", "seed", "seeds", "out", "resume", "tensorboard", "as_json"),
    *SCHEME_OPTIONS,
    *PEOPLE,
}


@in_groups(
    {
        "Data and model": ("data", "data_dir", "centered", "model", "validation"),
        "Scheme": ("scheme", *SCHEME_OPTIONS, "spread", "rotate", "clip", *_ADAPTIVE_CLIP),
        "People": PEOPLE,
        "Clients": ("clients", "participation", "partition", "alpha", "shards_per_client"),
        "Training": (
            *("rounds", "local_steps", "batch_size", "lr", "momentum", "keep_momentum"),
            *("schedule", *_PLATEAU, *_THEOREM, "server_lr"),
        ),
        "Machine": ("client_chunk", "compile", "device", "tf32", "threads"),
        "Runs": (*("seed", "seeds", "out", "resume", "checkpoint_every", "tensorboard"),),
    }
)
@takes_scheme
def train(
    context: typer.Context,
    data: Annotated[str, typer.Option(help="digits, mnist5k, mnist, fashion-mnist, cifar10")] = (
        "mnist5k"
    ),
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data set's files")] = None,
    centered: Annotated[
        bool, typer.Option("--centered", help="pixels from -1 to 1 in place of 0 to 1")
    ] = False,
    model: Annotated[
        str, typer.Option(help="linear, mlp, cnn, cifar-cnn, lenet or package.module:factory")
    ] = "linear",
    scheme: Annotated[
        str,
        typer.Option(
            "--scheme", help=f"one of {', '.join(SCHEMES)}; with --people also sum or central"
        ),
    ] = "none",
    spread: Annotated[str | None, typer.Option(help="a number, or auto")] = None,
    rotate: Annotated[bool | None, typer.Option(help="random rotation before coding")] = None,
    clip: Annotated[str | None, typer.Option(help="a public bound, or adaptive")] = None,
    initial_clip: Annotated[float, typer.Option(help="where an adaptive clip starts")] = 0.1,
    clip_epsilon: Annotated[float, typer.Option(help="ε of an adaptive clip's votes")] = 1.0,
    clip_quantile: Annotated[float, typer.Option(help="that an adaptive clip follows")] = 0.5,
    clip_learning_rate: Annotated[float, typer.Option(help="of an adaptive clip")] = 0.2,
    clients: Annotated[int, typer.Option(help="K")] = 10,
    people: Annotated[
        int | None,
        typer.Option(help="N people in place of clients: ε is a person's, in all", min=1),
    ] = None,
    examples: Annotated[int, typer.Option(help="training samples of a person")] = 1,
    participations: Annotated[int, typer.Option(help="rounds of a person, at most")] = 1,
    features: Annotated[str | None, typer.Option(help="public: hog or pixels")] = None,
    center: Annotated[float, typer.Option(help="share of people for the features' mean")] = 0.0,
    server_momentum: Annotated[float, typer.Option(help="of the server of people")] = 0.0,
    decay: Annotated[float, typer.Option(help="by how much server-lr falls, 0 to 1")] = 0.0,
    average: Annotated[float, typer.Option(help="share of last rounds averaged")] = 0.0,
    rounds: Annotated[int, typer.Option(help="T; with --people 32 unless given")] = 100,
    local_steps: Annotated[
        int, typer.Option(help="τ, steps of each client in a round; with --people 1 unless given")
    ] = 100,
    batch_size: Annotated[int, typer.Option(help="samples of a step")] = 16,
    lr: Annotated[float, typer.Option(help="learning rate of the clients")] = 0.1,
    momentum: Annotated[float, typer.Option(help="of the clients, from 0 in each round")] = 0.5,
    keep_momentum: Annotated[
        bool, typer.Option("--keep-momentum", help="from one round to the next")
    ] = False,
    schedule: Annotated[
        str, typer.Option(help="constant, plateau, client-plateau or theorem")
    ] = "constant",
    plateau_factor: Annotated[float, typer.Option(help="lr shrinks by it on a plateau")] = 0.1,
    plateau_patience: Annotated[int, typer.Option(help="rounds that make a plateau")] = 10,
    convexity: Annotated[float, typer.Option(help="ρ_c of --schedule theorem, not --lr")] = 1.0,
    smoothness: Annotated[float, typer.Option(help="ρ_s of --schedule theorem, not --lr")] = 2.5,
    participation: Annotated[float, typer.Option(help="fraction of clients in a round")] = 1.0,
    server_lr: Annotated[float, typer.Option(help="learning rate of the server")] = 1.0,
    partition: Annotated[str, typer.Option(help="iid, dirichlet or shards")] = "iid",
    alpha: Annotated[float, typer.Option(help="concentration of dirichlet")] = 0.5,
    shards_per_client: Annotated[int, typer.Option(help="of --partition shards")] = 2,
    seed: Annotated[list[int] | None, typer.Option(help="one run for each seed given")] = None,
    seeds: Annotated[int, typer.Option(help="run seeds 0 to n-1, if no --seed", min=1)] = 1,
    client_chunk: Annotated[int | None, typer.Option(help="clients trained at once")] = None,
    compile: Annotated[str, typer.Option(help="auto, on or off")] = "auto",  # noqa: A002
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    tf32: Annotated[bool, typer.Option("--tf32", help="products on a GPU's tensor cores")] = False,
    threads: Annotated[
        int | None,
        typer.Option(help="of PyTorch; 1 for linear, mlp and lenet, else PyTorch's own number"),
    ] = None,
    validation: Annotated[int | None, typer.Option(help="training samples held out")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for results and checkpoint")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="go on with the run in this folder; its options are known")
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(help="rounds between checkpoints")] = 10,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="also log there")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model over clients whose updates are compressed and made private on the way.

    jopeq train --people 50000 --scheme sphere --epsilon 4 --clip 0.1 --out runs/people

    jopeq train --model cnn --scheme response --epsilon 4 --rate 2 --out runs/cnn

    jopeq train --resume runs/cnn
    """
    if resume is not None and context.obj != RESUMED:
        _go_on(context, resume)
        return
    needs = {
        **dict.fromkeys(_ADAPTIVE_CLIP, ("--clip adaptive", clip == "adaptive")),
        **dict.fromkeys(_PLATEAU, ("--schedule plateau", "plateau" in schedule)),
        **dict.fromkeys(_THEOREM, ("--schedule theorem", schedule == "theorem")),
        "lr": ("--schedule constant or plateau", schedule != "theorem"),
        "alpha": ("--partition dirichlet", partition == "dirichlet"),
        "shards_per_client": ("--partition shards", partition == "shards"),
        "seeds": ("runs without --seed", not seed),
        "checkpoint_every": ("runs with --out", out is not None),
    }
    for name in context.params:
        if name in PEOPLE and name != "people":
            needs[name] = ("--people", people is not None)
        elif name not in (*PEOPLE, *SHARED_WITH_PEOPLE) and people is not None:
            needs[name] = ("runs without --people", False)
    refuse_unread(context, needs)
    chosen = list(dict.fromkeys(seed)) if seed else list(range(seeds))
    with Stoppable(context, out) as stoppable:
        if people is not None:
            run_people(context, chosen, stoppable)
        else:
            _run_clients(context, chosen, stoppable)


def _go_on(context: typer.Context, folder: Path) -> None:
    """The command that began the run in ``folder``, with the options given now on top."""
    if was_given(context, "out"):
        raise typer.BadParameter("--out would not be read: --resume names the folder of the run")
    try:
        words = json.loads((folder / COMMAND).read_text(encoding="utf-8"))
        if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            raise ValueError(f"{COMMAND} is no list of options")
    except (OSError, ValueError) as error:
        raise typer.BadParameter(
            f"--resume {folder} holds no run of `jopeq train --out` ({error})"
        ) from error
    place = str(folder.resolve())
    words += [*as_words(context, leave_out=("resume", "out")), "--out", place, "--resume", place]
    command = context.command
    with command.make_context("train", words, parent=context.parent, obj=RESUMED) as inner:
        model = str(inner.params["model"])
        if ":" in model and not was_given(context, "model"):  # a folder must not choose code
            raise typer.BadParameter(
                f"--resume {folder} would run the code of {model!r}: if you trust it, give "
                f"--model {model} too"
            )
        command.invoke(inner)


def _run_clients(context: typer.Context, seeds: Sequence[int], stoppable: Stoppable) -> None:
    given = context.params
    spread, clip, data_dir = given["spread"], given["clip"], given["data_dir"]
    public = _number_or(clip, "adaptive", "--clip")
    options = {name: v for name, v in context.params.items() if name not in _NO_SETTINGS} | {
        "scheme": _scheme(context, public),
        "spread": _number_or(spread, "auto", "--spread"),
        "clip": public,
        "data_dir": None if data_dir is None else str(data_dir),
    }
    if options["threads"] is None and options["model"] in SMALL_MODELS:
        options["threads"] = 1
    results = _run(given, options, seeds, stoppable)
    if given["as_json"]:
        print_json([result.as_dict() for result in results])
    else:
        _print(results)
    if any(result.diverged for result in results):
        raise typer.Exit(code=1)


def _scheme(context: typer.Context, clip: float | str | None) -> Scheme:
    """The scheme of the options; those of whole updates cannot be built without their clip."""
    name, given = context.params["scheme"], given_options(context)
    if clip is not None and name in SCHEMES and SCHEMES[name].is_whole:
        if clip == "adaptive":
            raise typer.BadParameter(
                f"--clip adaptive follows the size of samples, and {name!r} clips the norm of the "
                "whole update: give --clip a number, such as the norm of a usual update"
            )
        given["clip"] = clip
    return build_scheme(name, **given)


def refuse_unread(context: typer.Context, needs: Mapping[str, tuple[str, bool]]) -> None:
    """Refuse an option that was given although nothing would read it.

    ``needs`` maps options to the condition under which they are read: its words, its truth.
    """
    for name, (words, holds) in needs.items():
        if not holds and was_given(context, name):
            option = name.replace("_", "-")
            raise typer.BadParameter(f"--{option} would not be read: it is for {words}")


def _run(
    given: Mapping[str, Any], options: dict[str, Any], seeds: Sequence[int], stoppable: Stoppable
) -> list[Result]:
    """Train a run for each seed; ``given`` are the options of the command."""
    out, show = given["out"], not given["as_json"]
    kept = {"resume": stoppable.is_resumed, "tensorboard": given["tensorboard"]}
    with explained():
        from jopeq.lab.training import simulation

        configs = [simulation.TrainConfig(**options, seed=seed) for seed in seeds]
        folders = [
            out if out is None or len(seeds) == 1 else Path(out, f"seed-{seed}") for seed in seeds
        ]
        for folder in folders:  # all of them, before any is trained
            simulation.check_out(folder, **kept)
        dataset = load_with_bar(options["data"], options["data_dir"], show=show)
    results = []
    for config, folder in zip(configs, folders, strict=True):
        with (
            explained("" if folder is None else f"--out {folder}"),
            LiveBar(f"seed {config.seed}", config.rounds, show=show) as bar,
        ):
            stoppable.begins(config.seed, config.rounds)

            def after_round(metrics: RoundMetrics, _: object, bar: LiveBar = bar) -> None:
                bar.move(metrics.round, _figures(metrics))
                stoppable.done(metrics.round)

            results.append(
                simulation.train(config, dataset=dataset, out=folder, progress=after_round, **kept)
            )
    return results


def _figures(metrics: RoundMetrics) -> str:
    """The figures beside the bar."""
    accuracy = metrics.validation_accuracy
    said = "" if accuracy is None else f"accuracy {accuracy:.2%}"
    sent = f"SNR {metrics.snr_db:.1f} dB  {metrics.bytes_per_client:,.0f} B/client"
    return f"loss {metrics.train_loss:.4g}  {said}  {sent}"


def _print(results: Sequence[Result]) -> None:
    config = results[0].config
    table = make_table(
        f"{config.model} on {config.data}: {config.built_scheme.spec}, {config.clients} clients, "
        f"{results[0].dimension:,} parameters",
        "accuracy on the test set, of the best validation round; bits per parameter and bytes per "
        "client and round, as sent; SNR is 20·log10 of the mean over clients of "
        "var(h)/var(h−h̃); ε per sample unless said otherwise, proven against the server.",
        HEADINGS,
        left=1,
    )
    for result in results:
        if result.history:
            last = result.history[-1]
            table.add_row(
                str(result.config.seed),
                "" if result.test_accuracy is None else f"{result.test_accuracy:.2%}",
                str(result.best_round),
                f"{last.train_loss:.4g}",
                f"{last.snr_db:.1f}",
                f"{last.bits_per_parameter:.2f}",
                f"{last.bytes_per_client:,.0f}",
                epsilon_text(last.nominal_sample),
                epsilon_text(last.epsilon_sample),
                epsilon_text(last.epsilon_update),
                epsilon_text(last.epsilon_client),
            )
    console = make_console()
    print_table(console, table)
    accuracies = [r.test_accuracy for r in results if r.test_accuracy is not None]
    if len(accuracies) > 1:
        spread = statistics.stdev(accuracies)
        console.print(f"test accuracy {statistics.mean(accuracies):.2%} ± {spread:.2%}")
    for result in results:
        if result.diverged:
            console.print(f"[bold red]seed {result.config.seed}: {result.diverged}")


def _number_or(text: str | None, word: str, option: str) -> float | str | None:
    if text is None or text == word:
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{option} must be a number or {word!r}, got {text!r}") from None
