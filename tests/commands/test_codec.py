"""``jopeq codec``: one update through every scheme."""

from __future__ import annotations

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from jopeq import scheme
from jopeq.cli import app
from jopeq.commands import codec as command
from jopeq.experiments.codec import all_schemes, codec_row
from jopeq.experiments.example_update import example_update


@pytest.fixture(scope="module")
def printed():
    """The real thing, once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        result = CliRunner().invoke(app, ["codec"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_scheme_has_its_line(printed):
    for name in {each.name for each in all_schemes()}:
        assert re.search(rf"^\W*{re.escape(name)}\s.*\d", printed, re.MULTILINE), name
    lines = [line for line in printed.splitlines() if line.rstrip(" │").count("%") == 1]
    assert len(lines) == len(list(all_schemes()))


def test_the_update_is_the_example(printed):
    update = example_update()
    assert f"One update of {update.size:,} parameters (31,400 bytes as float32)" in printed


def test_the_line_of_the_papers_scheme(printed):
    line = re.search(r"^\W*jopeq\s+Z\s+1\s+4\.00\s+10\.12\s+1\.00\s.*$", printed, re.MULTILINE)
    assert line, printed


def test_the_columns_are_those_of_the_codec(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    update = np.linspace(-1.0, 1.0, 100, dtype=np.float32)
    only = scheme("sdq", rate=4.0)
    row = codec_row(only, update)
    monkeypatch.setattr(command, "example_update", lambda: update)
    monkeypatch.setattr(command, "all_schemes", lambda: [only])
    text = CliRunner().invoke(app, ["codec"]).stdout
    line = next(line for line in text.splitlines() if "sdq" in line)
    assert f"{row.payload_bytes:,}" in line
    assert f"{row.distortion:.4g}" in line
    assert "none" in line  # no ε
