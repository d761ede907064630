import pytest
import torch
from rich.console import Console

import jopeq
from jopeq.attacks.compare import Outcome
from jopeq.cli.attack import as_dict, attack_table, heading


def outcome(label):
    return Outcome(
        label=label,
        spec="",
        method="label",
        images=torch.zeros(1, 1, 8, 8),
        mse=[0.1],
        psnr=[10.0],
        ssim=[0.2],
        status=["spent"],
        labels_right=1,
        evaluations=20.0,
    )


def shown(scheme):
    table = attack_table([outcome("mine")], {"mine": scheme}, torch.zeros(1, 1, 8, 8), "lenet")
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table)
    return " ".join(captured.get().split())


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("response", {"rate": 8.0}, "ε: per entry of the gradient, against the server."),
        ("response", {"rate": 8.0, "unit": "update"}, "ε: per update, which is the whole"),
        ("jopeq", {"rate": 4.0, "lattice": "A2"}, "ε: per sample of 2 entries of the gradient"),
    ],
)
def test_the_caption_says_what_epsilon_protects(name, parameters, words):
    scheme = jopeq.scheme(name, epsilon=3.0, clip=1.0, **parameters)
    assert words in shown(scheme)
    assert as_dict(outcome("mine"), scheme)["unit"] == parameters.get("unit", "sample")


def test_where_nothing_is_proven_no_unit_is_named():
    assert "ε: " not in shown(jopeq.scheme("none"))


def test_headings_hold_every_parameter_in_narrow_lines():
    assert heading(outcome("raw")) == "raw\nlabel"
    assert heading(outcome("jopeq, ε=3, R=8")) == "jopeq\nε=3, R=8\nlabel"
    long = heading(outcome("response, epsilon=3.0, rate=8.0, unit=update"))
    assert long == "response\nepsilon=3.0\nrate=8.0\nunit=update\nlabel"
