"""Which tensors lie on a GPU, and whether kernels run there; imports torch only for a tensor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jopeq.errors import PayloadError
from jopeq.wire.entries import is_tensor

if TYPE_CHECKING:
    from jopeq.kernels.recipe import Recipe


def common_device(values: Iterable[Any]) -> Any:
    """The GPU that all these tensors are on; None when there is none."""
    device = None
    for value in values:
        is_there = is_tensor(value) and value.device.type == "cuda"
        if not is_there or device not in (None, value.device):
            return None
        device = value.device
    return device


def can_code(recipe: Recipe | None, device: Any) -> bool:
    """True if GPU kernels run on this device and know this recipe."""
    import torch

    from jopeq.kernels.gpu import arguments

    return recipe is not None and arguments.uses_triton(torch.device(device))


def tensor_of(values: Any, device: Any) -> Any:
    """An array decoded on the host, as a tensor on the device."""
    import torch

    try:
        return torch.from_numpy(values).to(device)
    except RuntimeError as error:
        raise PayloadError(f"device {device!r} cannot hold the update: {error}") from error
