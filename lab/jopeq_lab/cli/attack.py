"""``jopeq-lab attack``: how much of a client's images the server could see."""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from jopeq.cli.options import AsJson, Epsilon, Parameter, Rate, read_values
from jopeq.cli.output import (
    epsilon_text,
    explain_errors,
    make_console,
    make_table,
    print_json,
    print_table,
)
from jopeq.privacy.guarantee import Guarantee, digits_up
from jopeq.registry import SCHEMES
from jopeq.schemes.base import Scheme
from jopeq.sphere.sphere import Sphere
from jopeq_lab.cli.bars import LiveBar, load_with_bar
from jopeq_lab.cli.settings import SMALL_MODELS, build_scheme

if TYPE_CHECKING:
    import torch

    from jopeq_lab.attacks.compare import Outcome
    from jopeq_lab.attacks.gradients import GradientMap

_PICTURES = (".png", ".pdf", ".svg", ".jpg", ".jpeg")
_LONGEST = 50  # characters of a description next to the bar
_LONGEST_SAID = 400  # characters of an error that the user's own code raised
_PHOTOS = "photos"


def attack(
    model: Annotated[
        str,
        typer.Option(help="lenet, another name of 'jopeq-lab train', or package.module:factory"),
    ] = "lenet",
    scheme: Annotated[
        str | None,
        typer.Option(
            help=f"one of {', '.join(SCHEMES)}, sphere, or package.module:Class; without it, four "
            "are compared"
        ),
    ] = None,
    epsilon: Epsilon = None,
    rate: Rate = None,
    parameter: Parameter = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--attack", help="dlg, idlg, label, inverting or adaptive; repeat; label and adaptive"
        ),
    ] = None,
    iterations: Annotated[int, typer.Option(help="of 20 evaluations each; 40 show enough")] = 300,
    images: Annotated[int, typer.Option(help="how many of the data set", min=1)] = 6,
    data: Annotated[
        str | None,
        typer.Option(help="photos (bundled), cifar10, mnist, …; cifar10 with --data-dir"),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data set's files")] = None,
    seed: Annotated[
        int, typer.Option(help="of the model's weights and the starts", min=0, max=2**63 - 1)
    ] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    threads: Annotated[
        int | None,
        typer.Option(help="of PyTorch; without it 1 for small models, else its own", min=1),
    ] = None,
    out: Annotated[Path, typer.Option(help="the picture grid")] = Path("out/attack.png"),
    as_json: AsJson = False,
) -> None:
    """Reconstruct images from gradients, raw and coded: a table, and a picture of the results."""
    import torch

    from jopeq_lab.attacks.attack import EVALUATIONS, AttackConfig
    from jopeq_lab.attacks.compare import compare
    from jopeq_lab.attacks.picture import Row, save_grid
    from jopeq_lab.training.config import check_device

    schemes = _schemes(scheme, read_values(parameter, epsilon=epsilon, rate=rate))
    chosen = list(dict.fromkeys(method or ("label", "adaptive")))
    if threads is not None or model in SMALL_MODELS:
        torch.set_num_threads(threads or 1)
    with explain_errors("", OSError):
        check_out(out)
        check_device(device)
        check_methods(chosen, schemes)
        config, *_ = [AttackConfig(method=m, iterations=iterations, seed=seed) for m in chosen]
        victims, truths, count = choose_victims(data, data_dir, images, show=not as_json)
        channels, height, width = victims.shape[1:]
        gradient_map = gradients_of(model, (channels, height, width), count, seed, device)
        if gradient_map.classes <= int(truths.max()):
            raise ValueError(
                f"--model has {gradient_map.classes} classes and the images have {count}: give "
                "another --model"
            )
        with LiveBar("", EVALUATIONS * iterations, show=not as_json) as bar:

            def show(words: str, evaluations: int, finished: int) -> None:
                bar.move(evaluations, f"{finished} images done", _cut(words, _LONGEST))

            outcomes = compare(
                gradient_map,
                victims,
                truths,
                schemes,
                chosen,
                config,
                progress=show,
            )
        rows = [Row(heading(one), one.images.numpy(), one.ssim) for one in outcomes]
        save_grid(victims.numpy(), rows, out)
    if as_json:
        print_json([as_dict(one, schemes[one.label]) for one in outcomes])
        return
    console = make_console()
    print_table(console, attack_table(outcomes, schemes, victims, model))
    console.print(f"saved {out}")


