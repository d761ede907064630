"""The command as a user meets it: what it prints, and how it refuses."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jopeq

SOURCE = Path(jopeq.__file__).parents[1]


def in_a_process(*words):
    """``python -m jopeq`` in a fresh interpreter."""
    search = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "jopeq", *words],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": search, "PYTHONUTF8": "1"},
        timeout=1800,  # only a hang reaches it
        check=False,
    )


def plain(text):
    """Without the box around errors and its line breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


def test_help_names_the_commands(jopeq_command):
    shown = jopeq_command("--help").output
    for command in ("demo", "plan", "audit", "train"):
        assert command in shown


def test_a_process_prints_a_version_or_a_refusal_without_a_traceback():
    result = in_a_process("--version")
    assert (result.returncode, result.stdout) == (0, f"{jopeq.__version__}\n"), result.stderr
    result = in_a_process("audit", "--rate", "1", "--json", "--epsilon", "0")
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    assert "epsilon must be a positive finite number, got 0.0" in plain(result.stderr)


@pytest.mark.parametrize(
    ("words", "parameter", "value"),
    [
        ("audit --epsilon nan --rate 1", "epsilon", "nan"),
        ("audit --epsilon four --rate 1", "--epsilon", "valid"),
        ("audit --rate 1", "epsilon", "jopeq"),
        ("audit --scheme laplas --epsilon 4", "scheme", "'laplas'"),
        *(
            (f"audit --epsilon 4 --rate 2 --{name} {value}", name, value)
            for name, value in (("lattice", "A3"), ("law", "cauchy"), ("gamma", 0), ("coding", "z"))
        ),
        ("audit --epsilon 4 --rate 1 --draws 10", "draws", "1000"),
        ("audit --epsilon 4 --rate 1 --confidence nan", "confidence", "nan"),
        ("plan --epsilon 0", "--epsilon", "0"),
        ("plan --rate 65", "rate", "65.0"),
        ("plan --dimension 0", "--dimension", "1"),
        ("plan --rounds 0", "--rounds", "1"),
        ("plan --clients -1", "--clients", "1"),
        ("plan --delta 1", "delta", "1.0"),
        ("plan --epsilom 4", "--epsilom", "No such option"),
    ],
)
def test_bad_input_is_named_and_refused(words, parameter, value, jopeq_command):
    result = jopeq_command(*words.split())
    assert result.exit_code == 2
    said = plain(result.output)
    assert parameter in said
    assert str(value) in said
    assert "Traceback" not in said
    assert isinstance(result.exception, SystemExit)  # not the error itself
