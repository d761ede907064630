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


def test_a_process_prints_a_version_or_a_refusal_without_a_traceback():
    result = in_a_process("--version")
    assert (result.returncode, result.stdout) == (0, f"{jopeq.__version__}\n"), result.stderr
    result = in_a_process("audit", "--rate", "1", "--json", "--epsilon", "0")
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    assert "epsilon must be a positive finite number" in plain(result.stderr)


AUDIT = "audit --epsilon 4 --rate 2"


@pytest.mark.parametrize(
    "words",
    [
        *("audit --rate 1 --epsilon nan", "audit --rate 1 --epsilon four", "audit --epsilon"),
        *("audit --epsilon 4 --scheme laplas", f"{AUDIT} -p lattice=A3", f"{AUDIT} -p law=cauchy"),
        *(f"{AUDIT} -p gamma=0", f"{AUDIT} -p coding=z", f"{AUDIT} --draws 10"),
        *(f"{AUDIT} --confidence nan", "plan --epsilon 0", "plan --rate 65", "plan --dimension 0"),
        *("plan --rounds 0", "plan --clients -1", "plan --delta 1", "plan --epsilom 4"),
    ],
)
def test_bad_input_is_named_and_refused(words, jopeq_command):
    result = jopeq_command(*words.split())
    assert result.exit_code == 2
    said = plain(result.output)
    assert re.split(" -p |--", words)[-1].split("=")[0].split()[0] in said
    assert "Traceback" not in said
    assert isinstance(result.exception, SystemExit)  # not the error itself


@pytest.mark.parametrize("old", ["attack", "demo", "explore", "train"])
def test_an_old_command_names_the_new_one(old, jopeq_command):
    result = jopeq_command(old, "--data", "digits")
    assert result.exit_code == 2
    assert f"jopeq {old} is now jopeq-lab {old}" in plain(result.output)