def _schemes(name: str | None, given: dict[str, Any]) -> dict[str, Scheme | Sphere]:
    if name is None:
        if given:
            raise typer.BadParameter(f"{', '.join(given)} needs --scheme")
        private = {"epsilon": 3.0, "rate": 8.0}
        return {
            "raw": build_scheme("none", {}),
            "sdq, R=8": build_scheme("sdq", {"rate": 8.0}),
            "jopeq, ε=3, R=8": build_scheme("jopeq", private),
            "response, ε=3, R=8": build_scheme("response", private),
        }
    built, raw = build_scheme(name, given), build_scheme("none", {})
    label = ", ".join([name, *(f"{key}={value}" for key, value in given.items())])
    return {"raw": raw} if built == raw else {"raw": raw, label: built}


def check_out(out: Path) -> None:
    """Raise ValueError unless the picture can be written there."""
    if out.suffix.lower() not in _PICTURES:
        raise ValueError(f"--out must end in one of {', '.join(_PICTURES)}, got {out}")
    try:
        if out.is_dir():
            raise IsADirectoryError("it is a folder")
        folder = next(one for one in out.parents if one.exists())
        with tempfile.TemporaryFile(dir=folder):  # permissions alone do not tell
            pass
        if out.exists() and not os.access(out, os.W_OK):
            raise PermissionError(f"{out} is read-only")
    except OSError as error:
        raise ValueError(
            f"--out {out} cannot be written ({error.strerror or error}): choose another place"
        ) from error


def check_methods(methods: Sequence[str], schemes: Mapping[str, Scheme | Sphere]) -> None:
    """Raise ValueError unless every method can attack every scheme."""
    centered = [label for label, one in schemes.items() if isinstance(one, Scheme) and one.center]
    if "adaptive" in methods and centered:
        raise ValueError(
            f"--attack adaptive does not know center=true, which scheme {centered[0]!r} has: drop "
            "-p center=true, or name other attacks"
        )


