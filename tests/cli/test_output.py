"""What the commands print with."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest

from jopeq.cli import output


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (math.inf, "none"),
        (4.0, "4.00"),
        (10.119, "10.12"),
        (0.0, "0.00"),
        (8.042, "8.05"),
        (0.004, "0.004"),
        (0.00412, "0.0042"),
        (999.994, "1,000.00"),
        (1000.0, "1,000"),
        (2983000.4, "2,983,001"),
    ],
)
def test_epsilon_text(value, text):
    assert output.epsilon_text(value) == text


def test_json_has_no_infinities(capsys):
    nested = {"a": math.inf, "b": [math.nan, 1.5, {"c": -math.inf}], "d": (1, None, True, "ε")}
    output.print_json(nested)
    printed = capsys.readouterr().out
    assert printed.endswith("}\n")
    assert "ε" in printed
    found = json.loads(printed, parse_constant=pytest.fail)
    assert found == {"a": None, "b": [None, 1.5, {"c": None}], "d": [1, None, True, "ε"]}


def test_json_of_numpy_numbers(capsys):
    output.print_json({"x": np.float64(0.1), "y": np.float64("inf")})
    assert json.loads(capsys.readouterr().out) == {"x": 0.1, "y": None}


def test_json_keeps_every_digit(capsys):
    output.print_json(10.119288512538814)
    assert json.loads(capsys.readouterr().out) == 10.119288512538814


def test_the_console_is_wide_where_there_is_no_terminal(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert output.make_console().width == 120


def test_the_console_is_as_wide_as_asked_for(monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert output.make_console().width == 72


@pytest.mark.parametrize("columns", [20, 60, 200])
def test_no_terminal_is_too_narrow_for_a_number(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    table = output.make_table("title", "caption", ("scheme", "ε of a client"), left=1)
    table.add_row("response, rate=2.0", "30,648.25")
    output.print_table(output.make_console(), table)
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "response, rate=2.0" in printed
    assert "30,648.25" in printed
