"""Progress bars: many runs, one run as it goes, and downloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from jopeq_lab.training.data import Dataset

_BAR = 16  # cells of a bar: its figures and the time fit 80 columns next to it


def runs_bar(console: Console) -> Progress:
    """The bar of many runs: the last run, how many are done, and the time."""
    columns = (TextColumn("{task.description}"), BarColumn(_BAR), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console)


def _passing_bar(*columns: ProgressColumn, show: bool) -> Progress:
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not show)


class LiveBar:
    """The bar of one run with its latest figures; on standard error, removed at the end."""

    def __init__(self, description: str, total: int, *, show: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(_BAR), MofNCompleteColumn())
        figures = TextColumn("{task.fields[figures]}")
        self._progress = _passing_bar(*columns, TimeRemainingColumn(), figures, show=show)
        self._task = self._progress.add_task(description, total=total, figures="")

    def __enter__(self) -> LiveBar:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def move(self, done: int, figures: str, description: str | None = None) -> None:
        """Show how much is done; ``description`` replaces the one shown."""
        self._progress.update(self._task, completed=done, figures=figures, description=description)


def load_with_bar(name: str, data_dir: str | None, *, show: bool = True) -> Dataset:
    """``jopeq_lab.training.data.load``, showing downloads on standard error."""
    from jopeq_lab.training.data import load

    columns = (TextColumn(f"downloading {name}"), BarColumn(), DownloadColumn())
    with _passing_bar(*columns, TransferSpeedColumn(), show=show) as bar:
        task = bar.add_task("", visible=False)

        def update(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        return load(name, data_dir, progress=update)
