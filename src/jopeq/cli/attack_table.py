"""What ``jopeq attack`` found: the table, the headings above pictures, and JSON."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from jopeq.cli.output import epsilon_text, make_table
from jopeq.privacy.guarantee import Guarantee, digits_up
from jopeq.schemes.base import Scheme

if TYPE_CHECKING:
    import torch

    from jopeq.lab.attacks.compare import Outcome

_WIDEST = 17  # characters of a heading above a picture
_WIDEST_LABEL = 30  # characters of a label in the table, where more would squeeze the figures


def attack_table(
    outcomes: Sequence[Outcome], schemes: Mapping[str, Scheme], victims: torch.Tensor, model: str
) -> Table:
    """A row per scheme and attack, above the scores of a plain grey image."""
    import torch

    from jopeq.lab.attacks.similarity import scores

    count = len(victims)
    grey = scores(torch.full_like(victims, 0.5), victims)

    def label_read(one: Outcome) -> str:
        return f"{one.labels_right}/{count}" if one.method in ("dlg", "idlg") else "given"

    table = make_table(
        f"{model}: the gradient of one image at a time, {count} images",
        {
            "scheme": lambda one: "\n".join(
                textwrap.wrap(one.label, _WIDEST_LABEL, break_long_words=False)
            ),
            "attack": lambda one: one.method,
            "SSIM": lambda one: f"{statistics.fmean(one.ssim):.3f}",
            "PSNR dB": lambda one: f"{statistics.fmean(one.psnr):.1f}",
            "MSE": lambda one: f"{statistics.fmean(one.mse):.4f}",
            "recovered": lambda one: str(one.recovered),
            "label read": label_read,
            "ended": lambda one: ", ".join(
                f"{n} {name}" for name, n in Counter(one.status).items()
            ),
            "ε proven": lambda one: epsilon_text(schemes[one.label].guarantee.epsilon),
        },
        outcomes,
        left=2,
        caption="means over images. SSIM: windows of 7×7 pixels, data_range 1. recovered: SSIM "
        "above 0.5, with a 95% interval. label read: right ones; 'label', 'inverting' and "
        f"'adaptive' are given it. {_epsilon_words(schemes.values())}An attacker who saw nothing "
        "would show a plain grey image.",
    )
    means = (grey.ssim.mean(), grey.psnr.mean(), grey.mse.mean())
    ssim, psnr, mse = map(float, means)
    table.add_row("plain grey image", "–", f"{ssim:.3f}", f"{psnr:.1f}", f"{mse:.4f}")
    return table


def _epsilon_words(schemes: Iterable[Scheme]) -> str:
    """The units of ε, of the schemes that have one."""
    found = [one.guarantee for one in schemes if math.isfinite(one.guarantee.epsilon)]
    units = list(dict.fromkeys(map(_unit, found)))
    return f"ε: {'; '.join(units)}. " if units else ""


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


def as_dict(outcome: Outcome, scheme: Scheme) -> dict[str, Any]:
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
