"""``jopeq doctor``: what would be done for a model of your own, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from jopeq.cli.output import explained

_KINDS = (".npz", ".safetensors", ".pt", ".pth")
_LONGEST_HEADER = 100_000_000  # as the format has it


def doctor(
    model: Annotated[
        str, typer.Argument(help="a file (.npz, .safetensors, .pt) or package.module:function")
    ],
    epsilon: Annotated[float, typer.Option(help="ε of one entry")] = 4.0,
    rate: Annotated[float, typer.Option(help="bits per entry")] = 2.0,
) -> None:
    """Say how each tensor of a model would be sent, what that costs, and why.

    No file is unpickled. An import path runs the module's code: name only what you trust.
    """
    from jopeq.entries.recommend import recommend

    with explained("", OSError, TypeError):
        typer.echo(str(recommend(state_of(model), epsilon=epsilon, rate=rate)))


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
