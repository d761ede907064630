"""What the commands share: options, ε, JSON."""

import json
import math

import numpy as np
import pytest
import typer

from jopeq import scheme
from jopeq.cli import output
from jopeq.cli.options import build_any, read_values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, ""), (math.inf, "none"), (4.0, "4.00"), (10.119, "10.12"), (0.0, "0.00")),
        *((8.042, "8.05"), (0.004, "0.004"), (0.00412, "0.0042")),
        *((999.994, "1,000.00"), (1000.0, "1,000"), (2983000.4, "2,983,001")),
    ],
)
def test_epsilon_is_rounded_up(value, text):
    assert output.epsilon_text(value) == text


def test_json_has_no_infinities_and_keeps_every_digit(capsys):
    nested = {"a": math.inf, "b": [math.nan, 1.5, {"c": -math.inf}], "d": (1, None, True, "ε")}
    output.print_json({**nested, "e": np.float64("inf"), "f": 10.119288512538814})
    printed = capsys.readouterr().out
    assert printed.endswith("}\n")
    assert "ε" in printed
    found = json.loads(printed, parse_constant=pytest.fail)
    kept = {"e": None, "f": 10.119288512538814}
    assert found == {"a": None, "b": [None, 1.5, {"c": None}], "d": [1, None, True, "ε"], **kept}


def test_options_and_parameters_by_name_make_a_scheme():
    read = read_values(["lattice=A2", "law=laplace"], epsilon=3.0, rate=2.0, clip=None)
    assert build_any("jopeq", read) == scheme(
        "jopeq", epsilon=3.0, rate=2.0, lattice="A2", law="laplace"
    )
    assert read_values(["levels=3", "a=true", 'b="3"']) == {"levels": 3, "a": True, "b": "3"}
    for wrong, words in (("levels", "NAME=VALUE"), ("=3", "NAME=VALUE"), ("rate=3", "twice")):
        with pytest.raises(typer.BadParameter, match=words):
            read_values([wrong], rate=2.0)
