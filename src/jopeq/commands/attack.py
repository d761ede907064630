"""``jopeq attack``: what the server could see of a client's images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jopeq.commands.attack_settings import attack_config, check_demo, check_methods
from jopeq.commands.attack_table import as_dict, attack_table, heading
from jopeq.commands.attacked_model import gradients_of
from jopeq.commands.bars import LiveBar
from jopeq.commands.memory import is_of_memory
from jopeq.commands.options import (
    AsJson,
    Coding,
    Epsilon,
    Gamma,
    LatticeName,
    LawName,
    Parameters,
    Rate,
    build_scheme,
)
from jopeq.commands.output import make_console, print_json, print_table
from jopeq.commands.picture_out import check_out
from jopeq.commands.victims import choose_victims
from jopeq.errors import JoPEQError
from jopeq.schemes import SCHEMES, Scheme

DEMO_ITERATIONS, ITERATIONS = 40, 300
_LONGEST = 50  # characters of a description beside the bar


def attack(
    model: Annotated[
        str, typer.Option(help="lenet, another name of 'jopeq train', or package.module:factory")
    ] = "lenet",
    scheme: Annotated[
        str | None,
        typer.Option(help=f"one of {', '.join(SCHEMES)}; without it, four are compared"),
    ] = None,
    epsilon: Epsilon = None,
    rate: Rate = None,
    lattice: LatticeName = None,
    gamma: Gamma = None,
    law: LawName = None,
    coding: Coding = None,
    parameters: Parameters = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--attack", help="dlg, idlg, label, inverting or adaptive; repeat; label and adaptive"
        ),
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="lbfgs or adam, instead of the attack's own")
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(help=f"of 20 evaluations each; {ITERATIONS}, in the demo {DEMO_ITERATIONS}"),
    ] = None,
    restarts: Annotated[int, typer.Option(help="further attempts from other starts")] = 0,
    start: Annotated[str, typer.Option(help="grey, or normal as published")] = "grey",
    line_search: Annotated[
        str | None, typer.Option(help="of lbfgs: wolfe, or none as published; wolfe without")
    ] = None,
    variation: Annotated[float | None, typer.Option(help="weight of the total variation")] = None,
    images: Annotated[
        int | None, typer.Option(help="how many of the data set, 6 without", min=1)
    ] = None,
    image: Annotated[
        list[Path] | None, typer.Option(help="an image file to attack instead; may be repeated")
    ] = None,
    label: Annotated[
        list[int] | None, typer.Option(help="its class, one for each --image; 0, 1, … without")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="C,H,W that image files are brought to; 3,32,32 without")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="photos (bundled), cifar10, mnist, …; cifar10 with --data-dir"),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data set's files")] = None,
    classes: Annotated[
        int | None, typer.Option(help="of the model, for image files; 10 without", min=2)
    ] = None,
    seed: Annotated[
        int, typer.Option(help="of the model's weights and the starts", min=0, max=2**63 - 1)
    ] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    threads: Annotated[
        int | None,
        typer.Option(help="of PyTorch; 1 is best on a machine that others use too", min=1),
    ] = None,
    out: Annotated[Path, typer.Option(help="the picture grid")] = Path("out/attack.png"),
    resume: Annotated[
        bool, typer.Option("--resume", help="keep what a run left unfinished")
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="six bundled images, four schemes, a minute or two")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Reconstruct images from gradients, raw and coded: a table, and a picture of what is left."""
    try:
        import torch

        from jopeq.attacks.attack import EVALUATIONS
        from jopeq.attacks.compare import compare
        from jopeq.attacks.picture import Column, save_grid
        from jopeq.federated.config import check_device
    except ImportError as error:
        raise typer.BadParameter(f"{error}: pip install 'jopeq[experiments]'") from error
    options = {
        "epsilon": epsilon,
        "rate": rate,
        "lattice": lattice,
        "gamma": gamma,
        "law": law,
        "coding": coding,
    }
    schemes = _schemes(scheme, parameters, options)
    chosen = list(dict.fromkeys(methods or ("label", "adaptive")))
    budget = iterations if iterations is not None else (DEMO_ITERATIONS if demo else ITERATIONS)
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        if demo:
            check_demo(image=image, data=data, data_dir=data_dir, scheme=scheme)
        check_out(out, image or ())
        check_device(device)
        check_methods(chosen, schemes)
        config = attack_config(
            chosen,
            optimizer=optimizer,
            iterations=budget,
            restarts=restarts,
            start=start,
            line_search=line_search,
            variation=variation,
            seed=seed,
        )
        victims, truths, count = choose_victims(
            image, label, shape, data, data_dir, images, classes, show=not as_json
        )
        channels, height, width = victims.shape[1:]
        gradient_map = gradients_of(model, (channels, height, width), count, seed, device)
        if gradient_map.classes <= int(truths.max()):
            raise ValueError(
                f"label {int(truths.max())} is beyond the model's {gradient_map.classes} classes: "
                "give --label, or --classes"
            )
        with LiveBar("", EVALUATIONS * budget, show=not as_json) as bar:

            def show(words: str, evaluations: int, finished: int) -> None:
                fits = len(words) <= _LONGEST
                text = words if fits else words[: _LONGEST - 1] + "…"
                bar.move(evaluations, f"{finished} images done", text)

            outcomes = compare(
                gradient_map,
                victims,
                truths,
                schemes,
                chosen,
                config,
                keep=out.with_suffix(".npz"),
                resume=resume,
                progress=show,
            )
        columns = [Column(heading(one), one.images.numpy(), one.ssim) for one in outcomes]
        save_grid(victims.numpy(), columns, out)
    except (JoPEQError, ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    except (MemoryError, RuntimeError) as error:
        if not is_of_memory(error):
            raise
        raise typer.BadParameter(
            f"memory is too small for this attack ({' '.join(str(error).split())}): give fewer "
            "--images, a smaller --shape or a smaller --model"
        ) from error
    if as_json:
        print_json([as_dict(one, schemes[one.label]) for one in outcomes])
        return
    console = make_console()
    print_table(console, attack_table(outcomes, schemes, victims, model))
    console.print(f"saved {out}")


def _schemes(
    name: str | None, parameters: list[str] | None, options: dict[str, Any]
) -> dict[str, Scheme]:
    given = {key: value for key, value in options.items() if value is not None}
    if name is None:
        if given or parameters:
            named = [f"--{key}" for key in given] or ["--parameter"]
            raise typer.BadParameter(f"{', '.join(named)} needs --scheme")
        return {
            "raw": build_scheme("none"),
            "sdq, R=8": build_scheme("sdq", rate=8.0),
            "jopeq, ε=3, R=8": build_scheme("jopeq", epsilon=3.0, rate=8.0),
            "response, ε=3, R=8": build_scheme("response", epsilon=3.0, rate=8.0),
        }
    built = build_scheme(name, parameters, **given)
    raw = build_scheme("none")
    words = [name, *(f"{key}={value}" for key, value in given.items()), *(parameters or ())]
    return {"raw": raw} if built == raw else {"raw": raw, ", ".join(words): built}
