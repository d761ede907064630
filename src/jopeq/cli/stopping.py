"""Runs that Ctrl-C stops, and that go on later by ``jopeq train --resume DIR``."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from jopeq.cli.options import as_words
from jopeq.cli.run_file import RUN_FILE
from jopeq.files import atomic

COMMAND = "command.json"  # in the folder of a run: the options that began it
RESUMED = "resumed"  # the ``obj`` of a context whose options came from that file


class Stoppable:
    """Keeps the command of a run, and says where Ctrl-C stopped it."""

    def __init__(self, context: typer.Context, out: Path | None) -> None:
        self._words = as_words(context, leave_out=("resume", "out", "as_json", "config"))
        file = context.params["config"]
        self._file = None if file is None else file.read_bytes()
        self.is_resumed = context.params["resume"] is not None
        self._out = out
        self._place = "before the first round"
        self._name, self._rounds = "", 0

    def begins(self, seed: int, rounds: int) -> None:
        """A run of this seed begins."""
        self._name, self._rounds = f"seed {seed}", rounds

    def done(self, number: int) -> None:
        """A round is done, so the folder is this run's."""
        self._place = f"after round {number} of {self._rounds} of {self._name}"
        if self._out is not None and not (self._out / COMMAND).exists():
            if self._file is not None:
                with atomic(self._out / RUN_FILE) as file:
                    file.write(self._file)
            with atomic(self._out / COMMAND) as file:
                file.write(json.dumps(self._words).encode())

    def __enter__(self) -> Stoppable:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            return
        typer.echo(f"stopped {self._place}", err=True)
        if self._out is not None and (self._out / COMMAND).exists():
            typer.echo(f"go on with: jopeq train --resume {self._out}", err=True)
        else:
            typer.echo("nothing was kept: --out DIR keeps runs", err=True)
        raise typer.Exit(code=130)
