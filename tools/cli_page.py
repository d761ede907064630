"""Writes the second half of docs/commands.md: every command and option, with examples it ran.

The demo's figure of docs/index.md comes from the same run.

python tools/cli_page.py
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import torch
import typer

from jopeq.cli import app as jopeq_app
from jopeq_lab.cli import app as lab_app

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
START = "<!-- commands: made by tools/cli_page.py -->\n"
EXAMPLES = {
    "jopeq plan": "jopeq plan --epsilon 4 --dimension 7850 --clients 1000",
    "jopeq audit": "jopeq audit --scheme jopeq --epsilon 4 --rate 1",
    "jopeq stats": (
        "jopeq stats --csv one.csv --csv two.csv --csv three.csv --epsilon 0.5 "
        "--ask 'age: mean 0 120' --ask 'age: quartiles 0 120' --ask 'sex: proportions F M'"
    ),
    "jopeq fit": (
        "jopeq fit --csv one.csv --csv two.csv --csv three.csv --outcome died "
        "--number 'age 18 100' --category 'sex F M' --records 4200 --epsilon 1"
    ),
    "jopeq doctor": "jopeq doctor model.pt",
    "jopeq ledger init": "jopeq ledger init ledger.json --budget 2 --delta 1e-5",
    "jopeq ledger show": "jopeq ledger show ledger.json",
    "jopeq ledger plan": "jopeq ledger plan ledger.json --rounds 10 --clients 5 --records 2700",
    "jopeq ledger report": "jopeq ledger report ledger.json",
    "jopeq-lab demo": "jopeq-lab demo",
    "jopeq-lab train": (
        "jopeq-lab train --data digits --scheme response --epsilon 4 --rate 2 --rounds 10 "
        "-s spread=auto"
    ),
    "jopeq-lab attack": (
        "jopeq-lab attack --scheme response --epsilon 3 --rate 8 --images 1 --iterations 20"
    ),
    "jopeq-lab explore": "jopeq-lab explore --out explorer.html",
}
"""One for each command but guard, which starts a node."""
_COLUMNS = 80
_BAR = re.compile(r"━ \d+/\d+ ")  # of progress, with its time
WIDEST = 84  # columns of what the commands print


def commands() -> Iterator[tuple[str, click.Command]]:
    """All commands with the words that call them."""
    for program, app in (("jopeq", jopeq_app), ("jopeq-lab", lab_app)):
        found: Any = typer.main.get_command(app)
        for name, command in found.commands.items():
            if isinstance(command, click.Group):
                for below, one in command.commands.items():
                    yield f"{program} {name} {below}", one
            else:
                yield f"{program} {name}", command


def page_of(printed: Mapping[str, str]) -> str:
    """All after ``START``, with what the example of each command printed."""
    blocks = []
    for name, command in commands():
        blocks += [f"### {name}", _text(command)]
        if name in EXAMPLES:
            blocks.append(f"```sh\n{_folded(EXAMPLES[name])}\n```")
        if name in printed:
            blocks.append(f"```text\n{printed[name]}\n```")
        blocks += _tables(command)
    return "\n\n".join(filter(None, blocks)) + "\n"


def _text(command: click.Command) -> str:
    """The first paragraphs of its help; examples are shown with what they print."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    told = [one for one in paragraphs if not one.startswith(("Example", "jopeq ", "jopeq-lab "))]
    return "\n\n".join(told).replace("``", "`")


def _folded(line: str) -> str:
    """A command over several lines, broken before options."""
    lines = [""]
    for word in re.split(r" (?=--?\w)", line):
        piece = word if not lines[-1] else f" {word}"
        if len(lines[-1] + piece) > _COLUMNS - 2:
            lines[-1] += " \\"
            lines.append(f"   {piece}")
        else:
            lines[-1] += piece
    return "\n".join(lines)


def _tables(command: click.Command) -> list[str]:
    """One table for each group of options, in the order of the help."""
    named = [one for one in command.params if "--help" not in one.opts]
    groups = {getattr(one, "rich_help_panel", None): 0 for one in named}
    order = sorted(named, key=lambda one: [*groups].index(getattr(one, "rich_help_panel", None)))
    tables = []
    for group, params in groupby(order, key=lambda one: getattr(one, "rich_help_panel", None)):
        rows = [f"| {group or 'option'} | default | meaning |", "|---|---|---|"]
        rows += [_row(one) for one in params]
        tables.append("\n".join(rows))
    return tables


def _row(param: Any) -> str:
    names = [*param.opts, *param.secondary_opts]
    if isinstance(param, click.Argument) or param.param_type_name == "argument":
        names = [param.name.upper()]
    value = "" if param.type.name == "boolean" else f"*{param.type.name.replace(' range', '')}.* "
    default = param.default
    shown = "" if default is None or isinstance(default, bool) else f"`{default}`"
    meaning = (param.help or "").replace("|", "\\|")
    return f"| {', '.join(f'`{name}`' for name in names)} | {shown} | {value}{meaning} |"


def _shown(line: str) -> str:
    """Sentences are wrapped as by a terminal; tables stay as wide as they are."""
    return line if len(line) <= WIDEST else textwrap.fill(line, _COLUMNS, subsequent_indent="    ")


def run() -> dict[str, str]:
    """What each example prints in a terminal of 80 columns, one after the other in one folder."""
    printed = {}
    with tempfile.TemporaryDirectory() as folder:
        state = {"fc.weight": torch.zeros(10, 784), "fc.bias": torch.zeros(10)}
        torch.save(state, Path(folder) / "model.pt")
        for name in ("one", "two", "three"):
            lines = ["age,sex,died"]
            for number in range(1400):
                age, died = 20 + number % 70, int(number * 37 % 100 < number % 70)
                lines.append(f"{age},{'FM'[number % 2]},{died}")
            (Path(folder) / f"{name}.csv").write_text("\n".join(lines), "utf-8")
        for name, line in EXAMPLES.items():
            program, *words = shlex.split(line)
            done = subprocess.run(
                [sys.executable, "-m", program.replace("-", "_"), *words],
                cwd=folder,
                env={**os.environ, "COLUMNS": str(_COLUMNS), "NO_COLOR": "1", "PYTHONUTF8": "1"},
                stdout=subprocess.PIPE,
                encoding="utf-8",
                check=True,
            )
            told = (one.rstrip() for one in done.stdout.splitlines())
            lines = [_shown(one) for one in told if not _BAR.search(one)]
            printed[name] = "\n".join(lines).strip("\n")
        shutil.copy(Path(folder) / "out" / "demo" / "demo.svg", PAGE.parent / "figures")
    return printed


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    written = PAGE.read_text(encoding="utf-8").partition(START)[0]
    PAGE.write_text(f"{written}{START}\n{page_of(run())}", encoding="utf-8")
