"""``recommend``: what jopeq would do for a model, tensor by tensor, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jopeq.privacy.guarantee import Guarantee
from jopeq.registry import scheme
from jopeq.schemes.base import Scheme
from jopeq.wire.entries import check_flat, is_left_out
from jopeq.wire.scaling import VARIANCES, is_statistic

_LARGE = 100_000_000  # entries: where kernels and memory begin to matter


@dataclass(frozen=True)
class Treatment:
    """One tensor of a model: how it is sent, or why it is not."""

    name: str
    shape: tuple[int, ...]
    how: str

    @property
    def entries(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Recommendation:
    """A scheme for a model, what it does to each tensor, and what to know."""

    scheme: Scheme
    line: str  # the same as Python
    tensors: tuple[Treatment, ...]
    advice: tuple[str, ...]
    sent: int  # entries of an update
    cost: Guarantee  # of one update

    def __str__(self) -> str:
        width = max((len(one.name) for one in self.tensors), default=0)
        rows = [f"  {one.name:{width}}  {one.shape!s:18} {one.how}" for one in self.tensors]
        size = math.ceil(self.scheme.bits_per_entry * self.sent / 8)
        return "\n".join(
            (
                f"scheme = {self.line}",
                *rows,
                f"sent: {self.sent:,} entries in about {size:,} bytes, not {4 * self.sent:,}",
                f"one update: {self.cost}",
                *(f"- {text}" for text in self.advice),
            )
        )


def recommend(
    state: Mapping[str, Any], *, epsilon: float = 4.0, rate: float = 2.0
) -> Recommendation:
    """What jopeq would do for a model with this state (``model.state_dict()``), and why.

    Only names, shapes and types are read. ``print`` shows the result as ``jopeq doctor`` does.

    >>> state = {"conv.weight": np.zeros((8, 3)), "bn.running_var": np.ones(8), "n": np.array(0)}
    >>> found = recommend(state)
    >>> found.scheme.per, found.sent, [one.how.split(":")[0] for one in found.tensors]
    ('layers', 32, ['sent', 'sent as a statistic', 'not sent'])
    """
    if not isinstance(state, Mapping):
        raise TypeError(
            f"recommend takes a mapping of arrays, got {type(state).__name__}: "
            "call recommend(model.state_dict())"
        )
    check_flat(state)
    chosen = scheme("response", epsilon=epsilon, rate=rate, clip="layers")
    tensors = tuple(
        Treatment(name, tuple(np.shape(value)), _how(name, value)) for name, value in state.items()
    )
    sizes = {one.name: one.entries for one in tensors if not one.how.startswith("not sent")}
    line = f'jopeq.scheme("response", epsilon={epsilon:g}, rate={rate:g}, clip="layers")'
    return Recommendation(
        chosen, line, tensors, tuple(_advice(sizes)), sum(sizes.values()), chosen.cost(sizes)
    )


def _how(name: str, value: Any) -> str:
    if is_left_out(value):
        return "not sent: integers and booleans are never part of an update"
    if not math.prod(np.shape(value)):
        return "sent: it has no entries"
    if is_statistic(name):
        unit = "factors of e, so it stays positive" if name.endswith(VARIANCES) else "deviations"
        return f"sent as a statistic: in {unit}; clip 1 to start from"
    return "sent: its own public clip, which follows its updates"


def _advice(sizes: Mapping[str, int]) -> list[str]:
    people = "ε is of one entry. It protects entries, not people: for people see jopeq.Sphere "
    advice = [people + "(nobody is trusted) and jopeq.SecureSum (only the sum is seen)."]
    if any(map(is_statistic, sizes)):
        advice.append(
            "Normalisation layers: form updates with jopeq.state_update and apply them with "
            'jopeq.updated_state (Flower\'s mod does). statistics="local" keeps running statistics '
            "on the clients; jopeq.torch.recompute_statistics makes them anew from data."
        )
    if sizes and all(name.isdigit() for name in sizes):
        advice.append(
            "The tensors have numbers for names: running statistics cannot be told apart. Send a "
            "state_dict, whose names say what each tensor is."
        )
    if sum(sizes.values()) > _LARGE:
        advice.append("A large model: pip install 'jopeq[fast]' and run `jopeq warmup` once.")
    if not sizes:
        advice.append("There is nothing to send: no tensor holds floats.")
    return advice
