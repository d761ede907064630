"""``jopeq reproduce``: the paper's figures and tables, from scratch."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jopeq.commands.bars import runs_bar
from jopeq.commands.data_bar import load_with_bar
from jopeq.commands.explained import explained
from jopeq.commands.output import make_console

if TYPE_CHECKING:
    from jopeq.federated.runs import Job, Run

ATTACKS = ("fig4", "fig5", "fig6")
NAMES = ("table1", "table2", "fig2", "fig3", *ATTACKS, "theory", "page")


def reproduce(
    name: Annotated[str, typer.Argument(help=f"one of {', '.join(NAMES)}")],
    data_dir: Annotated[Path | None, typer.Option(help="where the data files are")] = None,
    results: Annotated[Path, typer.Option(help="where runs are kept")] = Path("results"),
    page: Annotated[Path | None, typer.Option(help="the page, by default in docs")] = None,
    rounds: Annotated[int | None, typer.Option(help="instead of the paper's", min=1)] = None,
    seeds: Annotated[int | None, typer.Option(help="seeds of each run", min=1)] = None,
    processes: Annotated[int | None, typer.Option(help="runs at a time", min=1)] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; trainings on a GPU multiply in TF32")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="stop then; the same command goes on", min=0)
    ] = None,
) -> None:
    """Train what is missing in RESULTS, draw the figures and write the page."""
    from jopeq.experiments import cifar, mnist
    from jopeq.experiments.results_page import write_page
    from jopeq.experiments.snr_conventions import conventions

    makers: dict[str, Callable[..., Iterable[Job]]] = {
        "table1": mnist.table1_jobs,
        "table2": cifar.table2_jobs,
        "fig2": mnist.fig2_jobs,
        "fig3": mnist.fig3_jobs,
    }
    if name not in NAMES:
        raise typer.BadParameter(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    if name not in makers:
        _refuse(name, rounds=rounds, seeds=seeds, processes=processes)
    if name in ("theory", "page"):
        _refuse(name, data_dir=data_dir, device=device, seconds=seconds)
    if name == "page" and not results.is_dir():
        raise typer.BadParameter(f"--results {results} is no folder: name the one of the runs")
    page = Path(f"docs/{'theory' if name == 'theory' else 'results'}.md") if page is None else page
    with explained(f"--page {page}"):
        _check_page(page)
    if name == "theory":
        _theory(results / "theory.json", page)
        return
    if name in ATTACKS:
        _attack(name, data_dir, results, device, seconds)
    if name in makers:
        changes = {"rounds": rounds, "count": seeds}
        given = {key: value for key, value in changes.items() if value is not None}
        with explained(f"--results {results}"):
            data = "cifar10" if name == "table2" else "mnist"
            load_with_bar(data, None if data_dir is None else str(data_dir))
            jobs = _on(device, makers[name](data_dir, **given))
            also = [results / "table1.jsonl"] if name == "fig3" else []
            runner = _runner(name, results / "unfinished", seconds)
            _run(jobs, results / f"{name}.jsonl", processes, also, runner)
            if name == "table2":
                conventions(results / "table2_snr.jsonl")
    with explained(f"--results {results}, --page {page}"):
        page.parent.mkdir(parents=True, exist_ok=True)
        write_page(results, page, page.parent / "figures")
    make_console().print(f"wrote {page}")


def _check_page(page: Path) -> None:
    """What cannot be written shows before the work."""
    there = next(path for path in (page, *page.absolute().parents) if path.exists())
    if there.is_dir() == (there == page):
        reason = errno.EISDIR if there == page else errno.ENOTDIR
    elif not os.access(there, os.W_OK):
        reason = errno.EACCES
    else:
        return
    raise OSError(reason, os.strerror(reason), str(there))


def _refuse(name: str, **options: object) -> None:
    """Options that would be parsed and ignored."""
    for option, value in options.items():
        if value is not None:
            given = f"--{option.replace('_', '-')}"
            raise typer.BadParameter(f"{name} has no use for {given}: drop it")


def _attack(
    name: str, data_dir: Path | None, results: Path, device: str | None, seconds: float | None
) -> None:
    from jopeq.experiments.attack_figures import attack_figure
    from jopeq.federated.config import check_device

    with explained(f"--results {results}"):
        check_device(device or "cpu")
        dataset = load_with_bar("cifar10", None if data_dir is None else str(data_dir))
        with runs_bar(make_console()) as progress:
            task = progress.add_task("attacking", total=None)

            def show(done: int, total: int, text: str) -> None:
                progress.update(task, completed=done, total=total, description=text[:80])

            found, total = attack_figure(
                name, dataset, results, device=device or "cpu", seconds=seconds, progress=show
            )
            text = "done" if len(found) == total else "out of time: the same command goes on"
            progress.update(task, completed=len(found), total=total, description=text)


def _theory(kept: Path, page: Path) -> None:
    from jopeq.experiments.theory import PARTS, run_theory
    from jopeq.experiments.theory_page import write_theory_page

    console = make_console()
    with explained(f"--results {kept.parent}, --page {page}"):
        with console.status("theory") as status:

            def show(name: str) -> None:
                status.update(f"{name}, part {list(PARTS).index(name) + 1} of {len(PARTS)}")

            parts = run_theory(kept, progress=show)
        page.parent.mkdir(parents=True, exist_ok=True)
        write_theory_page(parts, page, page.parent / "figures")
    console.print(f"wrote {page}")


def _on(device: str | None, jobs: Iterable[Job]) -> list[Job]:
    """The jobs on another device, where one is named; on a GPU, by its tensor cores."""
    if device is None:
        return list(jobs)
    changes: dict[str, Any] = {"device": device, "tf32": device.startswith("cuda")}
    return [replace(job, config=replace(job.config, **changes)) for job in jobs]


def _runner(name: str, unfinished: Path, seconds: float | None) -> Callable[[Job], Run | None]:
    """Runs that take long, or must end in time, can be gone on with."""
    from jopeq.experiments.stoppable import StoppableRunner
    from jopeq.federated.runs import run_job

    if name != "table2" and seconds is None:
        return run_job
    return StoppableRunner(unfinished, None if seconds is None else time.time() + seconds)


def _run(
    jobs: list[Job],
    path: Path,
    processes: int | None,
    also: list[Path],
    runner: Callable[[Job], Run | None],
) -> None:
    from jopeq.federated.runs import run_jobs

    with runs_bar(make_console()) as progress:
        task = progress.add_task("training", total=len(jobs))

        def show(done: int, total: int, run: Run) -> None:
            text = f"{run.model} {run.label}: {run.test_accuracy:.4f}"
            progress.update(task, completed=done, description=text)

        done = run_jobs(jobs, path, processes=processes, progress=show, also=also, runner=runner)
        is_whole = len(done) == len(jobs)
        text = "done" if is_whole else "out of time: the same command goes on"
        progress.update(task, completed=len(done), description=text)
