"""The command line as the tests call it."""

import pytest
from typer.testing import CliRunner

from jopeq.cli import app


@pytest.fixture
def jopeq_command(monkeypatch):
    """Run ``jopeq`` with these words, on a terminal so wide that no message is broken."""
    monkeypatch.setenv("COLUMNS", "600")
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])
