"""What the commands share: ε, JSON, progress bars, and errors for the user."""

import io
import json
import math

import numpy as np
import pytest
import typer
from rich.console import Console

from jopeq.cli import output
from jopeq.errors import DataError


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


@pytest.mark.parametrize("show", [True, False])
def test_a_live_bar_shows_description_place_and_figures_or_nothing(monkeypatch, show):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(output, "Console", lambda stderr: terminal)
    with output.LiveBar("seed 3", 20, show=show) as bar:
        bar.move(5, "loss 0.5")
        bar._progress.refresh()
        bar.move(7, "loss 0.4", "another name")
    text = terminal.file.getvalue()
    for words in ("seed 3", "5/20", "loss 0.5", "another name", "7/20", "loss 0.4"):
        assert (words in text) is show


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(20, "Not a directory", "a/b"), r"^--out x cannot be written \(Not a directory\)"),
        *((kind("as it is"), "^as it is$") for kind in (DataError, ValueError, ImportError)),
        (RuntimeError("training diverged"), "^training diverged$"),
    ],
)
def test_errors_for_the_user_end_a_command_with_their_message(error, words):
    with (
        pytest.raises(typer.BadParameter, match=words) as caught,
        output.explained("--out x", RuntimeError),
    ):
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [TypeError("a bug"), RuntimeError("a bug"), OSError("no option")])
def test_other_errors_are_not_hidden(error):
    with pytest.raises(type(error)), output.explained():
        raise error
