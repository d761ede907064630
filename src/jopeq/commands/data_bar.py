"""Loading a data set with a bar for what has to be downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

if TYPE_CHECKING:
    from jopeq.federated.data import Dataset


def load_with_bar(name: str, data_dir: str | None, *, show: bool = True) -> Dataset:
    """``jopeq.federated.data.load``, showing downloads on standard error."""
    from jopeq.federated.data import load

    columns = (TextColumn(f"downloading {name}"), BarColumn(), DownloadColumn())
    bar = Progress(
        *columns,
        TransferSpeedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not show,
    )
    with bar:
        task = bar.add_task("", visible=False)

        def update(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        return load(name, data_dir, progress=update)
