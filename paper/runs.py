"""Training runs that stop when the time is up and go on from there the next time.

A machine may be lent for minutes where a table takes hours. Each unfinished run has a folder of its
own (``federated.record``): its rounds so far, line by line, and a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch

from jopeq.files import atomic
from jopeq.lab.training.data import Dataset, load
from jopeq.lab.training.metrics import RoundMetrics
from jopeq.lab.training.record import CHECKPOINT
from jopeq.lab.training.simulation import Simulation, train
from paper.kept_runs import Job, Run, job_key, kept


@lru_cache
def origin(device: str) -> dict[str, str]:
    """What computes here, and from which commit: ``JOPEQ_COMMIT``, or Git's answer."""
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


def shown(run: Run, job: Job) -> Run:
    """The run with its origin, without lists by round that no page shows.

    Pages show curves of the linear model and of Table II, and tests by round at its rate of 0.1.
    """
    is_drawn = run.data != "mnist" or (run.model == "linear" and not job.config.centered)
    return replace(
        run,
        settings={**run.settings, **origin(job.config.device)},
        validation=run.validation if is_drawn else [],
        test=run.test if job.config.lr == 0.1 and run.data == "cifar10" else None,
    )


class _OutOfTimeError(Exception):
    """Raised between two rounds."""


@dataclass(frozen=True)
class StoppableRunner:
    """Trains a job, and tests after every round.

    Unfinished runs are kept in ``folder`` and continued from there. After ``deadline``, seconds of
    ``time.time()``, rounds are finished but none is begun, and jobs give None. A run that diverges
    is kept, with the reason; in its first round it leaves nothing to keep, and gives None too.
    """

    folder: Path
    deadline: float | None = None

    def __call__(self, job: Job) -> Run | None:
        """The finished run, or None when the time was up before."""
        if self._is_over():
            return None
        torch.set_num_threads(1)
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()  # PyTorch gives up on a function after eight compilations
        config = job.config
        mine = self.folder / folder_name(job)
        tested = _read_tests(mine)

        def after_round(metrics: RoundMetrics, simulation: Simulation) -> None:
            found = simulation.evaluate(simulation.vector, simulation.federation.test)
            tested[metrics.round] = 0.0 if found is None else found.accuracy
            with atomic(mine / "test.jsonl") as file:
                file.write("".join(json.dumps(pair) + "\n" for pair in tested.items()).encode())
            if metrics.round < config.rounds and self._is_over():
                simulation.checkpoint().save(mine / CHECKPOINT)
                raise _OutOfTimeError

        data = _dataset(config.data, config.data_dir)
        try:
            result = train(config, dataset=data, out=mine, resume=True, progress=after_round)
        except _OutOfTimeError:
            return None
        shutil.rmtree(mine)
        if not result.history:
            reason = f"{job.label}, seed {config.seed}: {result.diverged}"
            warnings.warn(f"{reason}; nothing of it is kept", RuntimeWarning, stacklevel=2)
            return None
        return shown(kept(job, result, [tested[one.round] for one in result.history]), job)

    def _is_over(self) -> bool:
        return self.deadline is not None and time.time() >= self.deadline


def folder_name(job: Job) -> str:
    """Readable, and another one for every other configuration; more rounds go on in the same.

    >>> from jopeq.lab.training.config import TrainConfig
    >>> folder_name(Job("t+sdq, published", TrainConfig(seed=2)))[:21]
    't-sdq-published-seed2'
    """
    readable = re.sub(r"[^a-z0-9]+", "-", job.label.lower()).strip("-")
    endless = Job(job.label, replace(job.config, rounds=1))
    digest = hashlib.blake2b(repr(job_key(endless)).encode(), digest_size=6).hexdigest()
    return f"{readable}-seed{job.config.seed}-{digest}"


def _read_tests(folder: Path) -> dict[int, float]:
    """Accuracy by round."""
    path = folder / "test.jsonl"
    return dict(map(json.loads, path.read_text().splitlines())) if path.exists() else {}


@lru_cache(maxsize=1)
def _dataset(name: str, data_dir: str | None) -> Dataset:
    """Read once in a process, however many runs it makes."""
    return load(name, data_dir)
