"""One training run, and what of it is kept."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import warnings
from functools import lru_cache
from pathlib import Path

import torch

from jopeq.versions import versions
from jopeq_lab.training.data import Dataset, load
from jopeq_lab.training.metrics import RoundMetrics, mean
from jopeq_lab.training.simulation import Result, Simulation, train
from paper.kept_runs import SETTINGS, Job, Run


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