def choose_victims(
    data: str | None, data_dir: Path | None, count: int, *, show: bool
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Images, labels, and the number of classes that the model needs."""
    import torch

    from jopeq_lab.attacks.images import PHOTOS, photos

    if data == _PHOTOS and data_dir is not None:
        raise ValueError(f"--data {_PHOTOS} is bundled: drop --data-dir, or name another data set")
    if data == _PHOTOS or (data is None and data_dir is None):
        if count > PHOTOS:
            raise ValueError(
                f"--images must be at most {PHOTOS}, as many photographs are bundled, got {count}: "
                "give --data for others"
            )
        return photos(count), torch.arange(count), 10
    name = "cifar10" if data is None else data
    loaded = load_with_bar(name, None if data_dir is None else str(data_dir), show=show)
    if count > len(loaded.train_inputs):
        raise ValueError(
            f"--images must be at most {len(loaded.train_inputs)}, as many training images "
            f"has {name}, got {count}"
        )
    return loaded.train_inputs[:count], loaded.train_labels[:count], loaded.classes


def gradients_of(
    model: str, input_shape: tuple[int, int, int], classes: int, seed: int, device: str
) -> GradientMap:
    """The model's gradients; any error of the user's code becomes a ValueError about --model."""
    from jopeq_lab.attacks.gradients import GradientMap
    from jopeq_lab.training.models import build

    try:
        made = build(model, input_shape, classes, seed)
        found = GradientMap(made, input_shape, device=device)
        found.check_depends_on_images()
        return found
    except (Exception, SystemExit) as error:
        raise ValueError(_words(model, error)) from error


def _words(model: str, error: BaseException) -> str:
    said = _cut(" ".join(str(error).split()), _LONGEST_SAID)
    if isinstance(error, ValueError) and said.startswith("model "):
        return f"--{said}"  # of our own, and names it already
    if isinstance(error, ValueError):
        return f"--model {model!r}: {said}"
    kind = f"{type(error).__name__}{said and ': '}{said}"
    return f"--model {model!r} cannot be used ({kind}): correct its code"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# What it found: the table, the headings above pictures, and JSON

_WIDEST = 17  # characters of a heading above a picture
_WIDEST_LABEL = 21  # characters of a label in the table, which then fits eighty columns


def attack_table(
    outcomes: Sequence[Outcome],
    schemes: Mapping[str, Scheme | Sphere],
    victims: torch.Tensor,
    model: str,
) -> Table:
    """A row per scheme and attack, above the scores of a plain grey image."""
    import torch

    from jopeq_lab.attacks.similarity import scores

    count = len(victims)
    grey = scores(torch.full_like(victims, 0.5), victims)

    def label_read(one: Outcome) -> str:
        return f"{one.labels_right}/{count}" if one.method in ("dlg", "idlg") else "given"

    table = make_table(
        f"{model}: the gradient of one image at a time, {count} images",
        {
            "scheme": lambda one: "\n".join(textwrap.wrap(one.label, _WIDEST_LABEL)),
            "attack": lambda one: one.method,
            "SSIM": lambda one: f"{statistics.fmean(one.ssim):.3f}",
            "PSNR": lambda one: f"{statistics.fmean(one.psnr):.1f}",
            "recovered": lambda one: str(one.recovered),
            "label": label_read,
            "ε": lambda one: epsilon_text(schemes[one.label].guarantee.epsilon),
        },
        outcomes,
        left=2,
        caption="means over images. SSIM: windows of 7×7 pixels, data_range 1. PSNR: in dB. "
        "recovered: SSIM above 0.5, with a 95% interval. label: how many were read right; 'label', "
        f"'inverting' and 'adaptive' are given it. {_epsilon_words(schemes.values())}An attacker "
        "who saw nothing would show a plain grey image.",
    )
    ssim, psnr = float(grey.ssim.mean()), float(grey.psnr.mean())
    table.add_row("plain grey image", "–", f"{ssim:.3f}", f"{psnr:.1f}")
    return table


def _epsilon_words(schemes: Iterable[Scheme | Sphere]) -> str:
    """The units of ε, of the schemes that have one."""
    found = [one.guarantee for one in schemes if math.isfinite(one.guarantee.epsilon)]
    units = list(dict.fromkeys(map(_unit, found)))
    return f"ε, proven: {'; '.join(units)}. " if units else ""


def _unit(guarantee: Guarantee) -> str:
    unit, size = "update, which is the whole gradient", guarantee.sample_size
    if guarantee.unit == "sample":
        unit = "entry of the gradient" if size == 1 else f"sample of {size} entries of the gradient"
    delta = f", with δ ≤ {digits_up(guarantee.delta, 2)}" if guarantee.delta else ""
    return f"per {unit}, against the {guarantee.adversary}{delta}"


def heading(outcome: Outcome) -> str:
    """The scheme, its parameters and the attack, in lines as wide as a picture."""
    name, *parameters = outcome.label.split(", ")
    lines = [name, *parameters[:1]]
    for text in parameters[1:]:
        if len(lines[-1]) + 2 + len(text) <= _WIDEST:
            lines[-1] += f", {text}"
        else:
            lines.append(text)
    return "\n".join([*lines, outcome.method])


def as_dict(outcome: Outcome, scheme: Scheme | Sphere) -> dict[str, Any]:
    """The outcome as --json prints it."""
    recovered = outcome.recovered
    return {
        **{key: value for key, value in vars(outcome).items() if key != "images"},
        "recovered": recovered.value,
        "recovered_interval": [recovered.low, recovered.high],
        **{
            name: getattr(scheme.guarantee, name)
            for name in ("epsilon", "nominal", "delta", "unit")
        },
    }
