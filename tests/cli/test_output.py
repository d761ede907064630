"""What the commands share: ε, JSON, progress bars, and errors for the user."""

import json
import math

import numpy as np
import pytest

from jopeq.cli import output


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
