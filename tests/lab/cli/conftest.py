"""Both command lines as the tests call them."""

import pytest
from typer.testing import CliRunner

from jopeq.cli import app as jopeq_app
from jopeq_lab.cli import app as lab_app


@pytest.fixture
def jopeq_command():
    """Run ``jopeq`` with these words."""
    return lambda *words: CliRunner().invoke(jopeq_app, [str(word) for word in words])


@pytest.fixture
def lab_command(monkeypatch):
    """Run ``jopeq-lab`` with these words, on a terminal so wide that no message is broken."""
    monkeypatch.setenv("COLUMNS", "600")
    return lambda *words: CliRunner().invoke(lab_app, [str(word) for word in words])
