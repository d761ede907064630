"""Figures 2 and 3 and Table I of the paper: MNIST, K = 10 clients, scalar schemes.

Setting (authors' code where the text is silent): lr 0.1, momentum 0.5, batch 16, τ = 100 local
steps, 95 rounds, 10,000 images held out for validation, test accuracy of the best validation round.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jopeq.federated.config import TrainConfig
from jopeq.federated.runs import Job, seeds
from jopeq.schemes import Scheme, scheme

EPSILON, RATE = 4.0, 1.0
ROUNDS, SEEDS = 95, 3
MODELS = ("linear", "mlp", "cnn")
FIG2_EPSILONS = (3.0, 3.5, 4.0)
FIG2_RATES = tuple(float(rate) for rate in range(1, 9))
FIG2_ROUNDS = 5

# Test accuracies: the paper's Table I, and the authors' code run once on the same files
PAPER = {
    "none": (0.84, 0.75, 0.79),
    "sdq": (0.84, 0.76, 0.84),
    "laplace": (0.85, 0.70, 0.77),
    "laplace+sdq": (0.78, 0.55, 0.75),
    "jopeq": (0.84, 0.70, 0.79),
}
AUTHORS_CODE = {
    "none": (0.9205, 0.945, 0.987),
    "sdq": (0.9209, 0.942, 0.987),
    "laplace": (0.9196, 0.936, 0.985),
    "laplace+sdq": (0.9173, 0.938, 0.986),
    "jopeq": (0.9195, 0.945, 0.985),
}
AUTHORS_SNR_DB = {"laplace": -10.1, "laplace+sdq": -10.7, "jopeq": -9.5, "sdq": 3.6}


def schemes_at(epsilon: float = EPSILON, rate: float = RATE) -> dict[str, Scheme]:
    """The paper's rows, then ours."""
    return {
        "none": scheme("none"),
        "sdq": scheme("sdq", rate=rate),
        "laplace": scheme("laplace", epsilon=epsilon),
        "laplace+sdq": scheme("laplace+sdq", epsilon=epsilon, rate=rate),
        "jopeq": scheme("jopeq", epsilon=epsilon, rate=rate),
        "staircase": scheme("staircase", epsilon=epsilon, rate=rate),
        "response": scheme("response", epsilon=epsilon, rate=rate),
        "response, R=2, spread auto": scheme(
            "response", epsilon=epsilon, rate=2.0, spread="auto", clients=10
        ),
    }


def base_config(data_dir: Path | None, **changes: object) -> TrainConfig:
    """The paper's setting."""
    settings: dict[str, object] = {
        "data": "mnist",
        "data_dir": None if data_dir is None else str(data_dir),
        "rounds": ROUNDS,
        "validation": 10_000,
        "compile": "off",
        **changes,
    }
    return TrainConfig(**settings)  # type: ignore[arg-type]


def table1_jobs(
    data_dir: Path | None, *, rounds: int = ROUNDS, count: int = SEEDS
) -> Iterator[Job]:
    """Every row and column of Table I, ``count`` seeds each."""
    for model in MODELS:
        for label, coder in schemes_at().items():
            config = base_config(data_dir, scheme=coder, model=model, rounds=rounds)
            for seeded in seeds(config, count):
                yield Job(label, seeded)


def fig3_jobs(data_dir: Path | None, *, rounds: int = ROUNDS, count: int = SEEDS) -> Iterator[Job]:
    """Validation curves of the linear model; the runs of Table I serve here too."""
    curves = schemes_at()
    curves["mvu"] = scheme("mvu", epsilon=EPSILON, rate=RATE)
    for label, coder in curves.items():
        config = base_config(data_dir, scheme=coder, model="linear", rounds=rounds)
        for seeded in seeds(config, count):
            yield Job(label, seeded)


def _staircase(epsilon: float, rate: float) -> Scheme:
    """Entropy-coded in at most R bits; clamped to R bits where its entropy is more than that."""
    try:
        return scheme("staircase", epsilon=epsilon, rate=rate, coding="entropy")
    except ValueError:
        return scheme("staircase", epsilon=epsilon, rate=rate)


def fig2_jobs(data_dir: Path | None, *, rounds: int = FIG2_ROUNDS, count: int = 1) -> Iterator[Job]:
    """SNR of the updates of the first rounds, for every ε and R."""
    for epsilon in FIG2_EPSILONS:
        for rate in FIG2_RATES:
            rows = {
                "laplace+sdq": scheme("laplace+sdq", epsilon=epsilon, rate=rate),
                "jopeq": scheme("jopeq", epsilon=epsilon, rate=rate),
                "staircase": _staircase(epsilon, rate),
                "response": scheme("response", epsilon=epsilon, rate=rate),
            }
            for label, coder in rows.items():
                config = base_config(data_dir, scheme=coder, model="linear", rounds=rounds)
                for seeded in seeds(config, count):
                    yield Job(f"{label} ε={epsilon:g} R={rate:g}", seeded)
