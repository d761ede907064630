"""The measurements of a round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from jopeq.privacy.guarantee import Guarantee

_CHUNK = 200  # larger ones leave a CPU's cache
_GPU_CHUNK = 2000


@dataclass(frozen=True)
class Evaluation:
    """Mean cross-entropy, the fraction of right answers, and of two classes the AUC."""

    loss: float
    accuracy: float
    auc: float | None = None


def evaluate(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> Evaluation | None:
    """The model in evaluation mode, a chunk of samples at a time; None without samples.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> evaluate(model, torch.zeros(0, 1, 2, 2), torch.zeros(0, dtype=torch.int64)) is None
    True
    """
    if not len(labels):
        return None
    kind = next((p.dtype for p in model.parameters() if p.is_floating_point()), inputs.dtype)
    was_training = model.training
    model.eval()
    loss = torch.zeros((), dtype=torch.float64, device=inputs.device)
    right = torch.zeros((), dtype=torch.int64, device=inputs.device)
    scores = []
    chunk = _CHUNK if inputs.device.type == "cpu" else _GPU_CHUNK
    try:
        with torch.inference_mode():
            for first in range(0, len(labels), chunk):
                some = slice(first, first + chunk)
                logits = model(inputs[some].to(kind))
                loss += functional.cross_entropy(logits, labels[some], reduction="sum")
                right += (logits.argmax(1) == labels[some]).sum()
                if logits.shape[1] == 2:
                    scores.append(logits[:, 1] - logits[:, 0])
    finally:
        model.train(was_training)
    auc = area_under_curve(torch.cat(scores), labels) if scores else None
    return Evaluation(float(loss) / len(labels), int(right) / len(labels), auc)


def area_under_curve(scores: torch.Tensor, labels: torch.Tensor) -> float | None:
    """The chance that a sample of class 1 scores above one of class 0; None without either.

    >>> area_under_curve(torch.tensor([0.1, 0.4, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
    0.875
    """
    from scipy.stats import rankdata

    is_one = labels.cpu().numpy() == 1
    ones, zeros = int(is_one.sum()), int((~is_one).sum())
    if not ones * zeros:
        return None
    ranks = rankdata(scores.double().cpu().numpy())
    return float((ranks[is_one].sum() - ones * (ones + 1) / 2) / (ones * zeros))


@dataclass(frozen=True, kw_only=True)
class RoundMetrics:
    """One round of any kind of run; None where the kind does not measure it.

    Sizes are those of real payloads, seconds those of the clock. ``epsilon_*`` are proven (inf: no
    guarantee), ``nominal_*`` are requested (None: no privacy requested). ``*_client`` is of the
    client that has sent most updates so far; of people and of hospitals, of a person or a record
    for the whole run.
    """

    round: int  # from 1; 0 is a round before the first, such as people's mean of features
    participants: int
    bytes_per_client: float  # mean payload, header and all
    bits_per_parameter: float  # of the same
    epsilon_client: float
    delta: float  # of the smallest unit whose ε is given
    training_seconds: float
    coding_seconds: float  # encode and decode of all participants
    evaluation_seconds: float
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    train_loss: float | None = None  # mean over participants and steps, weighted by α_k
    snr: float | None = None  # mean over clients of var(h)/var(h − h̃), as in the paper
    snr_db: float | None = None  # 20·log10 of it, as the authors' code prints it (not 10·log10)
    overload_rate: float | None = None  # fraction of samples beyond the codebook
    clipped_rate: float | None = None  # fraction of samples moved into the unit ball
    refused: int | None = None  # updates that the server did not count
    clip: float | None = None
    epsilon_sample: float | None = None
    epsilon_update: float | None = None
    nominal_sample: float | None = None
    nominal_update: float | None = None
    nominal_client: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The fields that were measured, as JSON holds them: null where a number is not finite."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
            if value is not None
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RoundMetrics:
        """The inverse of ``as_dict``."""
        known = {name: values[name] for name in (f.name for f in fields(cls)) if name in values}
        known = {name: math.inf if value is None else value for name, value in known.items()}
        if values.get("snr_db", 0.0) is None:  # of an SNR of 0 it is −inf
            known["snr_db"] = decibels(known["snr"])
        return cls(**known)


def signal_to_noise(update: NDArray[Any], decoded: NDArray[Any]) -> float:
    """var(h)/var(h − h̃) of one client; inf when nothing was lost.

    >>> signal_to_noise(np.array([1.0, -1.0]), np.array([1.5, -1.5]))
    4.0
    """
    error = float(np.var(update - decoded, dtype=np.float64))
    signal = float(np.var(update, dtype=np.float64))
    return signal / error if error > 0.0 else math.inf


def decibels(snr: float) -> float:
    """20·log10, as the authors' code prints SNRs.

    >>> decibels(10.0)
    20.0
    """
    return 20.0 * math.log10(snr) if snr > 0.0 else -math.inf


def mean(values: Sequence[float]) -> float:
    """The mean; inf if any value is."""
    return math.fsum(values) / len(values)


def spent(sample: Guarantee, dimension: int, rounds: int) -> dict[str, float | None]:
    """The ε and δ fields of ``RoundMetrics`` after ``rounds`` updates of ``dimension`` entries."""
    update = sample if sample.unit == "update" else sample.for_update(dimension)
    client = update.for_client(dimension, rounds)
    units = {"sample": sample, "update": update, "client": client}
    proven = {f"epsilon_{unit}": each.epsilon for unit, each in units.items()}
    nominal = {f"nominal_{unit}": each.nominal for unit, each in units.items()}
    return {**proven, **nominal, "delta": sample.delta}
