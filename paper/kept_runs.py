"""Many training runs at once, one process each; every result is kept at once.

Results are lines of JSON in a file: tables and figures can be made again without training, and a
second call trains only the runs that the file lacks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO, TypeVar

from jopeq.errors import DataError
from jopeq_lab.training.config import TrainConfig
from jopeq_lab.training.record import rename_terms

AUTHORS = Path(__file__).parents[1] / "results" / "authors.jsonl"
Record = TypeVar("Record")
Progress = Callable[[int, int, "Run"], None]  # (runs done, runs in all, the last one)


@dataclass(frozen=True)
class Job:
    """One configuration under the name it has in a table or figure."""

    label: str
    config: TrainConfig


@dataclass(frozen=True)
class Run:
    """The kept part of a finished job: small enough to commit, enough to redraw everything."""

    label: str
    scheme: str
    model: str
    data: str
    seed: int
    rounds: int
    test_accuracy: float
    best_round: int
    validation: list[float]  # accuracy after each round
    snr: float | None  # mean over rounds and clients; None without error
    bytes_per_client: float
    bits_per_parameter: float
    overload_rate: float
    nominal: float | None
    epsilon: float | None  # proven per sample; None without guarantee
    epsilon_client: float | None
    settings: dict[str, Any]
    test: list[float] | None = None  # accuracy after each round, where it was asked for
    diverged: str | None = None


def run_jobs(
    jobs: Iterable[Job],
    path: Path,
    runner: Callable[[Job], Run | None],
    *,
    processes: int | None = None,
    progress: Progress = lambda *news: None,
    also: Iterable[Path] = (),
    modules: Iterable[str] = (),
) -> list[Run]:
    """Run the jobs that ``path`` (JSON Lines) does not hold yet; add each run when it is done.

    Runs in the files ``also`` count as done. Where ``runner`` gives None, the job stays undone.
    Every process imports ``modules`` first, which register what the schemes name.
    """
    wanted = list(jobs)
    done = {run_key(run): run for file in (*also, path) for run in read_records(file, Run)}
    keys = [job_key(job) for job in wanted]
    missing = [job for job, key in zip(wanted, keys, strict=True) if key not in done]
    path.parent.mkdir(parents=True, exist_ok=True)
    finished = len(wanted) - len(missing)
    with path.open("a", encoding="utf-8") as file:
        for run in _computed(missing, processes, runner, modules):
            done[run_key(run)] = run
            add_record(file, run)
            finished += 1
            progress(finished, len(wanted), run)
    return [done[key] for key in keys if key in done]


def _computed(
    jobs: list[Job],
    processes: int | None,
    runner: Callable[[Job], Run | None],
    modules: Iterable[str],
) -> Iterator[Run]:
    count = max(1, min(len(jobs), processes or os.cpu_count() or 1))
    if count == 1:
        yield from filter(None, map(runner, jobs))
        return
    spawn, names = get_context("spawn"), tuple(modules)
    with ProcessPoolExecutor(count, spawn, _import, (names,)) as pool:
        for future in as_completed([pool.submit(runner, job) for job in jobs]):
            if (run := future.result()) is not None:
                yield run


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        import_module(name)


def add_record(file: TextIO, record: Any) -> None:
    """Write the fields of an object as one line, and wait until the line is on the disk."""
    file.write(json.dumps(vars(record), ensure_ascii=False) + "\n")
    file.flush()
    os.fsync(file.fileno())


def read_records(path: Path, kind: type[Record]) -> list[Record]:
    """The objects that ``add_record`` wrote to a file; none if there is no file."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            found = json.loads(line)
            for held in (found, found.get("config", {})):
                if "scheme" in held:
                    held["scheme"] = rename_terms(held["scheme"])
            records.append(kind(**found))
        except (AttributeError, ValueError, TypeError) as error:
            raise DataError(
                f"{path}, line {number} is no {kind.__name__} ({error}): delete that line"
            ) from error
    return records


@lru_cache
def theirs(source: str, table: str) -> dict[str, dict[str, Any]]:
    """Rows of a table that nothing here makes: of the "paper", its "code" or its "repository"."""
    lines = map(json.loads, AUTHORS.read_text(encoding="utf-8").splitlines())
    return {one["row"]: one for one in lines if (one["source"], one["table"]) == (source, table)}


SETTINGS = (
    *("clients", "local_steps", "batch_size", "lr", "momentum", "schedule", "centered"),
    "keep_momentum",
)


def job_key(job: Job) -> tuple[Any, ...]:
    """The key that tells a job from all others; the seed is its end."""
    config = job.config
    settings = (getattr(config, name) for name in SETTINGS)
    spec = config.built_scheme.spec
    return (job.label, spec, config.model, config.data, config.rounds, *settings, config.seed)


def run_key(run: Run) -> tuple[Any, ...]:
    """The key of the job that the run is of."""
    # a run from before a setting was invented had its default
    settings = (run.settings.get(name, getattr(TrainConfig, name)) for name in SETTINGS)
    return (run.label, run.scheme, run.model, run.data, run.rounds, *settings, run.seed)
