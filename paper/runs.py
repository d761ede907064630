"""Training runs, one process each; every result is kept at once.

Results are lines of JSON in a file: tables and figures can be made again without training, and a
second call trains only the runs that the file lacks.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO, TypeVar

import torch

from jopeq.errors import DataError
from jopeq.versions import versions
from jopeq_lab.training.config import TrainConfig
from jopeq_lab.training.data import Dataset, load
from jopeq_lab.training.metrics import RoundMetrics, mean
from jopeq_lab.training.simulation import Result, Simulation, train

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


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file; none if there is no file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def read_records(path: Path, kind: type[Record]) -> list[Record]:
    """The objects that ``add_record`` wrote to a file; none if there is no file."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            records.append(kind(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"{path}, line {number} is no {kind.__name__} ({error}): delete that line"
            ) from error
    return records


@lru_cache
def theirs(source: str, table: str) -> dict[str, dict[str, Any]]:
    """Rows of a table that nothing here makes: of the "paper", its "code" or its "repository"."""
    rows = read_lines(AUTHORS)
    return {one["row"]: one for one in rows if (one["source"], one["table"]) == (source, table)}


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


# One run


def run_job(job: Job) -> Run | None:
    """Train, and test after every round.

    A run that diverges is kept, with the reason; in its first round it leaves nothing to keep, and
    gives None.
    """
    torch.set_num_threads(1)
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # PyTorch gives up on a function after eight compilations
    config, tested = job.config, []

    def after_round(metrics: RoundMetrics, simulation: Simulation) -> None:
        found = simulation.evaluate(simulation.vector, simulation.federation.test)
        tested.append(0.0 if found is None else found.accuracy)

    data = _dataset(config.data, config.data_dir)
    result = train(config, dataset=data, progress=after_round)
    if not result.history:
        reason = f"{job.label}, seed {config.seed}: {result.diverged}"
        warnings.warn(f"{reason}; nothing of it is kept", RuntimeWarning, stacklevel=2)
        return None
    return kept(job, result, tested)


def kept(job: Job, result: Result, test: list[float]) -> Run:
    """The kept part of a result of at least one round, with its origin.

    Lists by round are kept where a page shows them: curves of the linear model and of Table II,
    and tests at its rate of 0.1.
    """
    config = job.config
    history = [metrics.as_dict() for metrics in result.history]
    last, snrs = history[-1], [metrics["snr"] for metrics in history]
    is_drawn = config.data != "mnist" or (config.model == "linear" and not config.centered)
    validation = [round(metrics["validation_accuracy"], 5) for metrics in history]
    return Run(
        label=job.label,
        scheme=config.built_scheme.spec,
        **{name: getattr(config, name) for name in ("model", "data", "seed", "rounds")},
        test_accuracy=float(result.test_accuracy or 0.0),
        best_round=result.best_round,
        validation=validation if is_drawn else [],
        snr=None if None in snrs else mean(snrs),
        **{name: last[name] for name in ("bytes_per_client", "bits_per_parameter")},
        overload_rate=mean([metrics["overload_rate"] for metrics in history]),
        nominal=last.get("nominal_sample"),
        epsilon=last["epsilon_sample"],
        epsilon_client=last["epsilon_client"],
        settings={
            **{name: getattr(config, name) for name in (*SETTINGS, "device", "tf32")},
            **versions("numpy", "scipy"),
            "torch": torch.__version__,
            **origin(config.device),
        },
        test=test if config.lr == 0.1 and config.data == "cifar10" else None,
        diverged=result.diverged,
    )


@lru_cache
def origin(device: str) -> dict[str, str]:
    """Describe this machine and its commit: ``JOPEQ_COMMIT``, or Git's answer."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(
            words, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        found = "unknown"
    machine = platform.processor() or platform.machine()
    if device.startswith("cuda"):
        machine = torch.cuda.get_device_name(device)
    return {"machine": machine, "commit": os.environ.get("JOPEQ_COMMIT", found)}


@lru_cache(maxsize=1)
def _dataset(name: str, data_dir: str | None) -> Dataset:
    """Load a data set once per process, for all of its runs."""
    return load(name, data_dir)
