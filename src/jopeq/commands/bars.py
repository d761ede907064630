"""Progress bars of the commands that take a while."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


def runs_bar(console: Console) -> Progress:
    """Of many runs: what was done last, how many are done, and the time it took."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console)


class LiveBar:
    """Of one run, with its latest figures; on standard error, and gone at its end."""

    def __init__(self, description: str, total: int, *, show: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True),
            transient=True,
            disable=not show,
        )
        self._task = self._progress.add_task(description, total=total, figures="")

    def __enter__(self) -> LiveBar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def move(self, done: int, figures: str, description: str | None = None) -> None:
        """So much is done; the description stays as it is unless another is given."""
        self._progress.update(self._task, completed=done, figures=figures, description=description)
