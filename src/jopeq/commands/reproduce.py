"""``jopeq reproduce``: the paper's figures and tables, from scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jopeq.commands.data_bar import load_with_bar
from jopeq.commands.output import make_console
from jopeq.errors import DataError

if TYPE_CHECKING:
    from jopeq.experiments.runs import Job

NAMES = ("table1", "fig2", "fig3", "page")


def reproduce(
    name: Annotated[str, typer.Argument(help=f"one of {', '.join(NAMES)}")],
    data_dir: Annotated[Path | None, typer.Option(help="where the data files are")] = None,
    results: Annotated[Path, typer.Option(help="where runs are kept")] = Path("results"),
    page: Annotated[Path, typer.Option(help="the page to write")] = Path("docs/results.md"),
    rounds: Annotated[int | None, typer.Option(help="instead of the paper's", min=1)] = None,
    seeds: Annotated[int | None, typer.Option(help="seeds of each run", min=1)] = None,
    processes: Annotated[int | None, typer.Option(help="runs at a time", min=1)] = None,
) -> None:
    """Train what is missing in RESULTS, draw the figures and write the page."""
    from jopeq.experiments import mnist
    from jopeq.experiments.results_page import write_page

    makers: dict[str, Callable[..., Iterable[Job]]] = {
        "table1": mnist.table1_jobs,
        "fig2": mnist.fig2_jobs,
        "fig3": mnist.fig3_jobs,
    }
    if name not in NAMES:
        raise typer.BadParameter(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    if name in makers:
        changes = {"rounds": rounds, "count": seeds}
        given = {key: value for key, value in changes.items() if value is not None}
        try:
            load_with_bar("mnist", None if data_dir is None else str(data_dir))
            jobs = list(makers[name](data_dir, **given))
            also = [results / "table1.jsonl"] if name == "fig3" else []
            _run(jobs, results / f"{name}.jsonl", processes, also)
        except (DataError, ValueError, RuntimeError) as error:
            raise typer.BadParameter(str(error)) from error
    page.parent.mkdir(parents=True, exist_ok=True)
    write_page(results, page, page.parent / "figures")
    make_console().print(f"wrote {page}")


def _run(jobs: list[Job], path: Path, processes: int | None, also: list[Path]) -> None:
    from jopeq.experiments.runs import Run, run_jobs

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=make_console()) as progress:
        task = progress.add_task("training", total=len(jobs))

        def show(done: int, total: int, run: Run) -> None:
            text = f"{run.model} {run.label}: {run.test_accuracy:.4f}"
            progress.update(task, completed=done, description=text)

        run_jobs(jobs, path, processes=processes, progress=show, also=also)
        progress.update(task, completed=len(jobs), description="done")
