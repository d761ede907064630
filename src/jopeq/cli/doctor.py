"""``jopeq doctor``: what would be done for a model of your own, and why."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from jopeq.analysis.learning import judge, mean_error
from jopeq.cli.output import explained
from jopeq.random.rational import MAX_EPSILON
from jopeq.schemes.model import find_frozen
from jopeq.sphere.sphere import LEAST_EPSILON, MOST_EPSILON, Sphere
from jopeq.sums.secure_sum import SecureSum
from jopeq.wire.entries import is_left_out

_KINDS = (".npz", ".safetensors", ".pt", ".pth")
_LONGEST_HEADER = 100_000_000  # as the format has it


def doctor(
    model: Annotated[
        str, typer.Argument(help="a file (.npz, .safetensors, .pt) or package.module:function")
    ],
    epsilon: Annotated[
        float, typer.Option(help="ε of one entry; in a sum, of a client in all rounds together")
    ] = 4.0,
    rate: Annotated[float, typer.Option(help="bits per entry")] = 2.0,
    clients: Annotated[int, typer.Option(help="clients a round, for a sum", min=4)] = 100,
    rounds: Annotated[int, typer.Option(help="rounds, for a sum", min=1)] = 20,
) -> None:
    """Say how each tensor of a model would be sent, what that costs, and why.

    No file is unpickled. An import path runs the module's code: name only what you trust.
    """
    from jopeq.entries.recommend import recommend

    with explained("", OSError, TypeError):
        state, frozen = state_of(model), frozen_of(model)
        sent = {name: value for name, value in state.items() if name not in frozen}
        typer.echo(str(recommend(sent, epsilon=epsilon, rate=rate)))
        for text in propose_sum(state, frozen, epsilon, clients, rounds):
            typer.echo(f"- {text}")


def propose_sum(
    state: Mapping[str, Any], frozen: Collection[str], epsilon: float, clients: int, rounds: int
) -> Iterator[str]:
    """What is frozen, and a secure sum of the rest with what it would teach."""
    sizes = {n: math.prod(np.shape(v)) for n, v in state.items() if not is_left_out(v)}
    count = sum(size for name, size in sizes.items() if name not in frozen)
    if frozen:
        yield (
            f"{count:,} of {sum(sizes.values()):,} entries train. In Flower, on both ends: "
            f'frozen="auto", model=… (the same as frozen={sorted(frozen)!r:.300})'
        )
    if not count or epsilon > MAX_EPSILON:
        return
    scheme = SecureSum(
        epsilon=epsilon, clip=1.0, clients=clients, threshold=2 * clients // 3 + 1,
        participations=rounds,
    )  # fmt: skip
    yield (
        f"For people or hospitals: jopeq.SecureSum(epsilon={epsilon:g}, clip=…, clients={clients}, "
        f"threshold={scheme.threshold}, participations={rounds}), ε and δ = {scheme.delta:g} of a "
        f"client in all rounds together. "
        f"{judge(mean_error(scheme, count, clients)[0], rounds)}."
    )
    each = epsilon / rounds
    if LEAST_EPSILON <= each <= MOST_EPSILON:
        local = Sphere(epsilon=each, clip=1.0, max_entries=max(count, 1 << 22))
        yield (
            f"Trusting nobody: jopeq.Sphere(epsilon={each:g}, clip=…), ε of one update and "
            f"{epsilon:g} in all rounds together. "
            f"{judge(mean_error(local, count, clients)[0], rounds)}."
        )


def frozen_of(model: str) -> tuple[str, ...]:
    """Names of the tensors that a module does not train; a file does not tell."""
    if Path(model).suffix in _KINDS or ":" not in model:
        return ()
    from jopeq.lab.training.models import build

    return find_frozen(build(model, (1, 28, 28), classes=10, seed=0))


def state_of(model: str) -> Mapping[str, Any]:
    """The state in a file, or of the module that a function makes."""
    path = Path(model)
    if path.suffix in _KINDS:
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {model}")
        return _from_file(path)
    if ":" not in model:
        raise ValueError(
            f"model must be a file ({', '.join(_KINDS)}) or package.module:function, got {model!r}"
        )
    from jopeq.lab.training.models import build

    return dict(build(model, (1, 28, 28), classes=10, seed=0).state_dict())


def _from_file(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as found:
            return dict(found)
    if path.suffix == ".safetensors":
        return _described(path)
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)  # refuses other objects
    except Exception as error:
        raise ValueError(
            f"{path} holds more than tensors, or is damaged ({str(error).splitlines()[0]:.120}): "
            "save model.state_dict() and give that file; it is not unpickled"
        ) from error
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]  # as many training scripts save it
    if not isinstance(found, Mapping):
        raise ValueError(f"{path} holds {type(found).__name__}, not a state: save state_dict()")
    return found


def _described(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file by its header: their values are not needed."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(path.stat().st_size - 8, _LONGEST_HEADER):
            raise ValueError(f"{path} is no safetensors file: its header claims {length} bytes")
        header = json.loads(file.read(length))
    return {
        name: np.broadcast_to(np.zeros((), "f4" if "F" in one["dtype"] else "i4"), one["shape"])
        for name, one in header.items()
        if name != "__metadata__"
    }
